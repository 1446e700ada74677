// What the record scripts share: the real library, and ways to ask it about one component.
//
// The library is the npm package `tokenizers` (the Rust library, prebuilt), version 0.23.2:
//
//	mkdir /tmp/tok && cd /tmp/tok && npm init -y && npm install tokenizers@0.23.2
//	TOKENIZERS=/tmp/tok node record.mjs
import { createRequire } from 'module'

export const T = createRequire((process.env.TOKENIZERS ?? process.cwd()) + '/')('tokenizers')

const empty = {
  version: '1.0', truncation: null, padding: null, added_tokens: [], normalizer: null, pre_tokenizer: null,
  post_processor: null, decoder: null, model: { type: 'BPE', vocab: { a: 0 }, merges: [] },
}

/** A tokenizer made of the given sections of tokenizer.json; the others are empty. */
export const make = (sections) => T.Tokenizer.fromString(JSON.stringify({ ...empty, ...sections }))

/** The pieces into which a pre-tokenizer, given as JSON, cuts a text. */
export const pieces = (json, text) => make({ pre_tokenizer: json }).getPreTokenizer().preTokenizeString(text).map((p) => p[0])

/** Every Unicode scalar value. */
export const scalars = []
for (let c = 0; c < 0x110000; c++) if (c < 0xd800 || c > 0xdfff) scalars.push(c)
