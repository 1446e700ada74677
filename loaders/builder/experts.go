package builder

import "fmt"

// Experts returns the matrices of routed experts, [count,rows,hidden] twice and [count,hidden,rows], in whichever form
// the checkpoint has them under prefix: every expert's own ("experts.3.gate_proj.weight"), stacked
// ("experts.gate_proj.weight", or "switch_mlp.gate_proj.weight" as mlx-lm has it), or stacked with gate and up in one
// ("experts.gate_up_proj").
func (t *Tensors) Experts(prefix string, count, rows, hidden int) (gate, up, down Weight) {
	routed := prefix + "experts."
	if t.HasUnder(routed + "0.") {
		stack := func(name string, shape ...int) Weight {
			number := func(i int) string { return fmt.Sprintf("%s%d.%s.weight", routed, i, name) }
			return t.Stack(routed+name, count, number, shape...)
		}
		return stack("gate_proj", rows, hidden), stack("up_proj", rows, hidden), stack("down_proj", hidden, rows)
	}
	for _, separate := range []string{routed, prefix + "switch_mlp.", routed + "switch_glu."} {
		if t.Has(separate + "gate_proj.weight") {
			stack := func(name string, shape ...int) Weight {
				w := t.Matrix(separate+name+".weight", shape...)
				w.Name = routed + name
				return w
			}
			gate, up = stack("gate_proj", count, rows, hidden), stack("up_proj", count, rows, hidden)
			return gate, up, stack("down_proj", count, hidden, rows)
		}
	}
	gateUp := t.Matrix(routed+"gate_up_proj", count, 2*rows, hidden)
	gate, up = gateUp.Part(routed+"gate_proj", 0, rows), gateUp.Part(routed+"up_proj", rows, rows)
	return gate, up, t.Matrix(routed+"down_proj", count, hidden, rows)
}
