package passes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// TestLegalizeCopiesStaleLoads: a pass may leave a loaded value in use after a write of its buffer; where
// legalize runs, it is copied at the load, once, whoever uses it.
func TestLegalizeCopiesStaleLoads(t *testing.T) {
	for name, body := range map[string]string{
		"a write between": `
    %0 = load @b() : f32[2]
    %1 = id_copy(x=%0) : f32[2]
    store @b(x=%x)
    %2 = neg(x=%1) : f32[2]
    %3 = add(a=%2, b=%1) : f32[2]
    return %3: f32[2]`,
		"a write in an arm": `
    %0 = load @b() : f32[2]
    %1 = id_copy(x=%0) : f32[2]
    %2 = if(cond=%n) : f32[2] {
      store @b(x=%x)
      %3 = add(a=%1, b=%x) : f32[2]
      yield %3
    } else {
      yield %x
    }
    %4 = add(a=%2, b=%1) : f32[2]
    return %4: f32[2]`,
		"a write in a scan": `
    %0 = load @b() : f32[2]
    %1 = id_copy(x=%0) : f32[2]
    %2 = scan(originals=[%x]) {scan_axis=0} : f32[2] {
      args %3: f32[]
      %4 = sum(x=%1) : f32[]
      %5 = add(a=%4, b=%3) : f32[]
      store @b(x=%x)
      yield %5
    }
    return %2: f32[2]`,
		"a load in an arm": `
    %0 = if(cond=1) : f32[2] {
      %1 = load @b() : f32[2]
      %2 = id_copy(x=%1) : f32[2]
      store @b(x=%x)
      %3 = add(a=%2, b=%x) : f32[2]
      yield %3
    } else {
      yield %x
    }
    return %0: f32[2]`,
	} {
		t.Run(name, func(t *testing.T) {
			text := "module {\n  symbol s0 [-2147483648, 2147483647]\n  buffer @b : f32[2]\n  entry forward(%x: f32[2], %n: int(s0)) {" + body + "\n  }\n}\n"
			before, m := parse(t, text), parse(t, text)
			ir.EachUse(m.Entry.Body, func(v **ir.Value, _ *ir.Op) { // what a careless pass would do
				if op := (*v).Def; op != nil && op.Def.Name == "id_copy" {
					*v = op.Input("x")
				}
			})
			apply(t, "dce", parse(t, text), &Options{})
			require.NoError(t, eliminateDead(m, nil))
			require.ErrorContains(t, ir.Verify(m), "is used after a later write of the buffer")
			apply(t, "legalize", m, &Options{})
			loads := 0
			m.Entry.Body.Walk(func(op *ir.Op) {
				if op.Def.Name == "id_copy" && op.Input("x").Def != nil && op.Input("x").Def.Def.Name == "load" {
					loads++
				}
			})
			require.Equal(t, 1, loads)
			requireSameValues(t, evaluate(t, before, eval.FP32, 1), evaluate(t, m, eval.FP32, 1), "")
		})
	}
}

// TestLegalizeCarryWithOtherUses: an id_copy that something else uses too is not the carry's own.
func TestLegalizeCarryWithOtherUses(t *testing.T) {
	const text = `module {
  entry forward(%x: f32[2], %c: f32[]) {
    %0 = id_copy(x=%c) : f32[]
    %1, %2 = scan(originals=[%x], carry=[%0]) {scan_axis=0} : f32[2], f32[] {
      args %3: f32[], %4: f32[]
      %5 = add(a=%3, b=%4) : f32[]
      yield %4, %5
    }
    %6 = if(cond=1) : f32[] {
      yield %0
    } else {
      yield %2
    }
    return %1: f32[2], %6: f32[]
  }
}
`
	before, m := parse(t, text), parse(t, text)
	apply(t, "legalize", m, &Options{})
	require.Equal(t, 6, count(m, "id_copy"), m.String())
	requireSameValues(t, evaluate(t, before, eval.FP32, 1), evaluate(t, m, eval.FP32, 1), "")
}
