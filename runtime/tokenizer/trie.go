package tokenizer

// A trie finds the longest of many texts that a text begins with.
type trie struct {
	first [256]int32      // the node of each first byte, 0: none
	next  map[edge]int32  // the node after a node and a byte
	found map[int32]int32 // the value at a node
	nodes int32
}

type edge struct {
	node int32
	char byte
}

func newTrie() *trie { return &trie{next: map[edge]int32{}, found: map[int32]int32{}} }

// put enters a text that is not empty. It says false if the text is there already.
func (t *trie) put(s string, value int32) bool {
	node := t.first[s[0]]
	if node == 0 {
		t.nodes++
		node = t.nodes
		t.first[s[0]] = node
	}
	for i := 1; i < len(s); i++ {
		e := edge{node, s[i]}
		if node = t.next[e]; node == 0 {
			t.nodes++
			node = t.nodes
			t.next[e] = node
		}
	}
	if _, taken := t.found[node]; taken {
		return false
	}
	t.found[node] = value
	return true
}

// longest returns the value and the length of the longest text that s begins with; length 0: none.
func (t *trie) longest(s string) (value int32, length int) {
	node := t.first[s[0]]
	for i := 1; node != 0; i++ {
		if v, ok := t.found[node]; ok {
			value, length = v, i
		}
		if i == len(s) {
			break
		}
		node = t.next[edge{node, s[i]}]
	}
	return value, length
}

// covers reports whether one of the texts is at the front of s, or the whole of s is the front of one.
func (t *trie) covers(s string) (whole, part bool) {
	node := t.first[s[0]]
	for i := 1; node != 0; i++ {
		if _, ok := t.found[node]; ok {
			return true, false
		}
		if i == len(s) {
			return false, true
		}
		node = t.next[edge{node, s[i]}]
	}
	return false, false
}
