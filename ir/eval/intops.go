package eval

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"noop":             func(*Call) ([]Value, error) { return nil, nil },
		"sym_size":         symSize,
		"item_int":         itemInt,
		"add_int":          intArithmetic("+", func(a, b int64) int64 { return a + b }),
		"subtract_int":     intArithmetic("-", func(a, b int64) int64 { return a - b }),
		"multiply_int":     intArithmetic("*", func(a, b int64) int64 { return a * b }),
		"floor_divide_int": intArithmetic("//", func(a, b int64) int64 { return (a - intRemainder(a, b)) / b }),
		"mod_int":          intArithmetic("%", intRemainder),
	})
}

// clampInt32 clamps an int64 literal to the delegate's 32-bit registers: INT64_MAX, which means "to the end", becomes
// INT32_MAX.
func clampInt32(v int64) int64 { return min(max(v, math.MinInt32), math.MaxInt32) }

// int32 returns the value of an int operand; a literal is clamped to 32 bits.
func (c *Call) int32(name string) int64 { return clampInt32(c.Int(name)) }

// int32s returns the values of an int list operand, clamped to 32 bits.
func (c *Call) int32s(name string) []int {
	args := c.Args[c.index(name)]
	out := make([]int, len(args))
	for i, a := range args {
		out[i] = int(clampInt32(a.Int))
	}
	return out
}

func symSize(c *Call) ([]Value, error) {
	a := c.Tensor("a")
	axis, err := axisIn(ir.Attrs[ir.SymSizeAttrs](c.Op).Dim, len(a.Shape))
	if err != nil {
		return nil, err
	}
	return []Value{{Int: int64(a.Shape[axis])}}, nil
}

// itemInt reads the first four bytes of a one-element tensor as an int32; it does not convert. So an
// i64 loses its upper half and f32 3.7 is 1080872141. Of narrower dtypes the delegate reads bytes beyond
// the element; here an integer or bool gives its value and a 16-bit float its bits.
func itemInt(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	if x.Len() != 1 {
		return nil, fmt.Errorf("x has shape %v, want one element", x.Shape)
	}
	if !x.DType.IsFloat() {
		return []Value{{Int: wrap(ir.I32, x.I[0])}}, nil
	}
	var p [8]byte
	copy(p[:], x.Encode())
	return []Value{{Int: int64(int32(binary.LittleEndian.Uint32(p[:])))}}, nil
}

// intArithmetic makes a kernel on 32-bit registers. A result that does not fit is an error, and so is
// a division by zero. The quotient is rounded down and the remainder has the sign of b, as in Python.
func intArithmetic(symbol string, f func(a, b int64) int64) Kernel {
	divides := symbol == "//" || symbol == "%"
	return func(c *Call) ([]Value, error) {
		a, b := c.int32("a"), c.int32("b")
		if divides && b == 0 {
			return nil, fmt.Errorf("%d %s 0 has no value", a, symbol)
		}
		v := f(a, b)
		if v != int64(int32(v)) {
			return nil, fmt.Errorf("%d %s %d is %d, which does not fit in an int32", a, symbol, b, v)
		}
		return []Value{{Int: v}}, nil
	}
}
