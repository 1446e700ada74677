package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/etc-ml/etc/ir"
)

// Values that live at the same time have lanes of their own, no operation lies on the lane of a value that passes it,
// and all of it lies within the drawing.
func TestFlowLanesStayApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "rows")
		f := flow{Rows: make([]flowRow, n)}
		reads := make([][]int, n)
		last := make([]int, n)
		for i := range n {
			f.Rows[i].Y = i*rowHeight + rowHeight/2
			if i > 0 {
				reads[i] = rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 0, 3, rapid.ID[int]).Draw(t, "reads")
			}
			for _, from := range reads[i] {
				last[from] = i
			}
		}
		f.wire(reads)
		edges := 0
		for i, r := range f.Rows {
			require.True(t, r.X > 0 && r.X < f.Width && r.Y > 0 && r.Y < f.Height, "%+v of %dx%d", r, f.Width, f.Height)
			for j := range i {
				if i < last[j] {
					require.NotEqual(t, f.Rows[j].X, r.X, "row %d lies on the lane of row %d, which is read by row %d",
						i, j, last[j])
				}
			}
			for _, from := range reads[i] {
				require.True(t, strings.HasPrefix(f.Wires[edges],
					fmt.Sprintf("M%d %dV", f.Rows[from].X, f.Rows[from].Y)))
				require.True(t, strings.HasSuffix(f.Wires[edges], fmt.Sprintf("V%d", r.Y)) && f.Rows[from].X == r.X ||
					strings.HasSuffix(f.Wires[edges], fmt.Sprintf(" %d %d", r.X, r.Y)), f.Wires[edges])
				edges++
			}
		}
		require.Len(t, f.Wires, edges)
	})
}

// A flow leaves out what only moves data, and joins what is on both sides of it.
func TestFlowLeadsPastMoves(t *testing.T) {
	m := &ir.Module{}
	cache := m.NewBuffer("layers.2.attn.cache", ir.StaticType(ir.F32, 2, 2))
	f := &ir.Func{Name: "forward", Body: &ir.Region{}}
	x := f.NewParam("x", ir.StaticType(ir.BF16, 2, 2))
	require.NoError(t, ir.Build(func() {
		g := &ir.Builder{Module: m, Region: f.Body}
		y := g.Value("exp", nil, x)
		z := g.Value("astype", &ir.DTypeAttrs{ScalarType: ir.F32}, y)
		g.BufferOp("store", cache, nil, z)
		g.Value("add", nil, y, x)
	}))
	d := newFlow("forward", f.Params, f.Body.Ops)
	var rows []string
	for _, r := range d.Rows {
		rows = append(rows, strings.TrimSpace(r.Class+" "+r.Operation+" "+r.Module+r.Detail))
	}
	require.Equal(t, []string{"k0 input x", "k0 exp", "k4 store attn.cache", "k0 add"}, rows)
	require.Equal(t, "exp → bf16[2,2]", d.Rows[1].Title)
	require.Len(t, d.Wires, 4, "x to exp and add, exp to store and add")
}

func TestNamesOfWeights(t *testing.T) {
	for name, want := range map[string]string{
		"self_attn.q_proj.weight.packed":                                           "self_attn.q_proj",
		"self_attn.q_proj.parametrizations.weight.original0_int4_to_packed_scales": "self_attn.q_proj",
		"mlp.experts.down_proj.packed":                                             "mlp.experts.down_proj",
		"mlp.gate_proj.weight_int4_packed":                                         "mlp.gate_proj",
		"linear_attn.dt_bias":                                                      "linear_attn.dt_bias",
	} {
		require.Equal(t, want, plainName(name))
	}
	for name, want := range map[string][2]string{
		"mlp.shared_expert.up_proj":   {"mlp.shared_expert.", "up_proj"},
		"linear_attn.A_log.exp.neg":   {"linear_attn.", "A_log.exp.neg"},
		"input_layernorm":             {"", "input_layernorm"},
		"linear_attn.recurrent_state": {"linear_attn.", "recurrent_state"},
	} {
		module, rest := splitModule(name)
		require.Equal(t, want, [2]string{module, rest}, name)
	}
}
