package statefile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/etc-ml/etc/internal/record"
	"github.com/etc-ml/etc/runtime/program"
)

// Owner says what a state belongs to.
type Owner struct {
	// File is the path of the program, for messages, and so that nothing is written over it.
	File string
	// Program identifies the program: see [Identify].
	Program string
	// Precision is the one that computes the state, as mixed.
	Precision string
}

// Identify returns what identifies a program: a hash of the names, sizes and first bytes of all named data, and of the
// build record, which has the hashes of the weights' sources.
func Identify(p *program.Program) string {
	h := sha256.New()
	for _, n := range p.File.NamedData() {
		b, _ := p.File.Lookup(n.Key)
		fmt.Fprintf(h, "%q %d\n", n.Key, len(b))
		h.Write(b[:min(len(b), 1024)])
	}
	built, _ := p.File.Lookup(record.Key)
	h.Write(built)
	return hex.EncodeToString(h.Sum(nil))
}
