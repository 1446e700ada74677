package tokenizer

import (
	"math"
	"strings"
)

// maxID is the largest token id that is taken. (The library has 32 bits.)
const maxID = math.MaxInt32

// A vocabulary maps token texts to ids and back. No two texts share an id.
type vocabulary struct {
	ids    map[string]int32
	tokens []string // by id
	used   []bool   // by id
	size   int      // how many ids are used
}

// readVocabulary reads the member vocab of the model.
func readVocabulary(r *reader, at *place) *vocabulary {
	if r.peek() != '{' {
		fail(at, "found %s, expected an object", r.found())
	}
	v := &vocabulary{ids: make(map[string]int32, min(len(r.data)/128, 1<<18))}
	largest := 0
	r.object(func(token string) {
		if c := r.peek(); c != '-' && (c < '0' || c > '9') {
			fail(at, "the id of token %q begins with %s, expected an integer", abridge(token), r.found())
		}
		text := r.number()
		id, ok := parseNatural(text)
		if !ok {
			fail(&place{up: at, key: token}, "found %s, expected an integer from 0 to %d", text, maxID)
		}
		before := len(v.ids)
		if v.ids[strings.Clone(token)] = int32(id); len(v.ids) == before {
			fail(at, "the token %q comes twice", abridge(token))
		}
		largest = max(largest, id)
	})
	if limit := 4*len(v.ids) + 1<<20; largest >= limit {
		fail(at, "the largest id is %d, found only %d tokens; ids below %d are supported", largest, len(v.ids), limit)
	}
	v.tokens, v.used = make([]string, 0, largest+1), make([]bool, 0, largest+1)
	for token, id := range v.ids {
		if other, taken := v.token(id); taken {
			fail(at, "the tokens %q and %q have the same id %d", abridge(min(token, other)),
				abridge(max(token, other)), id)
		}
		v.name(token, id)
	}
	return v
}

// name makes token the text of an id.
func (v *vocabulary) name(token string, id int32) {
	if grow := int(id) + 1 - len(v.tokens); grow > 0 {
		v.tokens = append(v.tokens, make([]string, grow)...)
		v.used = append(v.used, make([]bool, grow)...)
	}
	if !v.used[id] {
		v.size++
	}
	v.tokens[id], v.used[id] = token, true
}

// id returns the id of a token, -1 if it has none.
func (v *vocabulary) id(token string) int32 {
	if id, ok := v.ids[token]; ok {
		return id
	}
	return -1
}

func (v *vocabulary) token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(v.tokens) {
		return "", false
	}
	return v.tokens[id], v.used[id]
}
