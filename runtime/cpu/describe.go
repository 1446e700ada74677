package cpu

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/plan"
)

// Describe writes how the engine runs a module: the fused operations with their counts; the plan for a single token,
// step by step, with the bytes that each reads; the plan for a chunk of at most chunk tokens, summed by kind of step;
// the buffers, and the memory of the plans. Kind "numbers" are steps on reference kernels that are too small to matter,
// kind "reference" those that should not be. It reads no weights. It returns an error for a module that does not run
// here. It is long because it writes one section after the other.
func Describe(w io.Writer, m *ir.Module, chunk int, o engine.Options) error {
	var warnings []string
	o.Warn = func(text string) { warnings = append(warnings, text) }
	exe, err := Engine{}.Compile(m, o)
	if err != nil {
		return err
	}
	defer exe.Close()
	x, ok := exe.(*executable)
	if !ok {
		return errors.New(strings.Join(warnings, "; "))
	}
	made, err := x.NewInstance()
	if err != nil {
		return err
	}
	defer made.Close()
	n := made.(*instance)
	decode, err := n.bind(x.fused, plan.Shapes(x.fused, 1))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	activations := "float32"
	if x.path == kernel.Integer {
		activations = "8 bits where weights are quantized"
	}
	fmt.Fprintf(&b, "engine cpu, kernels %s, activations of %s\n\nfused operations\n", kernel.Level(), activations)
	for _, line := range counts(x.fused) {
		fmt.Fprintln(&b, "  "+line)
	}
	fmt.Fprintf(&b, "\nplan of %s for one token\n", m.Entry.Name)
	for i, s := range decode.work() {
		fmt.Fprintf(&b, "%5d  %-16s %-20s %s\n", i, s.Kind, shapesOf(s.Op), s.About())
	}
	b.WriteString("\nby kind\n")
	plan.WriteKinds(&b, decode.work())
	memory := fmt.Sprintf("%s for a token", plan.Size(4*decode.size))
	if chunk = min(chunk, largestChunk(x.fused)); chunk > 1 {
		p, err := n.bind(x.fused, plan.Shapes(x.fused, chunk))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\nplan of %s for a chunk of %d tokens, by kind\n", m.Entry.Name, chunk)
		plan.WriteKinds(&b, p.work())
		memory += fmt.Sprintf(", %s for a chunk of %d tokens", plan.Size(4*p.size), chunk)
	}
	b.WriteString("\nbuffers\n")
	held := 0
	for _, buffer := range x.fused.Buffers {
		s := n.states[buffer]
		bytes := len(s.half) + len(s.words) + 4*len(s.slot.f) + 8*len(s.slot.i)
		held += bytes
		fmt.Fprintf(&b, "  %-10s %-22s @%s\n", plan.Size(bytes), buffer.Type, buffer.Name)
	}
	fmt.Fprintf(&b, "\nmemory: %s of buffers, %s\n", plan.Size(held), memory)
	for _, text := range warnings {
		fmt.Fprintln(&b, text)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// work returns the name, kind and bytes read of each step of the plan.
func (p *boundPlan) work() []plan.Work {
	out := make([]plan.Work, len(p.steps))
	for i, s := range p.steps {
		out[i] = plan.Work{Kind: s.kind, Op: s.op, Bytes: s.bytes, Operations: s.flops}
	}
	return out
}

// largestChunk returns the largest value that the symbolic dims of the inputs can have.
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
	return int(min(most, 1<<16))
}

// shapesOf returns the types of an operation's results for one token, as text.
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

// counts returns the operations of a module with their counts, without views and arithmetic on single numbers.
func counts(m *ir.Module) []string {
	n := map[string]int{}
	m.Entry.Body.Walk(func(op *ir.Op) {
		if !op.Def.IsView() && !cheap[op.Def.Name] && op.Def.Name != "quantized" {
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
