package fuse_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/ragged"
)

// fewRows are bounds of calls for tests.
func fewRows(*ragged.Model) (ragged.Options, error) {
	return ragged.Options{BlockRows: 4, Rows: 24, Sequences: 4, Units: cache.Demand{50, 51, 52, 53}}, nil
}

// TestEveryModelIsRagged: every graph becomes one for calls of many sequences: each operation with state becomes its
// twin, nothing else changes, and the wanted rows are taken once, as early as the last one was.
func TestEveryModelIsRagged(t *testing.T) {
	twins := map[string]string{"rope": "rope_rows", "cached_attention": "block_attention", "buffer_conv": "slot_conv",
		"buffer_delta_rule": "slot_delta_rule"}
	for _, name := range append(fusetest.Names(), fusetest.Neighbours()...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, name)
			fused, err := fuse.Fuse(m)
			require.NoError(t, err)
			want := map[string]int{}
			for _, op := range fused.Entry.Body.Ops {
				switch n := op.Def.Name; {
				case twins[n] != "":
					want[twins[n]]++
				case op.Def.State == ir.WritesRows:
					want["block_write"]++
				case n == "linear", n == "linears", n == "rms_norm", n == "glu", n == "switch_mlp", n == "embedding",
					n == "load":
					want[n]++
				}
			}
			made, model, err := fuse.Ragged(m, ragged.Options{}, fewRows, passes.Control{Verify: true})
			require.NoError(t, err)
			got := map[string]int{}
			for _, op := range made.Entry.Body.Ops {
				if n := op.Def.Name; want[n] > 0 || op.Buffer != nil || n == "rope" || n == "sample" ||
					n == "item_int" {
					got[n]++
				}
			}
			require.Equal(t, want, got)
			require.Equal(t, len(made.Buffers), len(model.Full)+len(model.Slots)+ringBuffers(model))
			again, err := fuse.Fuse(made)
			require.NoError(t, err)
			require.Equal(t, text(t, made.Only(made.Entry)), text(t, again), "fusing again changes nothing")
			require.False(t, strings.Contains(text(t, again), "index=-1"))
		})
	}
}

func ringBuffers(m *ragged.Model) (n int) {
	for _, r := range m.Rings {
		n += len(r.Buffers)
	}
	return n
}

// TestWhyNotRagged: what may mix rows is refused, and the error says why.
func TestWhyNotRagged(t *testing.T) {
	const attend = "    %7 = cached_attention(q=%4, k=%5, v=%6, position=%1) {scale=1.0} : f32[1,1,s0,8]\n"
	for name, c := range map[string]struct{ old, by, want string }{
		"as it is": {"%8", "%8", ""},
		"softmax over rows": {"softmax(x=%8) {axis=-1}", "softmax(x=%8) {axis=1}",
			"it is not known which rows it mixes: "},
		"sum over rows": {"%9 = softmax(x=%8) {axis=-1} : f32[1,s0,8]\n",
			"%10 = sum(x=%8) {axes=[1], keepdims=true} : f32[1,1,8]\n    %9 = add(a=%8, b=%10) : f32[1,s0,8]\n",
			"it mixes rows: "},
		"numbers of rows": {"%9 = softmax(x=%8) {axis=-1} : f32[1,s0,8]\n",
			"%10 = arange(start=0, stop=%2, step=1) {scalar_type=f32} : f32[s0]\n" +
				"    %11 = expand_dims(x=%10) {axis=1} : f32[s0,1]\n    %9 = add(a=%8, b=%11) : f32[1,s0,8]\n",
			"it tells rows apart by their number: "},
		"written elsewhere": {"start=%1, stop=%3", "start=0, stop=%2",
			"its rows are written elsewhere than at their positions: buffer_slice_update @k"},
		"turned elsewhere": {"rope(x=%30, offset=%1)", "rope(x=%30, offset=%2)",
			"it turns rows by something else than their positions: "},
		"another buffer": {"return %9", "%12 = neg(x=%5) : f32[1,1,32,8]\n    store @k(x=%12)\n    return %9",
			"it reads a whole cache: %12 = neg"},
		"start in a row": {"%9 = softmax(x=%8) {axis=-1} : f32[1,s0,8]\n",
			"%10 = full(shape=[8], v=%1) {scalar_type=f32} : f32[8]\n    %9 = add(a=%8, b=%10) : f32[1,s0,8]\n",
			"the position of the first row"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(smallProgram(attend), c.old, c.by, 1)
			if c.want != "" {
				require.NotEqual(t, smallProgram(attend), text)
			}
			m, err := ir.Parse(text)
			require.NoError(t, err)
			_, err = fuse.Sequences(m, ragged.Options{})
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

// smallProgram is a program of one head of attention.
func smallProgram(attend string) string {
	return `module {
  symbol s0 [1, 16]
  symbol s2 [-2147483648, 2147483647]
  constant @e : f32[20,8]
  buffer @k : f32[1,1,32,8]
  entry forward(%tokens: i64[1,s0], %input_pos: i64[s0]) {
    %0 = take(x=%input_pos, index=0) : i64[]
    %1 = item_int(x=%0) : int(s2)
    %2 = sym_size(a=%tokens) {dim=1} : int(s0)
    %3 = add_int(a=%1, b=%2) : int(s0+s2)
    %30 = embedding(indices=%tokens, weight=@e) : f32[1,s0,8]
    %31 = rope(x=%30, offset=%1) {dims=8, base=10000.0} : f32[1,s0,8]
    %4 = expand_dims(x=%31) {axis=1} : f32[1,1,s0,8]
    buffer_slice_update @k(update=%4, axis=2, start=%1, stop=%3)
    %5 = load @k() : f32[1,1,32,8]
    %6 = load @k() : f32[1,1,32,8]
` + attend + `    %8 = reshape(x=%7, shape=[1, -1, 8]) : f32[1,s0,8]
    %9 = softmax(x=%8) {axis=-1} : f32[1,s0,8]
    return %9: f32[1,s0,8]
  }
}
`
}
