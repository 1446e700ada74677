package gpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/lower"
	"github.com/etc-ml/etc/runtime/plan"
)

// TestUnwritten: a state may be read early by the first operation that writes it, unless a kernel tells whether to
// reset it.
func TestUnwritten(t *testing.T) {
	for name, c := range map[string]struct {
		reset string
		early bool
	}{
		"no reset":                 {"", true},
		"the host knows the reset": {", reset=%at", true},
		"a kernel makes the reset": {", reset=%s", false},
	} {
		m, err := ir.Parse(`module {
  constant @w : bf16[64,64]
  constant @taps : f32[64,4,1]
  constant @zero : f32[1]
  buffer @state : f32[1,4,64]
  entry forward(%x: f32[1,1,64], %at: bool[], %long: f32[1,70000]) {
    %m = max(x=%long) {axes=[1], keepdims=false} : f32[1]
    %r = reshape(x=%m, shape=[1]) : f32[1]
    %s = greater(a=%r, b=@zero) : bool[1]
    %p = linear(x=%x, weight=@w) : f32[1,1,64]
    %c = buffer_conv @state(x=%p, w=@taps` + c.reset + `) : f32[1,1,64]
    %q = linear(x=%c, weight=@w) : f32[1,1,64]
    %d = buffer_conv @state(x=%q, w=@taps) : f32[1,1,64]
    return %d: f32[1,1,64]
  }
}
`)
		require.NoError(t, err, name)
		m, err = lower.Run(m, plan.Shapes(m, 1), &lower.Target{Machine: kernels.Machine{Target: kernels.Metal}},
			passes.Control{})
		require.NoError(t, err, name)
		var early []bool
		for _, op := range m.Entry.Body.Ops {
			if op.Def.Name == "matvec_conv" {
				early = append(early, ir.Attrs[ir.MatvecConvAttrs](op).Early)
			}
		}
		require.Equal(t, []bool{c.early, false}, early, name)
	}
}
