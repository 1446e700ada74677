package cpu

import (
	"fmt"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/engine"
)

// Describe tells how the engine runs a module under precision mixed: the plan for a single token, step by
// step, with what each reads; the fused operations, counted; the buffers, and the memory that plans for a
// token and for a chunk need. Nothing of the weights is read.
func Describe(m *ir.Module) string {
	var b strings.Builder
	exe, err := Engine{}.Compile(m, engine.Options{Precision: eval.Mixed, Threads: 1, Warn: func(text string) { fmt.Fprintln(&b, text) }})
	if err != nil {
		return err.Error() + "\n"
	}
	defer exe.Close()
	x, ok := exe.(*executable)
	if !ok {
		return b.String()
	}
	made, err := x.NewInstance()
	if err != nil {
		return b.String() + err.Error() + "\n"
	}
	n := made.(*instance)
	decode, err := n.bind(shapesFor(x.fused, 1))
	if err != nil {
		return b.String() + err.Error() + "\n"
	}
	fmt.Fprintf(&b, "engine cpu, kernels %s, activations of 8 bits for quantized weights\n\n", kernel.Level())
	fmt.Fprintf(&b, "plan of %s for one token: %d steps\n", m.Entry.Name, len(decode.steps))
	total := 0
	for i, s := range decode.steps {
		fmt.Fprintf(&b, "%5d  %-12s %-20s %s\n", i, s.kind, shapesOf(s.op), readsOf(&s))
		total += s.bytes
	}
	fmt.Fprintf(&b, "\nreads %s of weights and state for a token\n\nfused operations\n", size(total))
	for _, line := range counts(x.fused) {
		fmt.Fprintln(&b, "  "+line)
	}
	b.WriteString("\nbuffers\n")
	held := 0
	for _, buffer := range x.fused.Buffers {
		s := n.states[buffer]
		bytes := len(s.half) + 4*len(s.slot.f) + 8*len(s.slot.i)
		held += bytes
		fmt.Fprintf(&b, "  %-10s %-22s @%s\n", size(bytes), buffer.Type, buffer.Name)
	}
	fmt.Fprintf(&b, "\nmemory: %s of buffers, %s for a token", size(held), size(4*decode.size))
	if chunk := largestChunk(x.fused); chunk > 1 {
		if p, err := n.bind(shapesFor(x.fused, chunk)); err == nil {
			fmt.Fprintf(&b, ", %s for a chunk of %d tokens", size(4*p.size), chunk)
		}
	}
	b.WriteByte('\n')
	return b.String()
}

// shapesFor gives the shapes of inputs whose symbolic dims are n.
func shapesFor(m *ir.Module, n int) [][]int {
	out := make([][]int, len(m.Entry.Params))
	for i, p := range m.Entry.Params {
		if p.Type.Kind == ir.IntKind {
			continue
		}
		out[i] = make([]int, p.Type.Rank())
		for j, d := range p.Type.Shape {
			if c, ok := d.Const(); ok {
				out[i][j] = int(c)
			} else {
				out[i][j] = n
			}
		}
	}
	return out
}

// largestChunk is the largest number that the symbolic dims of the inputs may have, as far as the method
// that says so allows.
func largestChunk(m *ir.Module) int {
	most := int64(1)
	for _, p := range m.Entry.Params {
		for _, d := range p.Type.Shape {
			if _, fixed := d.Const(); !fixed {
				_, hi := d.Bounds()
				most = max(most, hi)
			}
		}
	}
	for _, k := range m.Metadata {
		if v, ok := k.Values[0].(int64); ok && k.Name == "get_max_prefill_chunk" && len(k.Values) == 1 && v > 0 {
			most = min(most, v)
		}
	}
	return int(min(most, 1<<16))
}

// shapesOf are the types of an operation's results, for one token.
func shapesOf(op *ir.Op) string {
	one := func(*ir.Symbol) *ir.Expr { return ir.Const(1) }
	var out []string
	for _, r := range op.Results {
		t := r.Type
		if t.Kind == ir.IntKind {
			out = append(out, "int")
			continue
		}
		t.Shape = slices.Clone(t.Shape)
		for i, d := range t.Shape {
			t.Shape[i] = d.Substitute(one)
		}
		out = append(out, t.String())
	}
	return strings.Join(out, " ")
}

// readsOf tells what a step reads, and the buffer or the weights that it is about.
func readsOf(s *step) string {
	var parts []string
	if s.kind == "reference" {
		parts = append(parts, s.op.Def.Name)
	}
	if s.bytes > 0 {
		parts = append(parts, size(s.bytes))
	}
	if s.op.Buffer != nil {
		parts = append(parts, "@"+s.op.Buffer.Name)
	}
	s.op.EachArg(func(a *ir.Arg) {
		v := a.Value
		if v != nil && v.Def != nil && v.Def.Def.Name == "quantized" {
			v = v.Def.Input("packed")
		}
		if v != nil && v.Constant != nil {
			parts = append(parts, "@"+v.Constant.Name)
		}
	})
	return strings.Join(parts, " ")
}

// counts counts the operations of a module that are more than views and numbers.
func counts(m *ir.Module) []string {
	n := map[string]int{}
	m.Entry.Body.Walk(func(op *ir.Op) {
		if views[op.Def.Name] == nil && !cheap[op.Def.Name] && op.Def.Name != "quantized" {
			n[op.Def.Name]++
		}
	})
	var lines []string
	for name, count := range n {
		lines = append(lines, fmt.Sprintf("%5d  %s", count, name))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[7:], b[7:]) })
	return lines
}

// size writes a number of bytes.
func size(n int) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
