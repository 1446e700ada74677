package plan

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/engine"
)

// Label says what a step works on, for observers.
type Label struct {
	// Name is the buffer or the weight that the step uses, "" for none.
	Name string
	// Layer is the number of the model's layer, or engine.NoLayer.
	Layer int
}

// Labels returns the label of each step of a plan. op returns the operation of a step. A step without a weight or a
// buffer belongs to the layer of the step before it.
func Labels(steps int, op func(step int) *ir.Op) []Label {
	out := make([]Label, steps)
	layer := engine.NoLayer
	for i := range out {
		name := subject(op(i))
		if name != "" {
			layer = layerOf(name)
		}
		out[i] = Label{name, layer}
	}
	return out
}

// Tokens returns the number of tokens of a call with inputs of these shapes: the largest symbolic dim of the
// parameters, or 1 where there is none.
func Tokens(params []*ir.Value, shapes [][]int) int {
	tokens := 1
	for i, v := range params {
		for j, d := range v.Type.Shape {
			if _, fixed := d.Const(); !fixed {
				tokens = max(tokens, shapes[i][j])
			}
		}
	}
	return tokens
}

// subject returns the name of the buffer, or of the largest constant, that an operation uses. Scalars do not count.
func subject(op *ir.Op) string {
	if op.Buffer != nil {
		return op.Buffer.Name
	}
	name, most := "", int64(1)
	op.EachArg(func(a *ir.Arg) {
		v := a.Value
		for v != nil && v.Def != nil {
			switch v.Def.Def.Name {
			case "quantized":
				v = v.Def.Input("packed")
				continue
			case "transpose", "astype":
				v = v.Def.Input("x")
				continue
			case "load":
				if name == "" {
					name = v.Def.Buffer.Name
				}
			}
			return
		}
		if v == nil || v.Constant == nil {
			return
		}
		if dims, ok := v.Type.Static(); ok && ir.Elements(dims) > most {
			name, most = v.Constant.Name, ir.Elements(dims)
		}
	})
	return name
}

// layerOf returns the layer's number in a name, or engine.NoLayer.
func layerOf(name string) int {
	if _, n, _, ok := ir.SplitLayer(name); ok {
		return n
	}
	return engine.NoLayer
}
