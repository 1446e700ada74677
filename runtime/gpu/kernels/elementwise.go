package kernels

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Extent is a number that may change from call to call: Fixed + Token·T + Position·p for T tokens from position p on.
type Extent struct{ Fixed, Token, Position int }

// Fixed is an extent that does not change.
func Fixed(n int) Extent { return Extent{Fixed: n} }

// PerToken returns the extent n·T.
func PerToken(n int) Extent { return Extent{Token: n} }

// At returns the value of the extent for a call.
func (e Extent) At(tokens, position int) int { return e.Fixed + e.Token*tokens + e.Position*position }

// Times returns the product of two extents, one of which must be fixed.
func (e Extent) Times(f Extent) (Extent, error) {
	if f.Token != 0 || f.Position != 0 {
		e, f = f, e
	}
	if f.Token != 0 || f.Position != 0 {
		return Extent{}, fmt.Errorf("the product of %+v and %+v grows faster than the tokens", e, f)
	}
	return Extent{e.Fixed * f.Fixed, e.Token * f.Fixed, e.Position * f.Fixed}, nil
}

// text returns the extent as an expression of the kernel's source.
func (e Extent) text() string {
	parts := []string{fmt.Sprint(e.Fixed)}
	if e.Token != 0 {
		parts = append(parts, fmt.Sprintf("%d * tokens", e.Token))
	}
	if e.Position != 0 {
		parts = append(parts, fmt.Sprintf("%d * position", e.Position))
	}
	return "(" + strings.Join(parts, " + ") + ")"
}

// Box is the shape of an elementwise launch: up to four dims, the last one the innermost. Missing dims are 1.
type Box []Extent

// dims returns all four dims.
func (b Box) dims() (out [4]Extent) {
	for i := range out {
		out[i] = Fixed(1)
	}
	copy(out[4-len(b):], b)
	return out
}

// Place is the layout of an operand of an elementwise launch: its dtype, its first element, and its strides along the
// dims of the box, in elements. Stride 0 repeats an element.
type Place struct {
	DType   DType
	First   Extent
	Strides []Extent
}

// Dense returns the layout of an operand whose elements are contiguous in the order of the box, from first on.
func (b Box) Dense(d DType, first Extent) (Place, error) {
	p := Place{DType: d, First: first, Strides: make([]Extent, len(b))}
	size := Fixed(1)
	for i := len(b) - 1; i >= 0; i-- {
		p.Strides[i] = size
		next, err := size.Times(b[i])
		if err != nil && i > 0 {
			return Place{}, err
		}
		size = next
	}
	return p, nil
}

// Elementwise applies a function to the elements of up to three operands over a box.
type Elementwise struct {
	// Op is one of the names that Operations returns.
	Op  string
	Box Box
	In  []Place
	Out Place
	// Start and Step are the arguments of arange. Value is the argument of full.
	Start Extent
	Step  int
	Value float32
}

// operation is a function as the kernel's source and as Go code. A function that is not for integers computes in fp32.
type operation struct {
	arity     int
	text      string
	reference func(a, b, c float64) float64
	float     bool
}

func unary(text string, f func(a float64) float64) operation {
	return operation{1, text, func(a, _, _ float64) float64 { return f(a) }, true}
}

func binary(text string, f func(a, b float64) float64) operation {
	return operation{2, text, func(a, b, _ float64) float64 { return f(a, b) }, false}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func glu(a Activation) operation {
	o := binary(fmt.Sprintf("(port_activate(%d, a) * b)", int(a)), func(x, y float64) float64 { return a.of(x) * y })
	o.float = true
	return o
}

// operations is the table of functions, by the names of the graph's operations. copy is also used for casts.
var operations = map[string]operation{
	"copy":   {1, "(a)", func(a, _, _ float64) float64 { return a }, false},
	"neg":    {1, "(-a)", func(a, _, _ float64) float64 { return -a }, false},
	"abs":    {1, "(a < 0 ? -a : a)", func(a, _, _ float64) float64 { return math.Abs(a) }, false},
	"square": {1, "(a * a)", func(a, _, _ float64) float64 { return a * a }, false},
	"sign": {1, "EW_T(a > 0 ? 1 : (a < 0 ? -1 : 0))",
		func(a, _, _ float64) float64 { return truth(a > 0) - truth(a < 0) }, false},
	"logical_not": {1, "EW_T(a == 0 ? 1 : 0)", func(a, _, _ float64) float64 { return truth(a == 0) }, false},
	"floor":       unary("floor(a)", math.Floor),
	"exp":         unary("precise::exp(a)", math.Exp),
	"log":         unary("precise::log(a)", math.Log),
	"sqrt":        unary("precise::sqrt(a)", math.Sqrt),
	"rsqrt":       unary("(1.0f / precise::sqrt(a))", func(a float64) float64 { return 1 / math.Sqrt(a) }),
	"reciprocal":  unary("(1.0f / a)", func(a float64) float64 { return 1 / a }),
	"sin":         unary("precise::sin(a)", math.Sin),
	"cos":         unary("precise::cos(a)", math.Cos),
	"tanh":        unary("port_tanh(a)", math.Tanh),
	"erf":         unary("port_erf(a)", math.Erf),
	"sigmoid":     unary("port_sigmoid(a)", Sigmoid.of),
	"silu":        unary("port_silu(a)", SiLU.of),
	"gelu":        unary("port_gelu(a)", GELU.of),
	"gelu_tanh":   unary("port_gelu_tanh(a)", GELUTanh.of),
	"softplus": unary("(max(a, 0.0f) + port_log1p(precise::exp(-fabs(a))))",
		func(a float64) float64 { return max(a, 0) + math.Log1p(math.Exp(-math.Abs(a))) }),

	"add":           binary("(a + b)", func(a, b float64) float64 { return a + b }),
	"subtract":      binary("(a - b)", func(a, b float64) float64 { return a - b }),
	"multiply":      binary("(a * b)", func(a, b float64) float64 { return a * b }),
	"maximum":       binary("(a > b || a != a ? a : b)", math.Max),
	"minimum":       binary("(a < b || a != a ? a : b)", math.Min),
	"equal":         binary("EW_T(a == b ? 1 : 0)", func(a, b float64) float64 { return truth(a == b) }),
	"not_equal":     binary("EW_T(a != b ? 1 : 0)", func(a, b float64) float64 { return truth(a != b) }),
	"less":          binary("EW_T(a < b ? 1 : 0)", func(a, b float64) float64 { return truth(a < b) }),
	"less_equal":    binary("EW_T(a <= b ? 1 : 0)", func(a, b float64) float64 { return truth(a <= b) }),
	"greater":       binary("EW_T(a > b ? 1 : 0)", func(a, b float64) float64 { return truth(a > b) }),
	"greater_equal": binary("EW_T(a >= b ? 1 : 0)", func(a, b float64) float64 { return truth(a >= b) }),
	"logical_and": binary("EW_T(a != 0 && b != 0 ? 1 : 0)",
		func(a, b float64) float64 { return truth(a != 0 && b != 0) }),
	"logical_or": binary("EW_T(a != 0 || b != 0 ? 1 : 0)",
		func(a, b float64) float64 { return truth(a != 0 || b != 0) }),
	"divide": {2, "(a / b)", func(a, b, _ float64) float64 { return a / b }, true},
	"power":  {2, "precise::pow(a, b)", func(a, b, _ float64) float64 { return math.Pow(a, b) }, true},
	"logaddexp": {2, "(max(a, b) + (a == b ? 0.69314718f : port_log1p(precise::exp(-fabs(a - b)))))",
		func(a, b, _ float64) float64 { return max(a, b) + math.Log1p(math.Exp(-math.Abs(a-b))) }, true},
	"softcap":       {2, "(port_tanh(a / b) * b)", func(a, b, _ float64) float64 { return math.Tanh(a/b) * b }, true},
	"glu_silu":      glu(SiLU),
	"glu_sigmoid":   glu(Sigmoid),
	"glu_gelu":      glu(GELU),
	"glu_gelu_tanh": glu(GELUTanh),

	"where": {3, "(a != 0 ? b : c)", func(a, b, c float64) float64 {
		if a != 0 {
			return b
		}
		return c
	}, false},
	"gated_add": {3, "(port_sigmoid(a) * b + c)", func(a, b, c float64) float64 { return Sigmoid.of(a)*b + c }, true},
	"clip": {3, "((a < b ? b : a) > c ? c : (a < b ? b : a))",
		func(a, b, c float64) float64 { return min(max(a, b), c) }, false},

	"full":   {0, "EW_T(EW_VALUE)", nil, false},
	"arange": {0, "EW_T(EW_START + index * EW_STEP)", nil, false},
}

// Operations returns the names of the functions, sorted.
func Operations() []string { return slices.Sorted(maps.Keys(operations)) }

// Arity returns the number of operands of a function, or -1 where there is no such function.
func Arity(name string) int {
	if o, ok := operations[name]; ok {
		return o.arity
	}
	return -1
}

// compute returns the type that the function computes in. Integers are computed exactly, in 64 bits.
func (e Elementwise) compute() DType {
	if operations[e.Op].float || len(e.In) == 0 && (e.Out.DType == F32 || e.Out.DType == BF16) {
		return F32
	}
	for _, p := range e.In {
		if p.DType == F32 || p.DType == BF16 {
			return F32
		}
	}
	return I64
}

// Launch is the dispatch for up to tokens tokens. It takes ElementwiseArguments, with as many operands as In has.
func (e Elementwise) Launch(tokens int) (Launch, error) {
	o, ok := operations[e.Op]
	switch {
	case !ok:
		return Launch{}, fmt.Errorf("elementwise: there is no kernel for %q", e.Op)
	case len(e.In) != o.arity:
		return Launch{}, fmt.Errorf("elementwise: %s has %d operands, found %d", e.Op, o.arity, len(e.In))
	case len(e.Box) > 4:
		return Launch{}, fmt.Errorf("elementwise: %s over %d dims, want at most 4", e.Op, len(e.Box))
	}
	count := Fixed(1)
	for _, d := range e.Box {
		var err error
		if count, err = count.Times(d); err != nil {
			return Launch{}, fmt.Errorf("elementwise: %s: %w", e.Op, err)
		}
	}
	if count.Position != 0 {
		return Launch{}, errors.New("elementwise: the number of elements follows the position")
	}
	dims := e.Box.dims()
	defines := define("EW_F(a, b, c)", o.text, "EW_CAST(v)", dtypes[e.Out.DType].cast, "EW_T",
		e.compute().text(), "EW_ARITY", o.arity,
		"EW_COUNT", count.text(), "EW_D1", dims[1].text(), "EW_D2", dims[2].text(), "EW_D3", dims[3].text(),
		"EW_OUT_T", e.Out.DType.text(),
		"EW_VALUE", e.Value, "EW_START", e.Start.text(), "EW_STEP", e.Step)
	var in [3]Place
	copy(in[:], e.In)
	dense, err := e.Box.Dense(F32, Extent{})
	plain := err == nil
	for _, operand := range []struct {
		name string
		p    Place
		used bool
	}{{"OUT", e.Out, true}, {"A", in[0], o.arity > 0}, {"B", in[1], o.arity > 1}, {"C", in[2], o.arity > 2}} {
		at := operand.p.First.text()
		if operand.used {
			if operand.p.DType == None || len(operand.p.Strides) != len(e.Box) {
				return Launch{}, fmt.Errorf("elementwise: %s: an operand %+v over %d dims", e.Op, operand.p, len(e.Box))
			}
			plain = plain && operand.p.First == Extent{}
			for i, s := range operand.p.Strides {
				plain = plain && (s == dense.Strides[i] || e.Box[i] == Fixed(1))
				at += fmt.Sprintf(" + i%d * %s", i+4-len(e.Box), s.text())
			}
		}
		if operand.name != "OUT" {
			defines = append(defines, define("EW_"+operand.name+"_T", operand.p.DType.text())...)
		}
		defines = append(defines, define("EW_AT_"+operand.name, at)...)
	}
	l := Launch{
		File: "elementwise", Kernel: "elementwise", Defines: append(defines, define("EW_DENSE", plain)...),
		Groups: [3]int{ceil(count.At(tokens, 0), 256), 1, 1}, Threads: [3]int{256, 1, 1},
	}
	if e.hasCase() {
		l.Case = func(Sizes) *Case { return e.newCase(l, tokens) }
	}
	return l, nil
}

// Reference computes what the kernel computes, on buffers of any dtype whose numbers are given as float64.
func (e Elementwise) Reference(tokens, position int, in [][]float64, out []float64) {
	e.first(math.MaxInt, tokens, position, in, out)
}

// first computes the first count elements in the order of the box.
func (e Elementwise) first(count, tokens, position int, in [][]float64, out []float64) {
	o := operations[e.Op]
	var size, at [4]int
	for i, d := range e.Box.dims() {
		size[i] = d.At(tokens, position)
	}
	place := func(p Place) int {
		i := p.First.At(tokens, position)
		for k, s := range p.Strides {
			i += at[k+4-len(e.Box)] * s.At(tokens, position)
		}
		return i
	}
	index := 0
	for at[0] = range size[0] {
		for at[1] = range size[1] {
			for at[2] = range size[2] {
				for at[3] = range size[3] {
					if index == count {
						return
					}
					var v float64
					switch e.Op {
					case "full":
						v = float64(e.Value)
					case "arange":
						v = float64(e.Start.At(tokens, position) + index*e.Step)
					default:
						var x [3]float64
						for i, p := range e.In {
							x[i] = in[i][place(p)]
						}
						v = o.reference(x[0], x[1], x[2])
					}
					switch e.Out.DType {
					case F32, BF16:
						v = float64(e.Out.DType.store(float32(v)))
					case Bool:
						v = truth(v != 0)
					default:
						v = math.Trunc(v)
					}
					out[place(e.Out)] = v
					index++
				}
			}
		}
	}
}
