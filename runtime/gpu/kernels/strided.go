package kernels

import (
	"fmt"
	"math"
	"slices"
)

// Strided is out = f(a, b), element by element.
type Strided struct {
	// Function is "copy", "add", "multiply", "tanh", "activate", or "glu": the activation of a, times b. Those of one
	// operand do not look at b.
	Function   string
	Activation Activation
	// Shape has up to four dims, the last innermost; A, B and Out are strides in elements, one for each dim. 0
	// repeats an element of a or b.
	Shape, A, B, Out []int
	// From is the dtype of a.
	From DType
}

// stridedFunctions are the texts of the functions.
var stridedFunctions = map[string]string{
	"copy": "(a)", "add": "((a) + (b))", "multiply": "((a) * (b))", "tanh": "port_tanh(a)",
	"activate": "port_activate(STRIDED_ACTIVATION, a)", "glu": "(port_activate(STRIDED_ACTIVATION, a) * (b))",
}

// Launch is the dispatch. Buffers: a, b f32 (any buffer where it is not looked at), out f32.
func (s Strided) Launch() (Launch, error) {
	text, ok := stridedFunctions[s.Function]
	if !ok {
		return Launch{}, fmt.Errorf("strided: function %q is not known", s.Function)
	}
	if len(s.Shape) > 4 || len(s.A) != len(s.Shape) || len(s.B) != len(s.Shape) || len(s.Out) != len(s.Shape) {
		return Launch{}, fmt.Errorf("strided: shape %v, want at most four dims, and a stride of every operand for each", s.Shape)
	}
	n := 1
	for _, d := range s.Shape {
		if d <= 0 || n > math.MaxInt32/d {
			return Launch{}, fmt.Errorf("strided: shape %v, want from 1 to 2^31 - 1 elements", s.Shape)
		}
		n *= d
	}
	if err := needFloat("a", s.from()); err != nil {
		return Launch{}, fmt.Errorf("strided: %w", err)
	}
	fill := func(list []int, with int) []int { return slices.Concat(slices.Repeat([]int{with}, 4-len(list)), list) }
	defines := define("STRIDED_N", n, "STRIDED_F(a, b)", text, "STRIDED_A_T", s.from().text(), "STRIDED_ACTIVATION", int(s.Activation))
	for i, d := range fill(s.Shape, 1) {
		if i > 0 {
			defines = append(defines, define(fmt.Sprintf("STRIDED_D%d", i), d)...)
		}
		for name, strides := range map[string][]int{"A": s.A, "B": s.B, "O": s.Out} {
			defines = append(defines, define(fmt.Sprintf("STRIDED_%s%d", name, i), fill(strides, 0)[i])...)
		}
	}
	slices.SortFunc(defines, func(a, b Define) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return Launch{File: "strided", Kernel: "strided", Defines: defines, Groups: [3]int{ceil(n, 256), 1, 1}, Threads: [3]int{256, 1, 1}}, nil
}

func (s Strided) from() DType {
	if s.From == None {
		return F32
	}
	return s.From
}

// Twin computes what the kernel does.
func (s Strided) Twin(a, b, out []float32) {
	index := make([]int, len(s.Shape))
	for {
		at := func(strides []int) (n int) {
			for i, x := range index {
				n += x * strides[i]
			}
			return n
		}
		x, y := float64(a[at(s.A)]), 0.0
		if s.Function == "add" || s.Function == "multiply" || s.Function == "glu" {
			y = float64(b[at(s.B)])
		}
		switch s.Function {
		case "add":
			x += y
		case "multiply":
			x *= y
		case "tanh":
			x = math.Tanh(x)
		case "activate":
			x = s.Activation.of(x)
		case "glu":
			x = s.Activation.of(x) * y
		}
		out[at(s.Out)] = float32(x)
		i := len(index) - 1
		for ; i >= 0; i-- {
			if index[i]++; index[i] < s.Shape[i] {
				break
			}
			index[i] = 0
		}
		if i < 0 {
			return
		}
	}
}
