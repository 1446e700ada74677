package command

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/record"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/verify"
)

// weightsResult is the result of etc verify --weights.
type weightsResult struct {
	// Pieces is the number of weights and texts that have a hash. Bytes is the number of bytes read: the whole file
	// except for the build record.
	Pieces int   `json:"pieces"`
	Bytes  int64 `json:"bytes"`
}

// span is a range of a file.
type span struct{ offset, size int64 }

// storedPiece is a list of ranges of a file that have one hash together, one after the other.
type storedPiece struct {
	name  string // a key of named data, or codegen.StoredProgram
	spans []span
	want  string
}

// verifyWeights reads all of a file and compares it with the hashes of its build record. A file whose record has none
// is an error.
func verifyWeights(ctx context.Context, path string) (*weightsResult, []verify.Finding, error) {
	c, err := container.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	text, ok := c.Lookup(keyBuild)
	if !ok {
		return nil, nil, fmt.Errorf("%s: no build record, and so no hashes to check its bytes by: another "+
			"tool wrote it. "+
			"--signed KEY checks every byte of a file that was signed, --against CHECKPOINT compares the weights with "+
			"the checkpoint", path)
	}
	record, err := record.Parse(text)
	if err != nil {
		return nil, nil, invalidError{fmt.Errorf("%s: %w", path, err)}
	}
	if len(record.Stored) == 0 {
		return nil, nil, fmt.Errorf("%s: its build record (%s) has no hashes of what the file stores, which records "+
			"had not at first: export it again, or compare it with its checkpoint by --against CHECKPOINT", path,
			record.Tool)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	pieces, findings := storedPieces(c, record)
	result := &weightsResult{Pieces: len(pieces)}
	for _, p := range pieces {
		for _, s := range p.spans {
			result.Bytes += s.size
		}
	}
	different, err := hashPieces(ctx, f, pieces)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	findings = append(findings, different...)
	for _, s := range gaps(c) {
		at, err := firstNonzero(ctx, f, s)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
		if result.Bytes += s.size; at >= 0 {
			findings = append(findings, weightsFinding("byte %d, between two pieces of the file, is not zero", at))
		}
	}
	return result, findings, nil
}

func weightsFinding(format string, args ...any) verify.Finding {
	return verify.Finding{Severity: verify.Error, Check: "weights", Message: fmt.Sprintf(format, args...)}
}

// storedPieces returns what a record has hashes of, and tells where record and file do not name the same.
func storedPieces(c *container.File, r *buildRecord) (pieces []storedPiece, findings []verify.Finding) {
	segments := map[string]int{}
	for _, n := range c.NamedData() {
		segments[n.Key] = n.Segment
	}
	covered := map[int]bool{segments[keyBuild]: true}
	for _, s := range r.Stored {
		if s.Name == codegen.StoredProgram {
			p := storedPiece{name: s.Name, want: s.SHA256, spans: []span{{0, int64(c.Header().ProgramSize)}}}
			for _, m := range c.Methods() {
				for _, d := range m.Delegates {
					p.spans = append(p.spans, span{d.Offset, int64(len(d.Payload))})
				}
			}
			pieces = append(pieces, p)
			continue
		}
		n, ok := segments[s.Name]
		if !ok {
			findings = append(findings, weightsFinding("%q is in the build record, and not in the file", s.Name))
			continue
		}
		covered[n] = true
		segment := c.Segments()[n]
		pieces = append(pieces, storedPiece{s.Name, []span{{segment.Offset, segment.Size}}, s.SHA256})
	}
	for _, n := range c.NamedData() {
		if !covered[n.Segment] {
			findings = append(findings, weightsFinding("%q is in the file, and the build record has no hash of it",
				n.Key))
			covered[n.Segment] = true
		}
	}
	return pieces, findings
}

// hash returns the SHA-256 of what a piece is in a file, in hexadecimal.
func (p *storedPiece) hash(ctx context.Context, f io.ReaderAt) (string, error) {
	h := sha256.New()
	buffer := make([]byte, record.HashBuffer)
	for _, s := range p.spans {
		r := record.Interruptible{Context: ctx, Reader: io.NewSectionReader(f, s.offset, s.size)}
		// Only Reader and Writer are shown to CopyBuffer, so that it uses the buffer.
		n, err := io.CopyBuffer(struct{ io.Writer }{h}, struct{ io.Reader }{r}, buffer)
		if err == nil && n < s.size {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// hashPieces computes the hashes of pieces and gives a finding for each that is not as it should be.
func hashPieces(ctx context.Context, f io.ReaderAt, pieces []storedPiece) ([]verify.Finding, error) {
	found := make([]string, len(pieces))
	err := forEach(ctx, len(pieces), func(ctx context.Context, i int) (err error) {
		if found[i], err = pieces[i].hash(ctx, f); err != nil {
			return fmt.Errorf("%q: %w", pieces[i].name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var out []verify.Finding
	for i, p := range pieces {
		if found[i] != p.want {
			what := fmt.Sprintf("%q", p.name)
			if p.name == codegen.StoredProgram {
				what = "the program (methods, graphs, memory plan)"
			}
			out = append(out, weightsFinding("%s was changed: its SHA-256 is %.16s…, the build record says %.16s…",
				what, found[i], p.want))
		}
	}
	return out, nil
}

// gaps returns the ranges of a file that neither the program nor a segment takes: its writer has left zeros there.
func gaps(c *container.File) (out []span) {
	used := []span{{0, int64(c.Header().ProgramSize)}, {c.Size(), 0}}
	for _, s := range c.Segments() {
		used = append(used, span{s.Offset, s.Size})
	}
	slices.SortFunc(used, func(a, b span) int { return cmp.Compare(a.offset, b.offset) })
	at := int64(0)
	for _, s := range used {
		if s.offset > at {
			out = append(out, span{at, s.offset - at})
		}
		at = max(at, s.offset+s.size)
	}
	return out
}

// firstNonzero returns the place of the first byte of a range that is not zero, -1 where all are.
func firstNonzero(ctx context.Context, f io.ReaderAt, s span) (int64, error) {
	buffer := make([]byte, min(s.size, record.HashBuffer))
	for at := int64(0); at < s.size; at += int64(len(buffer)) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		p := buffer[:min(int64(len(buffer)), s.size-at)]
		if n, err := f.ReadAt(p, s.offset+at); n < len(p) {
			return 0, cmp.Or(err, error(io.ErrUnexpectedEOF))
		}
		if i := slices.IndexFunc(p, func(b byte) bool { return b != 0 }); i >= 0 {
			return s.offset + at + int64(i), nil
		}
	}
	return -1, nil
}
