package cpu

import (
	"context"
	"slices"
	"testing"
	"time"

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

// TestPiecesEnd: in a call that has ended no loop of a step runs a piece: what the loops write, states too, stays as
// it was.
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
			for i := range x.plans[0].All()[0].steps {
				s := &x.plans[0].All()[0].steps[i]
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
	k, err := newState(&ir.Buffer{Name: "k", Type: ir.StaticType(ir.F32, 1, 1, slots, width)}, eval.FP32, false)
	require.NoError(t, err)
	q := &value{dtype: ir.F32, slot: &slot{f: make([]float32, tokens*width)}, shape: []int{1, 1, tokens, width},
		stride: []int{tokens * width, tokens * width, width, 1}}
	out := &value{dtype: ir.F32, slot: &slot{f: make([]float32, tokens*width)}, shape: q.shape, stride: q.stride}
	a := &attention{q: q, out: out, k: k, v: k, position: &value{slot: &slot{n: position}},
		scale: 1, heads: 1, kvHeads: 1,
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

// BenchmarkAbandon measures how long a call runs on after its context has ended, in the middle of a product of 512
// tokens with a matrix of 8192 rows of 8192, and of attention of a chunk over 16384 keys.
func BenchmarkAbandon(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"product", `module {
  constant @w : f32[8192,8192]
  entry forward(%x: f32[512,8192]) {
    %0 = linear(x=%x, weight=@w) : f32[512,8192]
    return %0: f32[512,8192]
  }
}
`},
		{"attention", `module {
  symbol p [-2147483648, 2147483647]
  buffer @k : f32[1,4,16384,256]
  buffer @v : f32[1,4,16384,256]
  entry forward(%x: f32[1,32,512,256], %at: i64[]) {
    %p = item_int(x=%at) : int(p)
    %0 = load @k() : f32[1,4,16384,256]
    %1 = load @v() : f32[1,4,16384,256]
    %2 = cached_attention(q=%x, k=%0, v=%1, position=%p) {scale=1.0} : f32[1,32,512,256]
    return %2: f32[1,32,512,256]
  }
}
`},
	} {
		b.Run(c.name, func(b *testing.B) {
			m, err := ir.Parse(c.text)
			require.NoError(b, err)
			for _, k := range m.Constants {
				k.Data = ir.Float32s([]int64{8192, 8192}, make([]float32, 8192*8192)...)
			}
			exe, err := Engine{}.Compile(m, engine.Options{Precision: eval.FP32})
			require.NoError(b, err)
			x, err := exe.NewInstance()
			require.NoError(b, err)
			var in []eval.Value
			for _, p := range m.Entry.Params {
				t, err := eval.NewTensor(p.Type.DType, shapeOf(p.Type)...)
				require.NoError(b, err)
				if t.I != nil {
					t.I[0] = 16384 - 512
				}
				in = append(in, eval.Value{Tensor: t})
			}
			_, err = x.Run(b.Context(), in) // reads the weight
			require.NoError(b, err)
			var longest time.Duration
			for b.Loop() {
				ctx, cancel := context.WithCancel(b.Context())
				var end time.Time
				time.AfterFunc(40*time.Millisecond, func() { end = time.Now(); cancel() })
				_, err := x.Run(ctx, in)
				require.ErrorIs(b, err, context.Canceled)
				longest = max(longest, time.Since(end))
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "ms-longest")
			require.NoError(b, x.Close())
			require.NoError(b, exe.Close())
		})
	}
}

// shapeOf is the shape of a type of constant dims.
func shapeOf(t ir.Type) []int {
	dims, _ := t.Static()
	out := make([]int, len(dims))
	for i, d := range dims {
		out[i] = int(d)
	}
	return out
}
