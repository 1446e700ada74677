package cpu

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/engine/enginetest"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
)

// TestAbandon: no step runs after the one in which the context ends, at whichever that is.
func TestAbandon(t *testing.T) {
	for _, name := range []string{"qwen35moe-tiny-bf16", "gemma4-chat-bf16-ropefix"} {
		t.Run(name, func(t *testing.T) {
			m := fusetest.Load(t, name)
			var cancel func()
			steps, last := 0, 0
			o := engine.Options{Precision: eval.Mixed, Threads: 2, Observe: func(s *engine.Step) {
				if steps++; cancel != nil && steps == last {
					cancel()
				}
			}}
			ends := []int{1, 7, 40, 3}
			enginetest.Abandon(t, Engine{}, m, o, func() context.Context {
				ctx, stop := context.WithCancel(t.Context())
				t.Cleanup(stop)
				cancel, steps, last, ends = stop, 0, ends[0], ends[1:]
				return ctx
			})
			// The same by hand, to count what ran.
			x := enginetest.Start(t, Engine{}, m, o)
			for _, end := range []int{1, 2, 30} {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				cancel, steps, last = stop, 0, end
				_, err := x.Run(ctx, fusetest.Inputs(m, 0, 20))
				var abandoned *engine.AbandonedError
				require.ErrorAs(t, err, &abandoned)
				require.Equal(t, end, steps, "steps that ran")
				require.NoError(t, x.Reset())
			}
		})
	}
}

// TestPiecesEnd: in a call that has ended no loop of a step runs a piece: what the loops write, states too, stays as it was.
func TestPiecesEnd(t *testing.T) {
	loops := []string{"linear", "linears", "attention", "delta rule", "conv", "experts", "glu", "rope", "norm"}
	seen := map[string]bool{}
	for _, name := range []string{"qwen35moe-tiny-bf16", "gemma4-chat-bf16-ropefix"} {
		for _, tokens := range []int{1, 20} {
			m := fusetest.Load(t, name)
			x := enginetest.Start(t, Engine{}, m, engine.Options{Precision: eval.Mixed, Threads: 2}).(*instance)
			_, err := x.Run(t.Context(), fusetest.Inputs(m, 0, tokens))
			require.NoError(t, err)
			before, err := x.Snapshot()
			require.NoError(t, err)
			const mark = -12345
			for i := range x.arena {
				x.arena[i] = mark
			}
			ended := make(chan struct{})
			close(ended)
			x.done = ended
			for i := range x.plans[0].steps {
				s := &x.plans[0].steps[i]
				if !slices.Contains(loops, s.kind) {
					continue
				}
				seen[s.kind] = true
				require.NoError(t, s.run())
				require.NotContains(t, s.kind, "update")
				for _, v := range x.arena {
					if v != mark {
						t.Fatalf("%s, %d tokens: a piece of step %d (%s) ran", name, tokens, i, s.kind)
					}
				}
			}
			x.done = nil
			after, err := x.Snapshot()
			require.NoError(t, err)
			require.Equal(t, before, after)
		}
	}
	for _, kind := range loops {
		require.True(t, seen[kind], kind)
	}
}

// TestAttentionBlockEnds: a block over many keys asks before every key block, and stops at once.
func TestAttentionBlockEnds(t *testing.T) {
	const slots, width, tokens, position = 16 * keyBlock, 8, queryBlock, 12*keyBlock + 5
	k, err := newState(&ir.Buffer{Name: "k", Type: ir.StaticType(ir.F32, 1, 1, slots, width)}, eval.FP32)
	require.NoError(t, err)
	q := &value{dtype: ir.F32, slot: &slot{f: make([]float32, tokens*width)}, shape: []int{1, 1, tokens, width}, stride: []int{tokens * width, tokens * width, width, 1}}
	out := &value{dtype: ir.F32, slot: &slot{f: make([]float32, tokens*width)}, shape: q.shape, stride: q.stride}
	a := &attention{q: q, out: out, k: k, v: k, position: &value{slot: &slot{n: position}}, scale: 1, heads: 1, kvHeads: 1,
		queries: tokens, slots: slots, width: width, vWidth: width}
	a.keys = append(a.keys, k.matrix(slots, width, 0))
	a.values = a.keys
	for _, left := range []int{0, 1, 5, 100} {
		asked := 0
		a.ended = func() bool { asked++; return asked > left }
		a.block(&work{}, 0, 0, 1)
		want := (position + tokens + keyBlock - 1) / keyBlock // key blocks that are seen
		require.Equal(t, min(want, left+1), asked)
	}
}
