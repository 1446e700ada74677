package calibrate

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes/quantize"
)

// processBytes is the memory of the process before it calibrates: code, runtime, stacks.
const processBytes = 64 << 20

// Memory estimates the bytes that [Run] needs for a text of tokens tokens, held-out ones counted twice. It is the
// largest sum over the linears: the values of all windows that are alive, the linear's inputs and outputs, and the
// moments with the solver's memory.
func Memory(m *ir.Module, tokens int) int64 {
	const float = 4
	body := m.Entry.Body
	ends := ir.LastUses(body, body.Results)
	alive := map[*ir.Value]int64{}
	held, most := int64(0), int64(0)
	for i, op := range body.Ops {
		if hasWeights(op) {
			need := held
			op.EachArg(func(a *ir.Arg) {
				if a.Kind == ir.ValueArg && a.Value.Constant != nil && a.Value.Constant.Data != nil &&
					op.Def.Name != "embedding" {
					shape := a.Value.Constant.Data.Shape()
					rows, cols := shape[len(shape)-2], shape[len(shape)-1]
					need = max(need, held+quantize.Bytes(int(cols))+float*int64(tokens)*(cols+min(rows, cols)))
				}
			})
			most = max(most, need)
		}
		for _, v := range op.Results {
			alive[v] = valueBytes(v, tokens)
			held += alive[v]
		}
		for _, v := range ends[i] {
			held -= alive[v]
		}
	}
	return processBytes + most
}

// DamageMemory estimates the bytes that [Damage] needs for a text of tokens tokens. It counts all variants from the
// first weight on, which is twice their mean number.
func DamageMemory(m *ir.Module, tokens int, scheme func(name string, cols int) *quantize.Scheme) int64 {
	variants := 1
	for _, op := range m.Entry.Body.Ops {
		if !hasWeights(op) || op.Def.Name == "embedding" {
			continue
		}
		op.EachArg(func(a *ir.Arg) {
			if a.Kind != ir.ValueArg || a.Value.Constant == nil || a.Value.Constant.Data == nil {
				return
			}
			shape := a.Value.Constant.Data.Shape()
			if len(shape) > 1 && scheme(a.Value.Constant.Name, int(shape[len(shape)-1])) != nil {
				variants++
			}
		})
	}
	return Memory(m, variants*tokens)
}

// valueBytes returns the bytes of a value for a number of tokens. A symbolic dim stands for that number.
func valueBytes(v *ir.Value, tokens int) int64 {
	n := int64(4)
	if v.Type.Kind != ir.TensorKind {
		return n
	}
	if !v.Type.DType.IsFloat() {
		n = 8
	}
	symbolic := false
	for _, d := range v.Type.Shape {
		if c, ok := d.Const(); ok {
			n *= c
		} else if !symbolic { // a second symbolic dim is a mask's, which belongs to one call
			n, symbolic = n*int64(tokens), true
		}
	}
	return n
}
