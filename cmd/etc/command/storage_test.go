package command

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/single"
)

// TestStoredNeed: what is asked of the memory follows from the form of the state: caches of 8 bits take 8.5 bits for
// each number and recurrent state in bf16 half of f32; so a program fits where it does not fit as it is declared.
func TestStoredNeed(t *testing.T) {
	need := func(name string, s ragged.Storage) session.Memory {
		m := fusetest.Load(t, name)
		d, err := session.Describe(m)
		require.NoError(t, err)
		return needOf(m, d.MaxSeqLen, single.Engine{Engine: cpu.Engine{}, Storage: s}, eval.Mixed)
	}
	for name, forms := range map[string][]ragged.Storage{
		"etc-qwen35moe-chat-sample": {{Q8: true}, {HalfState: true}, {Q8: true, HalfState: true}},
		"etc-gemma4-chat-sample":    {{Q8: true}},
	} {
		declared := need(name, ragged.Storage{})
		for _, s := range forms {
			n := need(name, s)
			require.Equal(t, declared.Weights, n.Weights)
			require.Less(t, n.State, declared.State, "%s: %s", name, s)
			require.Greater(t, n.State, declared.State/4)
			if s.Q8 {
				require.InDelta(t, 8.5/16, float64(n.Position)/float64(declared.Position), 0.05,
					"%s: bf16 caches", name)
			} else {
				require.Equal(t, declared.Position, n.Position)
			}
			f := fit{File: name, Context: 256, Sessions: 1}
			available := (declared.Need(1) + n.Need(1)) / 2
			f.Need = declared
			require.ErrorContains(t, f.Check(available), "would not fit")
			f.Need = n
			require.NoError(t, f.Check(available))
		}
	}
}
