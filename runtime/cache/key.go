package cache

import (
	"crypto/sha256"
	"encoding/binary"
)

// key returns token ids as a string, for maps.
func key(tokens []int32) string {
	b := make([]byte, 0, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	return string(b)
}

// Key names what a prefix of token ids has on a slower tier: the block that ends it, or its checkpoint.
type Key struct {
	Prefix     [sha256.Size]byte // a hash of all token ids of the prefix, by blocks
	Checkpoint bool
}

// extend returns the hash of the prefix with the hash parent and the tokens of k after it.
func extend(parent [sha256.Size]byte, k string) [sha256.Size]byte {
	return sha256.Sum256(append(parent[:], k...))
}
