package tokenizer

// TokenBytes returns the bytes of a token inside of a text. The bytes of a text's tokens, concatenated, are the text,
// except for what decoders strip at its beginning or end. A special token has no bytes, nor has an id that is not a
// token.
func (t *Tokenizer) TokenBytes(id int) []byte {
	token, ok := t.IDToToken(id)
	if !ok || t.added.special[token] {
		return nil
	}
	if _, added := t.added.tokens[int32(id)]; added {
		return []byte(token)
	}
	d := &t.decoder
	if d.byteFallback {
		if b, ok := parseFallback(token); ok {
			return []byte{b}
		}
	}
	for _, replace := range d.replace {
		token = replace(token)
	}
	if d.byteLevel {
		if b, ok := appendFromByteLevel(nil, token); ok {
			return b
		}
	}
	return []byte(token)
}
