package command

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/etc-ml/etc/internal/record"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/verify"
)

// readRecord returns the build record of a program, nil where it has none.
func readRecord(p *program.Program) (*buildRecord, error) {
	text, ok := p.File.Lookup(keyBuild)
	if !ok {
		return nil, nil
	}
	return record.Parse(text)
}

// verifyRecord computes again what a build record says of the program that it lies in: its limits, its form,
// the nodes that it may have, the group sizes of its weights.
func verifyRecord(path string) []verify.Finding {
	p, err := program.Open(path)
	if err != nil {
		return nil // package verify has said so
	}
	defer p.Close()
	finding := func(severity verify.Severity, format string, args ...any) verify.Finding {
		return verify.Finding{Severity: severity, Check: "record", Message: fmt.Sprintf(format, args...)}
	}
	r, err := readRecord(p)
	if err != nil {
		return []verify.Finding{finding(verify.Error, "%v", err)}
	}
	if r == nil {
		return nil // a file of another tool
	}
	var out []verify.Finding
	if r.Tool != toolVersion {
		out = append(out, finding(verify.Note, "%s: written by %s, this is %s", keyBuild, r.Tool, toolVersion))
	}
	m, err := p.Module("forward")
	if err != nil {
		return out
	}
	differs := func(what string, recorded, is any) {
		if fmt.Sprint(recorded) != fmt.Sprint(is) {
			out = append(out, finding(verify.Error, "%s: says %s %v, the program has %v", keyBuild, what, recorded, is))
		}
	}
	differs("max_seq_len", r.Options.MaxSeqLen, constantOf(m, "get_max_seq_len"))
	differs("max_prefill_chunk", r.Options.MaxPrefillChunk, constantOf(m, "get_max_prefill_chunk"))
	for _, method := range m.Metadata {
		if method.Name == "use_sampling" && len(method.Values) == 1 {
			differs("sample", r.Options.Sample || r.Options.Backend == "cuda", method.Values[0])
		}
	}
	differs("draft", r.Draft != nil, slices.Contains(p.Methods(), builder.Draft))
	if kernels := countOps(m, "metal_kernel"); r.Options.Portable && kernels > 0 {
		out = append(out, finding(verify.Error, "%s: says portable, the program has %d Metal kernels", keyBuild,
			kernels))
	}
	return out
}

// countOps counts the operations of a name.
func countOps(m *ir.Module, name string) (n int) {
	m.Entry.Body.Walk(func(op *ir.Op) {
		if op.Def.Name == name {
			n++
		}
	})
	return n
}

// sourceCheck is the comparison of the build record with the tensors of a checkpoint.
type sourceCheck struct {
	Recorded int `json:"recorded"`
	Equal    int `json:"equal"`
	// Different are tensors whose bytes have another SHA-256 than the record says; Missing are in the record only,
	// Extra in the checkpoint only.
	Different []string `json:"different"`
	Missing   []string `json:"missing"`
	Extra     []string `json:"extra"`
}

// ok reports whether the program was made from the checkpoint.
func (s *sourceCheck) ok() bool { return len(s.Different)+len(s.Missing)+len(s.Extra) == 0 }

func (s *sourceCheck) String() string {
	if s.ok() {
		return fmt.Sprintf("sources: all %d tensors have the SHA-256 of the build record", s.Equal)
	}
	var parts []string
	for _, x := range []struct {
		what  string
		names []string
	}{{"have other bytes", s.Different}, {"are in the record only", s.Missing},
		{"are in the checkpoint only", s.Extra}} {
		if len(x.names) > 0 {
			parts = append(parts, fmt.Sprintf("%d %s (%s)", len(x.names), x.what, someOf(x.names)))
		}
	}
	return fmt.Sprintf("sources: %d of %d tensors have the SHA-256 of the build record; %s", s.Equal, s.Recorded,
		strings.Join(parts, "; "))
}

// checkSources computes the hashes of a checkpoint's tensors and compares them with a record.
func checkSources(ctx context.Context, r *buildRecord, c *loaders.Checkpoint) (*sourceCheck, error) {
	out := &sourceCheck{Recorded: len(r.Sources), Different: []string{}, Missing: []string{}, Extra: []string{}}
	recorded := map[string]string{}
	for _, s := range r.Sources {
		recorded[s.Name] = s.SHA256
	}
	sources := c.Sources()
	hashes := make([]string, len(sources))
	err := forEach(ctx, len(sources), func(ctx context.Context, i int) (err error) {
		if recorded[sources[i].Name] != "" {
			hashes[i], err = record.HashSource(ctx, sources[i])
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for i, s := range sources {
		found[s.Name] = true
		switch recorded[s.Name] {
		case "":
			out.Extra = append(out.Extra, s.Name)
		case hashes[i]:
			out.Equal++
		default:
			out.Different = append(out.Different, s.Name)
		}
	}
	for _, s := range r.Sources {
		if !found[s.Name] {
			out.Missing = append(out.Missing, s.Name)
		}
	}
	return out, nil
}
