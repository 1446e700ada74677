package constrain

import (
	"bytes"
	"fmt"
	"slices"
)

// maxTokenBytes bounds the length of a token, in bytes.
const maxTokenBytes = 1 << 12

// Vocab is the bytes of a tokenizer's tokens, ready for masks. It is never changed, so it may be shared.
type Vocab struct {
	tokens  [][]byte
	stop    []int
	longest int // bytes of the longest token

	// The trie, a node for each distinct beginning of a token, in the order of a walk: first the node, then its
	// children.
	char  []byte
	depth []uint16 // bytes up to and with char
	skip  []int32  // the next node that does not begin with this one
	token []int32  // the token that ends here, or -1
	same  map[int32][]int32
}

// NewVocab makes a vocabulary of the bytes of each token, by id. A token without bytes (special tokens, unused ids) is
// never allowed, but for those of stop, which end an answer; stop tokens have to be without bytes.
func NewVocab(tokens [][]byte, stop []int) (*Vocab, error) {
	v := &Vocab{tokens: make([][]byte, len(tokens)), stop: slices.Clone(stop), same: map[int32][]int32{}}
	var order []int32
	for id, t := range tokens {
		if len(t) > maxTokenBytes {
			return nil, fmt.Errorf("token %d has %d bytes; at most %d are supported", id, len(t), maxTokenBytes)
		}
		if len(t) > 0 {
			v.tokens[id] = bytes.Clone(t)
			order = append(order, int32(id))
		}
		v.longest = max(v.longest, len(t))
	}
	for _, id := range stop {
		if id < 0 || id >= len(tokens) {
			return nil, fmt.Errorf("stop token %d is outside of the vocabulary of %d tokens", id, len(tokens))
		}
		if len(tokens[id]) > 0 {
			return nil, fmt.Errorf("stop token %d has bytes (%q); a stop token has to be a special one", id, tokens[id])
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return bytes.Compare(v.tokens[a], v.tokens[b]) })
	v.buildTrie(order)
	return v, nil
}

func (v *Vocab) buildTrie(order []int32) {
	var path []int32 // the nodes of the last token's bytes
	var last []byte
	closeTo := func(depth int) {
		for len(path) > depth {
			v.skip[path[len(path)-1]] = int32(len(v.char))
			path = path[:len(path)-1]
		}
	}
	for _, id := range order {
		t := v.tokens[id]
		common := 0
		for common < len(t) && common < len(last) && t[common] == last[common] {
			common++
		}
		closeTo(common)
		for d := common; d < len(t); d++ {
			path = append(path, int32(len(v.char)))
			v.char = append(v.char, t[d])
			v.depth = append(v.depth, uint16(d+1))
			v.skip = append(v.skip, 0)
			v.token = append(v.token, -1)
		}
		if n := path[len(path)-1]; v.token[n] < 0 {
			v.token[n] = id
		} else {
			v.same[n] = append(v.same[n], id)
		}
		last = t
	}
	closeTo(0)
}

// Size is the number of token ids.
func (v *Vocab) Size() int { return len(v.tokens) }

// MaskWords returns the length of a mask: bit i%64 of word i/64 is token i.
func (v *Vocab) MaskWords() int { return (len(v.tokens) + 63) / 64 }

// IsStop reports whether a token ends an answer.
func (v *Vocab) IsStop(token int) bool { return slices.Contains(v.stop, token) }
