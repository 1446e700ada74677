package plan

import "github.com/etc-ml/etc/ir"

// MaxRank is the largest number of dims of planned tensors. MaxElements bounds their elements, as the reference kernels
// do.
const (
	MaxRank     = 8
	MaxElements = 1 << 30
)

// Sizes has the values of the symbols that the shapes of a call determine.
type Sizes map[*ir.Symbol]int64

// SizesOf returns the sizes for inputs of these shapes, by parameter; nil stands for an int.
func SizesOf(params []*ir.Value, shapes [][]int) Sizes {
	s := Sizes{}
	for i, p := range params {
		for j, d := range p.Type.Shape {
			if symbol, ok := d.Symbol(); ok {
				s[symbol] = int64(shapes[i][j])
			}
		}
	}
	return s
}

// Number returns the value of an expression, or false where it is known only when the plan runs.
func (s Sizes) Number(e *ir.Expr) (int, bool) {
	n, err := e.Eval(func(symbol *ir.Symbol) (int64, bool) { v, ok := s[symbol]; return v, ok })
	return int(n), err == nil
}

// Dims returns the dims of a type, or false where they are known only when the plan runs or exceed the limits of
// planned tensors.
func (s Sizes) Dims(t ir.Type) ([]int, bool) {
	out := make([]int, len(t.Shape))
	total := 1
	for i, d := range t.Shape {
		n, ok := s.Number(d)
		if !ok || n < 0 || n > 0 && total > MaxElements/n {
			return nil, false
		}
		out[i] = n
		total *= n
	}
	return out, len(out) <= MaxRank
}

// Integer returns the value of an int operand of op, if it is known now. Literals are clamped to 32 bits, as in MLX.
func (s Sizes) Integer(op *ir.Op, operand string) (int, bool) {
	a, ok := op.Arg(operand)
	switch {
	case !ok:
		return 0, false
	case a.Kind == ir.IntArg:
		return int(max(min(a.Int, 1<<31-1), -1<<31)), true
	}
	return s.Number(a.Value.Type.Int)
}

// Shapes returns the shapes of the inputs of a module for symbolic dims that are all n.
func Shapes(m *ir.Module, n int) [][]int {
	out := make([][]int, len(m.Entry.Params))
	for i, p := range m.Entry.Params {
		if p.Type.Kind == ir.IntKind {
			continue
		}
		out[i] = make([]int, p.Type.Rank())
		for j, d := range p.Type.Shape {
			if c, ok := d.Const(); ok {
				out[i][j] = int(c)
			} else {
				out[i][j] = n
			}
		}
	}
	return out
}
