package report

import (
	"github.com/etc-ml/etc/ir"
)

// memoryPoint is the memory of temporaries while one operation runs.
type memoryPoint struct {
	Operation string `json:"operation"`
	Bytes     int64  `json:"bytes"`
}

// Peak returns the most that the temporaries of the entry take at once, in bytes, for a call of tokens tokens that
// ends at position end.
func Peak(m *ir.Module, tokens, end int64) int64 { return peak(memoryCurve(m, tokens, end)) }

// memoryCurve returns the bytes of temporaries in use at each operation of the entry, for calls of tokens tokens that
// end at position end. An if needs what its larger arm needs.
func memoryCurve(m *ir.Module, tokens, end int64) []memoryPoint {
	value := func(s *ir.Symbol) (int64, bool) {
		for _, p := range m.Entry.Params {
			for _, d := range p.Type.Shape {
				if own, ok := d.Symbol(); ok && own == s {
					return tokens, true
				}
			}
		}
		return min(max(end-tokens, s.Lo), s.Hi), true // the position, which item_int reads
	}
	return regionCurve(m.Entry.Body, value)
}

func regionCurve(r *ir.Region, value func(*ir.Symbol) (int64, bool)) []memoryPoint {
	var out []memoryPoint
	live := int64(0)
	ends := ir.LastUses(r, r.Results)
	for i, op := range r.Ops {
		for _, v := range op.Results {
			live += bytesOf(v, value)
		}
		inner := int64(0)
		for _, n := range op.Regions {
			inner = max(inner, peak(regionCurve(n, value)))
		}
		out = append(out, memoryPoint{op.Def.Name, live + inner})
		for _, v := range ends[i] {
			live -= bytesOf(v, value)
		}
	}
	return out
}

// bytesOf returns the size of a value; a load is its buffer, an int takes a register.
func bytesOf(v *ir.Value, value func(*ir.Symbol) (int64, bool)) int64 {
	if v.Type.Kind != ir.TensorKind || v.Def == nil || v.Def.Def.Effect == ir.Reads {
		return 0
	}
	n := int64(v.Type.DType.Size())
	for _, d := range v.Type.Shape {
		x, err := d.Eval(value)
		if err != nil || x < 0 {
			return 0
		}
		n *= x
	}
	return n
}

func peak(curve []memoryPoint) int64 {
	most := int64(0)
	for _, p := range curve {
		most = max(most, p.Bytes)
	}
	return most
}
