package builder

import "github.com/etc-ml/etc/ir"

// Method is a method of a module beside forward.
type Method struct {
	Name string
	// Single tells that a call has one row, and not up to the largest prefill chunk.
	Single bool
	// Make builds everything between tokens and input_pos, which the graph has, and the results, which it returns.
	Make func(*Graph) []*ir.Value
}

// Draft is the name of the method that drafts tokens:
//
//	draft(tokens i64[1,S], input_pos i64[S], hidden f32[1,S,H], …) → logits f32[1,V], hidden f32[1,S,H]
//
// Logits are those of the last row. Hidden states are float32 whatever the dtype of activations is, so that a caller
// that computes in float32 loses nothing on the way in and out.
const Draft = "draft"

// method adds a method to the module. It has inputs of its own and shares constants and buffers.
func (g *Graph) method(x Method) {
	f := &ir.Func{Name: x.Name, Body: &ir.Region{}}
	g.Module.More = append(g.Module.More, f)
	n := &Graph{Builder: ir.Builder{Module: g.Module, Region: f.Body}, DType: g.DType, Options: g.Options, Func: f,
		constants: g.constants}
	n.single = x.Single
	n.inputs()
	n.results(x.Make(n)...)
}

// rows makes the number of rows of an input. Inputs of one method have symbols of their own, as in a file.
func (g *Graph) rows() *ir.Expr {
	if g.single {
		return ir.Const(1)
	}
	return ir.Sym(&ir.Symbol{Lo: 1, Hi: int64(g.Options.MaxPrefillChunk)})
}

// Hidden declares the input hidden f32[1,S,width] and gives it in the dtype of activations.
func (g *Graph) Hidden(width int) *ir.Value {
	h := g.Func.NewParam("hidden", ir.TensorType(ir.F32, ir.Const(1), g.rows(), ir.Const(int64(width))))
	return g.Cast(h, g.DType)
}

// LastRow returns the last row [1,H] of x [1,S,H].
func (g *Graph) LastRow(x *ir.Value) *ir.Value { return g.Value("take", &ir.AxisAttrs{Axis: 1}, x, -1) }

// CacheInput declares an input that stands for a cache of forward: it has the buffer's name, dtype and shape. Who runs
// both methods lets it read the buffer; see runtime/speculate.
func (g *Graph) CacheInput(name string) *ir.Value {
	for _, b := range g.Module.Buffers {
		if b.Name == name {
			return g.Func.NewParam(name, b.Type)
		}
	}
	g.Fail("forward has no buffer %s, whose keys or values the draft reads", name)
	return nil
}

// Past returns the keys and values of the positions before that of the call's token, in a cache of all positions
// [1,Hkv,T,D].
func (g *Graph) Past(keys, values *ir.Value) KeysValues {
	return KeysValues{g.Slice(keys, 2, 0, g.Position), g.Slice(values, 2, 0, g.Position), nil}
}

// PastWindow returns keys and values of the last count positions before the call's token, from caches of the last
// positions ([Graph.CachedWindow]) [1,Hkv,slots,D]; slots must be at least count.
func (g *Graph) PastWindow(keys, values *ir.Value, count int) KeysValues {
	slots, _ := keys.Type.Shape[2].Const()
	if slots < int64(count) {
		g.Fail("the cache of sliding layers holds %d positions, the draft reads %d; choose a larger max_prefill_chunk",
			slots, count)
	}
	if g.past == nil {
		i32 := ir.I32
		last := g.Value("subtract_int", nil, g.Position, 1)
		all := g.Value("arange", &ir.OptionalDTypeAttrs{ScalarType: &i32}, 0, slots, 1)
		// As in windowMask: the position in slot j is that far before the last one, if it is not negative.
		distance := g.Value("subtract", nil, g.Value("full", &ir.DTypeAttrs{ScalarType: i32}, []int64{}, last), all)
		wrapped := g.Value("remainder", nil, distance, g.Scalar(i32, float64(slots)))
		seen := g.Value("logical_and", nil, g.Value("greater_equal", nil, distance, g.Scalar(i32, 0)),
			g.Value("less", nil, wrapped, g.Scalar(i32, float64(count))))
		g.past = g.Value("expand_dims", &ir.AxisAttrs{Axis: 0}, seen)
	}
	return KeysValues{keys, values, g.past}
}
