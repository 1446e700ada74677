package execfuzz

import (
	"math"
	"math/rand/v2"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// maxTensor is the largest number of elements of a tensor in a mutant that is executed. Larger ones show nothing
// more, and take long.
const maxTensor = 1 << 18

// maxRows is the largest size of a symbolic dim of an input.
const maxRows = 6

// tooLarge reports whether a tensor of the module is too large for a mutant that is executed. open says that sizes of
// tensors depend on values that are known only when it runs.
func tooLarge(m *ir.Module) (large, open bool) {
	check := func(t ir.Type) {
		n := int64(1)
		for _, d := range t.Shape {
			_, hi := d.Bounds()
			if c, ok := d.Const(); ok {
				hi = c
			}
			if _, fixed := d.Const(); !fixed && hi > 1<<12 {
				open = true
				hi = 64
			}
			if hi < 0 {
				hi = 0
			}
			if hi > 0 && n > maxTensor/hi {
				large = true
				return
			}
			n *= hi
		}
	}
	var look func(r *ir.Region)
	look = func(r *ir.Region) {
		for _, op := range r.Ops {
			for _, v := range op.Results {
				check(v.Type)
			}
			for _, inner := range op.Regions {
				look(inner)
			}
		}
	}
	for _, b := range m.Buffers {
		check(b.Type)
	}
	for _, p := range m.Entry.Params {
		check(p.Type)
	}
	if m.Init != nil {
		look(m.Init)
	}
	look(m.Entry.Body)
	return large, open
}

// inputs makes arguments for a module. Equal symbols have equal sizes, ids are small, positions mostly follow each
// other, and a few numbers are wild: NaN, infinite or huge.
func inputs(m *ir.Module, r *rand.Rand, call int, open bool) []eval.Value {
	sizes := map[*ir.Symbol]int{}
	wild := r.IntN(4) == 0
	out := make([]eval.Value, len(m.Entry.Params))
	for i, p := range m.Entry.Params {
		if p.Type.Kind == ir.IntKind {
			out[i].Int = integer(r, wild && !open)
			continue
		}
		shape, n := make([]int, len(p.Type.Shape)), 1
		for j, d := range p.Type.Shape {
			shape[j] = size(d, sizes, r)
			n *= shape[j]
		}
		out[i].Tensor = tensor(p.Type.DType, shape, n, r, call, wild, open)
	}
	return out
}

// size returns the size of a dim.
func size(d *ir.Expr, sizes map[*ir.Symbol]int, r *rand.Rand) int {
	if c, ok := d.Const(); ok {
		return int(c)
	}
	lo, hi := d.Bounds()
	most := int(min(hi, maxRows))
	n := most
	if least := int(min(max(lo, 0), int64(most))); r.IntN(8) > 0 {
		n = least + r.IntN(most-least+1)
	} else if most > 0 {
		n = min(1, most)
	}
	if s, ok := d.Symbol(); ok {
		if known, ok := sizes[s]; ok {
			return known
		}
		sizes[s] = n
	}
	return n
}

func integer(r *rand.Rand, wild bool) int64 {
	if wild && r.IntN(4) == 0 {
		return []int64{math.MaxInt32, math.MinInt32, -1, 1 << 20, math.MaxInt64, math.MinInt64}[r.IntN(6)]
	}
	if r.IntN(6) == 0 {
		return int64(r.IntN(12)) - 4
	}
	return int64(r.IntN(4))
}

func tensor(d ir.DType, shape []int, n int, r *rand.Rand, call int, wild, open bool) *eval.Tensor {
	if d.IsFloat() {
		v := make([]float32, n)
		scale := []float64{1, 1, 1, 0.01, 100}[r.IntN(5)]
		for i := range v {
			v[i] = float32(r.NormFloat64() * scale)
			if wild && r.IntN(16) == 0 {
				v[i] = []float32{0, 1, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()),
					3e38, 1e-40}[r.IntN(7)]
			}
		}
		t, err := eval.Decode(d, shape, eval.Floats(d, shape, v).Encode())
		if err != nil {
			panic(err)
		}
		return t
	}
	v := make([]int64, n)
	positions := len(shape) == 1 && r.IntN(4) > 0
	for i := range v {
		v[i] = integer(r, wild && !open)
		if positions {
			v[i] = int64(call + i)
		}
	}
	t, err := eval.Decode(d, shape, eval.Ints(d, shape, v).Encode())
	if err != nil {
		panic(err)
	}
	return t
}
