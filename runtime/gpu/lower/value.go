package lower

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// shape returns the dims of a tensor, or nil where they are not known or v is not a tensor.
func shape(v *ir.Value) []int {
	if v == nil || v.Type.Kind != ir.TensorKind {
		return nil
	}
	dims, ok := plan.Sizes{}.Dims(v.Type)
	if !ok {
		return nil
	}
	return dims
}

// width returns the last dim, or 0.
func width(v *ir.Value) int {
	if dims := shape(v); len(dims) > 0 {
		return dims[len(dims)-1]
	}
	return 0
}

// elements returns the number of elements of a tensor of known shape, or 0.
func elements(v *ir.Value) int {
	dims := shape(v)
	if dims == nil {
		return 0
	}
	return strided.Elements(dims)
}

// isVector reports whether v is a constant vector of n floats, such as the weight of a norm.
func isVector(v *ir.Value, n int) bool {
	return v.Constant != nil && v.Type.DType.IsFloat() && v.Type.Rank() == 1 && v.Type.Shape[0].IsConst(int64(n))
}

// isConstant reports whether v is stored in the file or computed from stored values.
func isConstant(v *ir.Value) bool {
	return v != nil && v.Def == nil && v.Param == "" && v.Region == nil
}

// like returns v, reshaped to another type with the same number of elements.
func like(b *ir.Builder, v *ir.Value, t ir.Type) *ir.Value {
	if !slices.EqualFunc(v.Type.Shape, t.Shape, (*ir.Expr).Equal) {
		dims, ok := t.Static()
		if !ok {
			b.Fail("a value of type %s, want a shape that is known", t)
		}
		v = b.Value("reshape", nil, v, dims)
	}
	if v.Type.DType != t.DType {
		v = b.Value("astype", &ir.DTypeAttrs{ScalarType: t.DType}, v)
	}
	return v
}

// reshaped returns v in the given shape, or v itself if it has that shape.
func reshaped(b *ir.Builder, v *ir.Value, dims []int) *ir.Value {
	t := ir.Type{DType: v.Type.DType, Shape: make([]*ir.Expr, len(dims))}
	for i, n := range dims {
		t.Shape[i] = ir.Const(int64(n))
	}
	return like(b, v, t)
}

// shapedAs returns v in the shape of another value.
func shapedAs(b *ir.Builder, v, as *ir.Value) *ir.Value {
	return like(b, v, ir.TensorType(v.Type.DType, as.Type.Shape...))
}

// numbers returns the layout of a value that kernels read as float32. It may be the content of a buffer.
func (g *graph) numbers(v *ir.Value) (Layout, bool) {
	if v == nil || v.Type.Kind != ir.TensorKind || !v.Type.DType.IsFloat() {
		return Layout{}, false
	}
	l, ok := g.Layout(v)
	if ok && l.isLoad() {
		var stored kernels.DType
		stored, ok = CacheType(l.Base.Def.Buffer, g.Precision)
		ok = ok && stored == kernels.F32
	}
	if !ok {
		return Layout{}, false
	}
	return l, true
}

// floats returns the layout of a value that lies on the device as float32 and is not the content of a buffer.
func (g *graph) floats(v *ir.Value) (Layout, bool) {
	l, ok := g.numbers(v)
	if !ok || l.isLoad() {
		return Layout{}, false
	}
	return l, true
}

// maxHost is the largest number of integers that the host computes with before a call.
const maxHost = 1 << 16

// known reports whether the host knows an argument before the first kernel of a call runs: it depends on the inputs
// through operations on a few numbers.
func known(a ir.Arg) bool {
	if a.Kind != ir.ValueArg {
		return true
	}
	v := a.Value
	if v == nil {
		return false
	}
	if v.Type.Kind == ir.TensorKind {
		if dims := shape(v); dims == nil || strided.Elements(dims) > maxHost {
			return false
		}
	}
	if v.Def == nil {
		return v.Region == nil
	}
	if v.Def.Buffer != nil || v.Def.Def.Effect != ir.Pure || len(v.Def.Regions) > 0 {
		return false
	}
	ok := true
	v.Def.EachArg(func(a *ir.Arg) { ok = ok && known(*a) })
	return ok
}
