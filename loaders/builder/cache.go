package builder

import (
	"github.com/etc-ml/etc/ir"
)

// maxBufferBytes is the largest buffer that the MLX delegate makes.
const maxBufferBytes = int64(4) << 30

// Buffer makes a buffer, which starts as zeros.
func (g *Graph) Buffer(name string, d ir.DType, shape ...int) *ir.Buffer {
	dims := int64s(shape)
	// Dims are below 2^31; a product of four would overflow, a float64 tells its size well enough.
	bytes := float64(d.Size())
	for _, n := range dims {
		bytes *= float64(n)
	}
	if bytes > float64(maxBufferBytes) {
		g.Fail("max_seq_len %d makes the buffer %s %.0f bytes large, expected at most %d; choose a smaller max_seq_len",
			g.Options.MaxSeqLen, name, bytes, maxBufferBytes)
	}
	return g.Module.NewBuffer(name, ir.StaticType(d, dims...))
}

// Store writes x to a buffer.
func (g *Graph) Store(b *ir.Buffer, x *ir.Value) { g.BufferOp("store", b, nil, x) }

// KeyCache and ValueCache end the names of caches, after the prefix of their layer.
const (
	KeyCache   = ".k_cache"
	ValueCache = ".v_cache"
)

// KeysValues are keys and values as attention reads them from its caches, those of the call included.
type KeysValues struct {
	keys, values *ir.Value
	mask         *ir.Value // nil for causal attention over all of them
}

// Attend is causal attention of q [1,H,S,D] over all positions so far, k and v [1,Hkv,S,D] of the new
// ones included, which go to caches of max_seq_len positions. It gives [1,H,S,D].
func (g *Graph) Attend(prefix string, q, k, v *ir.Value, scale float64) *ir.Value {
	return g.AttendTo(q, g.Cached(prefix, k, v), scale)
}

// AttendTo is attention of q [1,H,S,D] to keys and values, whose layer may be an earlier one: the call's positions are
// the same in all layers.
func (g *Graph) AttendTo(q *ir.Value, kv KeysValues, scale float64) *ir.Value {
	if kv.mask == nil {
		return g.Value("sdpa", &ir.SdpaAttrs{Scale: float32(scale), Causal: true}, q, kv.keys, kv.values)
	}
	return g.Value("sdpa", &ir.SdpaAttrs{Scale: float32(scale)}, q, kv.keys, kv.values, kv.mask)
}

// Cached writes k and v [1,Hkv,S,D] of the new positions to caches of max_seq_len positions.
func (g *Graph) Cached(prefix string, k, v *ir.Value) KeysValues {
	cached := func(name string, x *ir.Value) *ir.Value {
		b := g.cache(prefix+name, x, g.Options.MaxSeqLen)
		g.BufferOp("buffer_slice_update", b, nil, x, 2, g.Position, g.End)
		return g.Slice(g.Load(b), 2, 0, g.End)
	}
	return KeysValues{cached(KeyCache, k), cached(ValueCache, v), nil}
}

// cache makes a cache with a number of slots for x [1,heads,S,D].
func (g *Graph) cache(name string, x *ir.Value, slots int) *ir.Buffer {
	heads, _ := x.Type.Shape[1].Const()
	dim, _ := x.Type.Shape[3].Const()
	return g.Buffer(name, x.Type.DType, 1, int(heads), slots, int(dim))
}

// ring is what the caches of all sliding layers share in a call: where the new positions go, and which
// slots each query sees. Position p lies in slot p mod slots. As many positions as the window has must
// survive the write of a whole chunk: slots = window + chunk - 1.
type ring struct {
	window, slots int
	// The new positions go to slots [start, stop), and what does not fit before the end, from the
	// fit-th token on, to [0, rest).
	start, stop, fit, rest *ir.Value
	mask                   *ir.Value // bool[S,slots]
}

// AttendWindow is attention of q [1,H,S,D] over the last window positions, including each query's own. k and v
// [1,Hkv,S,D] are the keys and values of the new positions.
func (g *Graph) AttendWindow(prefix string, q, k, v *ir.Value, scale float64, window int) *ir.Value {
	return g.AttendTo(q, g.CachedWindow(prefix, k, v, window), scale)
}

// CachedWindow writes k and v [1,Hkv,S,D] of the new positions to caches of the last ones, of which a query sees
// window, its own included. All sliding layers have one window.
func (g *Graph) CachedWindow(prefix string, k, v *ir.Value, window int) KeysValues {
	if g.ring == nil {
		g.ring = g.newRing(window)
	}
	r := g.ring
	if r.window != window {
		g.Fail("%s: expected the window of the other sliding layers, %d, found %d", prefix, r.window, window)
	}
	cached := func(name string, x *ir.Value) *ir.Value {
		b := g.cache(prefix+name, x, r.slots)
		g.BufferOp("buffer_slice_update", b, nil, g.Slice(x, 2, 0, r.fit), 2, r.start, r.stop)
		g.BufferOp("buffer_slice_update", b, nil, g.Slice(x, 2, r.fit, ToEnd), 2, 0, r.rest)
		return g.Load(b)
	}
	return KeysValues{cached(KeyCache, k), cached(ValueCache, v), r.mask}
}

func (g *Graph) newRing(window int) *ring {
	r := &ring{window: window, slots: window + g.Options.MaxPrefillChunk - 1}
	r.start = g.Value("mod_int", nil, g.Position, r.slots)
	room := g.Value("subtract_int", nil, r.slots, r.start)
	// There is no minimum of ints: the tokens that fit are counted.
	r.fit = g.Value("sym_size", &ir.SymSizeAttrs{Dim: 1}, g.Slice(g.Tokens, 1, 0, room))
	r.stop = g.Value("add_int", nil, r.start, r.fit)
	r.rest = g.Value("subtract_int", nil, g.Length, r.fit)
	r.mask = g.windowMask(r)
	return r
}

// windowMask tells for the S queries which slots they see. With last the newest position, a slot j ≤ last
// holds the position that is (last - j) mod slots before last; a slot j > last is still empty, and its
// negative distance keeps it out of sight. Query i is S-1-i before last, so the slot's position is its
// distance less that before the query's own, and seen if it is 0 to window - 1 before.
func (g *Graph) windowMask(r *ring) *ir.Value {
	i32 := ir.I32
	zero := g.Scalar(i32, 0)
	last := g.Value("subtract_int", nil, g.End, 1)
	slots := g.Value("arange", &ir.OptionalDTypeAttrs{ScalarType: &i32}, 0, r.slots, 1)
	distance := g.Value("subtract", nil, g.Value("full", &ir.DTypeAttrs{ScalarType: i32}, []int64{}, last), slots)
	wrapped := g.Value("remainder", nil, distance, g.Scalar(i32, float64(r.slots)))
	distance = g.Value("where", nil, g.Value("less", nil, distance, zero), distance, wrapped)
	query := g.Value("arange", &ir.OptionalDTypeAttrs{ScalarType: &i32}, g.Value("subtract_int", nil, g.Length, 1), -1,
		-1)
	before := g.Value("subtract", nil, distance, g.Value("expand_dims", &ir.AxisAttrs{Axis: 1}, query))
	return g.Value("logical_and", nil,
		g.Value("greater_equal", nil, before, zero),
		g.Value("less", nil, before, g.Scalar(i32, float64(r.window))))
}
