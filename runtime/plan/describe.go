package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
)

// Stored returns the names of the buffers and then of the weights that op uses, as the text form of the IR writes them.
func Stored(op *ir.Op) []string {
	var out []string
	for _, b := range op.Buffers() {
		out = append(out, "@"+b.Name)
	}
	op.EachArg(func(a *ir.Arg) {
		v := a.Value
		if v != nil && v.Def != nil && v.Def.Def.Name == "quantized" {
			v = v.Def.Input("packed")
		}
		if v != nil && v.Constant != nil {
			out = append(out, "@"+v.Constant.Name)
		}
	})
	return out
}

// Work describes a step of a plan for people.
type Work struct {
	// Kind is the kind of the step.
	Kind string
	// Op is the operation that the step computes, or computes a part of.
	Op *ir.Op
	// Bytes is the number of bytes of weights and state that it reads. Operations is its number of floating-point
	// multiplications and additions, 0 where that is not known.
	Bytes, Operations int
}

// About returns the name of the operation, the bytes that it reads, and its weights and buffers.
func (w Work) About() string {
	parts := []string{w.Op.Def.Name}
	if w.Bytes > 0 {
		parts = append(parts, Size(w.Bytes))
	}
	return strings.Join(append(parts, Stored(w.Op)...), " ")
}

// WriteKinds writes sums of the steps by kind, those that read most first.
func WriteKinds(out io.Writer, steps []Work) {
	type sum struct {
		kind              string
		count, bytes, ops int
	}
	var kinds []sum
	all := sum{kind: "all"}
	for _, s := range steps {
		i := slices.IndexFunc(kinds, func(x sum) bool { return x.kind == s.Kind })
		if i < 0 {
			i = len(kinds)
			kinds = append(kinds, sum{kind: s.Kind})
		}
		for _, x := range []*sum{&kinds[i], &all} {
			x.count, x.bytes, x.ops = x.count+1, x.bytes+s.Bytes, x.ops+s.Operations
		}
	}
	slices.SortStableFunc(kinds, func(x, y sum) int { return cmp.Compare(y.bytes, x.bytes) })
	for _, x := range append(kinds, all) {
		line := fmt.Sprintf("%5d  %-16s reads %-10s", x.count, x.kind, Size(x.bytes))
		if all.ops > 0 {
			line += fmt.Sprintf(" %.3g GFLOP", float64(x.ops)/1e9)
		}
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
}

// Size formats a number of bytes.
func Size(n int) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
