package cpu

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
)

// ropeKey identifies the angles of a rope. Usually all layers have the same ones.
type ropeKey struct {
	offset *slot
	freqs  *slot
	attrs  ir.RopeAttrs
	steps  int
}

// ropeTable holds the cosines and sines of the angles, [steps, dims/2].
type ropeTable struct{ cos, sin *slot }

// bindRope rotates pairs of x [B, H, T, D] by angles that depend on the position of the first token.
func bindRope(b *binder) bool {
	offset := b.register("offset")
	if offset == nil {
		return false
	}
	return b.rotate(offset.slot, func(i int) float32 { return float32(i) + float32(int32(offset.slot.n)) })
}

// bindRopeRows rotates pairs of x [1, H, R, D] by angles that depend on the position of each row.
func bindRopeRows(b *binder) bool {
	positions, ok := b.table("positions")
	if !ok {
		return false
	}
	return b.rotate(positions.slot, func(i int) float32 { return float32(positions.ints()[i]) })
}

// rotate rotates pairs of x [B, H, T, D]. position returns the position of index i of T, from the content of the slot
// from.
func (b *binder) rotate(from *slot, position func(i int) float32) bool {
	attrs, x := *ir.Attrs[ir.RopeAttrs](b.Op), b.Input("x")
	if x == nil || !x.isFloats() || len(x.shape) != 4 || x.shape[3] > 1 && x.stride[3] != 1 {
		return false
	}
	width, dims := x.shape[3], attrs.Dims
	if dims <= 0 || dims%2 != 0 || dims > width {
		return false
	}
	if shape, ok := b.Dims(b.Op.Result().Type); !ok || !slices.Equal(shape, x.shape) || overlaps(x) {
		return false
	}
	table := b.ropeTable(attrs, x.shape[2], from, position)
	if table == nil {
		return false
	}
	out := b.result(0, x.inOrder())
	turn := kernel.Rotate
	if attrs.Traditional {
		turn = kernel.RotatePairs
	}
	half, heads, steps := dims/2, x.shape[1], x.shape[2]
	table.cos.Last, table.sin.Last = len(b.plan.steps), len(b.plan.steps)
	// One index of the loop is a token of one row of the batch, with all its heads.
	b.do("rope", b.parallel(x.shape[0]*steps, max(1, elementGrain/(heads*width)), func(lo, hi int) {
		in, dst := x.floats(), out.slot.f
		for i := lo; i < hi; i++ {
			n, t := i/steps, i%steps
			cos, sin := table.cos.f[t*half:(t+1)*half], table.sin.f[t*half:(t+1)*half]
			for h := range heads {
				from, to := n*x.stride[0]+h*x.stride[1]+t*x.stride[2], n*out.stride[0]+h*out.stride[1]+t*out.stride[2]
				copy(dst[to:to+width], in[from:from+width])
				turn(dst[to:to+dims], cos, sin)
			}
		}
	}))
	return true
}

// ropeTable binds the computation of a table of angles, once for each key, as the reference kernel computes them:
// position·scale / freq in float32.
func (b *binder) ropeTable(attrs ir.RopeAttrs, steps int, from *slot, position func(i int) float32) *ropeTable {
	key := ropeKey{offset: from, attrs: attrs, steps: steps}
	half := attrs.Dims / 2
	inverse := make([]float32, half)
	if b.Op.Input("freqs") != nil {
		freqs := b.vector("freqs", half)
		if freqs == nil {
			return nil
		}
		key.freqs = b.Input("freqs").slot
		for i, f := range freqs {
			inverse[i] = 1 / f
		}
	} else {
		step := numeric.Log32(attrs.Base) / float32(half)
		for i := range inverse {
			inverse[i] = numeric.Exp32(-float32(i) * step)
		}
	}
	if t := b.ropes[key]; t != nil {
		return t
	}
	t := &ropeTable{b.scratch(steps * half), b.scratch(steps * half)}
	b.do("angles", b.parallel(steps, max(1, 512/half), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			angle := position(i) * attrs.Scale
			for j, f := range inverse {
				s, c := numeric.Sincos32(angle * f)
				t.sin.f[i*half+j], t.cos.f[i*half+j] = s, c
			}
		}
	}))
	b.ropes[key] = t
	return t
}
