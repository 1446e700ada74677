package cpu

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
	"github.com/etc-ml/etc/runtime/strided"
)

// state is the content of an ir.Buffer: floats in slot.f, or bfloat16 in half; integers in slot.i; the words of a cache
// with 8-bit codes (ir/cacherow.go) in words.
type state struct {
	dtype ir.DType
	shape []int
	size  int
	slot  *slot
	half  []byte // bfloat16, if that is the declared dtype and the precision keeps it
	words []byte // u32 words of a cache with 8-bit codes
}

func newState(b *ir.Buffer, precision eval.Precision, coded bool) (*state, error) {
	dims, _ := b.Type.Static()
	s := &state{dtype: b.Type.DType, slot: &slot{}}
	for _, d := range dims {
		s.shape = append(s.shape, int(d))
	}
	s.size = strided.Elements(s.shape)
	if len(s.shape) > maxRank || ir.Elements(dims) > 1<<32 {
		return nil, fmt.Errorf("buffer @%s has type %s; at most %d dims and 2^32 elements are supported",
			b.Name, b.Type, maxRank)
	}
	switch {
	case coded:
		s.words, s.slot.state = make([]byte, 4*s.size), s
	case !s.dtype.IsFloat():
		s.slot.i = make([]int64, s.size)
	case s.dtype == ir.BF16 && precision == eval.Mixed:
		s.half, s.slot.state = make([]byte, 2*s.size), s
	default:
		s.slot.f = make([]float32, s.size)
	}
	return s, nil
}

func (s *state) reset() {
	clear(s.slot.f)
	clear(s.slot.i)
	clear(s.half)
	clear(s.words)
}

// decode converts bfloat16 content to float32.
func (s *state) decode(dst []float32) { kernel.FromBF16(dst, s.half) }

// store sets the content, rounded to the dtype that it is stored in. t has the shape and kind of the buffer.
func (s *state) store(t *eval.Tensor) {
	switch {
	case s.words != nil:
		s.putWords(0, t.I)
	case s.half != nil:
		kernel.ToBF16(s.half, t.F)
	case s.slot.f != nil:
		copy(s.slot.f, t.F)
	default:
		copy(s.slot.i, t.I)
	}
}

// update runs the reference kernel of an operation that writes the buffer.
func (s *state) update(c *eval.Call) ([]eval.Value, error) {
	v := &value{dtype: s.dtype, slot: s.slot, shape: s.shape, stride: strided.RowMajor(s.shape)}
	if c.Op.Def.State == ir.ReplacesState {
		t := c.Args[0][0].Tensor
		if !slices.Equal(t.Shape, s.shape) {
			return nil, fmt.Errorf("store @%s: shape %v, want %v", c.Op.Buffer.Name, t.Shape, s.shape)
		}
		s.store(eval.ConvertState(t, s.dtype, c.Precision))
		return nil, nil
	}
	t := v.tensor()
	out, err := eval.Update(c, t)
	if s.half != nil || s.words != nil {
		s.store(t)
	}
	return out, err
}

// putWords writes words at a position.
func (s *state) putWords(at int, x []int64) {
	for i, v := range x {
		binary.LittleEndian.PutUint32(s.words[4*(at+i):], uint32(v))
	}
}

// getWords reads words at a position.
func (s *state) getWords(dst []int64, at int) {
	for i := range dst {
		dst[i] = int64(binary.LittleEndian.Uint32(s.words[4*(at+i):]))
	}
}

// matrix returns rows of a float buffer as a stored matrix.
func (s *state) matrix(rows, cols, first int) kernel.Matrix {
	m := kernel.Matrix{Rows: rows, Cols: cols}
	if s.half != nil {
		m.Format, m.Data = kernel.BF16, s.half[2*first:2*(first+rows*cols)]
	} else {
		m.Format, m.Data = kernel.F32, bytesOf(s.slot.f[first:first+rows*cols])
	}
	return m
}

// put writes floats at a position.
func (s *state) put(at int, x []float32) {
	if s.half != nil {
		kernel.ToBF16(s.half[2*at:2*(at+len(x))], x)
		return
	}
	copy(s.slot.f[at:], x)
}

// get reads floats at a position.
func (s *state) get(dst []float32, at int) {
	if s.half != nil {
		kernel.FromBF16(dst, s.half[2*at:2*(at+len(dst))])
		return
	}
	copy(dst, s.slot.f[at:])
}

// bindLoad binds a load. The result is the buffer's own memory if nothing writes that while it is used, else a copy.
func bindLoad(b *binder) bool {
	s := b.x.states[b.Op.Buffer]
	v := &value{dtype: s.dtype, slot: s.slot, shape: s.shape, stride: strided.RowMajor(s.shape)}
	if b.InPlaceLoads[b.Op] {
		b.Values[b.Op.Result()] = v
		return true
	}
	if !s.dtype.IsFloat() {
		return false
	}
	out := b.result(0, nil)
	b.do("load", func() { s.get(out.slot.f[:s.size], 0) })
	return true
}

// floatState returns the buffer of the operation, if its kernels store it in float32 or bfloat16. A float16 buffer with
// precision mixed is rounded, which only the reference kernels do.
func (b *binder) floatState() *state {
	s := b.x.states[b.Op.Buffer]
	if !s.dtype.IsFloat() || b.x.exe.precision == eval.Mixed && s.half == nil && s.dtype != ir.F32 {
		return nil
	}
	return s
}

func bindStore(b *binder) bool {
	s, v := b.floatState(), b.Input("x")
	if s != nil && s.half != nil && v != nil && v.slot.state != nil && v.slot.state.half != nil && v.isDense() &&
		slices.Equal(v.shape, s.shape) {
		from := v.slot.state
		b.do("store", func() { copy(s.half, from.half) })
		return true
	}
	if s == nil || v == nil || !v.isFloats() || !slices.Equal(v.shape, s.shape) {
		return false
	}
	v = b.denseFloats(v)
	b.do("store", func() { s.put(0, v.floats()[:s.size]) })
	return true
}

// updateRows returns the state and the update of an operation that writes rows [B, H, S, D] to a buffer [B, H, R, D]
// along axis 2.
func (b *binder) updateRows(axis int) (s *state, u *value, ok bool) {
	s, u = b.floatState(), b.Input("update")
	if s == nil || u == nil || !u.isFloats() || len(s.shape) != 4 || len(u.shape) != 4 || axis != 2 && axis != -2 ||
		u.shape[0] != s.shape[0] || u.shape[1] != s.shape[1] || u.shape[3] != s.shape[3] ||
		u.shape[3] > 1 && u.stride[3] != 1 {
		return nil, nil, false
	}
	return s, u, true
}

// writeRows writes row i of every head to the slot that place returns.
func (s *state) writeRows(u *value, place func(i int) int) {
	slots, width, data := s.shape[2], s.shape[3], u.floats()
	for n := range u.shape[0] {
		for h := range u.shape[1] {
			for i := range u.shape[2] {
				from := n*u.stride[0] + h*u.stride[1] + i*u.stride[2]
				s.put(((n*s.shape[1]+h)*slots+place(i))*width, data[from:from+width])
			}
		}
	}
}

// bindSliceUpdate binds the write of keys or values at a position. Positions that count from the end, or lie beyond it,
// are left to the reference kernel.
func bindSliceUpdate(b *binder) bool {
	axis, ok := b.Integer("axis")
	s, u, ok2 := b.updateRows(axis)
	start, stop := b.register("start"), b.register("stop")
	if !ok || !ok2 || ir.Attrs[ir.StepAttrs](b.Op).Step != 1 || start == nil || stop == nil {
		return false
	}
	other, err := b.evaluator(b.Op)
	if err != nil {
		return false
	}
	b.step("cache write", func() error {
		from, to := int(start.slot.n), int(stop.slot.n)
		if from < 0 || to > s.shape[2] || to-from != u.shape[2] {
			return other()
		}
		s.writeRows(u, func(i int) int { return from + i })
		return nil
	})
	return true
}

// bindRingUpdate binds the write of keys or values at positions modulo the number of slots.
func bindRingUpdate(b *binder) bool {
	s, u, ok := b.updateRows(ir.Attrs[ir.AxisAttrs](b.Op).Axis)
	start := b.register("start")
	if !ok || start == nil {
		return false
	}
	other, err := b.evaluator(b.Op)
	if err != nil {
		return false
	}
	b.step("cache write", func() error {
		from, slots := int(start.slot.n), s.shape[2]
		if from < 0 || u.shape[2] > slots {
			return other()
		}
		s.writeRows(u, func(i int) int { return (from + i) % slots })
		return nil
	})
	return true
}

// register returns the value of an int operand.
func (b *binder) register(operand string) *value {
	a, ok := b.Op.Arg(operand)
	switch {
	case !ok:
		return nil
	case a.Kind == ir.IntArg:
		return &value{kind: register, slot: &slot{n: a.Int}}
	}
	if v := b.Input(operand); v != nil && v.kind == register {
		return v
	}
	return nil
}
