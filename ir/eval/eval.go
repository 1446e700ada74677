package eval

import (
	"context"
	"fmt"

	"github.com/etc-ml/etc/ir"
)

// Precision says where floating-point results are rounded.
type Precision uint8

const (
	// FP32 keeps every float in float32, state included.
	FP32 Precision = iota
	// Mixed computes in float32 and rounds what is written to a buffer to the buffer's dtype.
	Mixed
	// Strict rounds every result to the dtype that MLX would give it.
	Strict
)

// ParsePrecision reads fp32, mixed or strict.
func ParsePrecision(s string) (Precision, error) {
	switch s {
	case "fp32":
		return FP32, nil
	case "mixed":
		return Mixed, nil
	case "strict":
		return Strict, nil
	}
	return 0, fmt.Errorf("precision %q: want fp32, mixed or strict", s)
}

// Value is the content of an ir.Value while a program runs: a tensor, a quantized weight or an int register.
type Value struct {
	Tensor    *Tensor
	Quantized *Quantized
	Int       int64
	// Undefined says that it holds nothing: it is a result of an If whose arm that ran does not write it. It may be
	// passed on as a result or carried through a Scan; an operation that reads it is an error.
	Undefined bool
}

// Call is one execution of an operation: what a kernel sees.
type Call struct {
	Op        *ir.Op
	Precision Precision
	// Args holds the arguments' values by operand, like Op.Args; literals have their Int or Float set.
	Args [][]Value
	// Bits draws n words for random_bits without a seed.
	Bits func(n int) []uint32
	// Done, when it is closed, ends long kernels early, with results that mean nothing: who sets it must look at it
	// after the call. nil lets every kernel run to its end.
	Done <-chan struct{}
}

// Kernel computes the results of an operation.
type Kernel func(*Call) ([]Value, error)

// kernels holds the kernel of every operation that is not control flow or buffer access.
var kernels = map[string]Kernel{}

// register adds kernels by op name; every file of kernels has its own table and calls it from init.
func register(table map[string]Kernel) {
	for name, k := range table {
		if ir.LookupOp(name) == nil || kernels[name] != nil {
			panic("eval: kernel " + name + " is not in the op table or there twice")
		}
		kernels[name] = k
	}
}

// index finds an operand by name; a wrong name is a mistake in the kernel.
func (c *Call) index(name string) int {
	for i := range c.Op.Def.Operands {
		if c.Op.Def.Operands[i].Name == name {
			return i
		}
	}
	panic(fmt.Sprintf("eval: op %s has no operand %q", c.Op.Def.Name, name))
}

// Has reports whether an optional operand is present.
func (c *Call) Has(name string) bool { return len(c.Args[c.index(name)]) > 0 }

// Tensor returns the tensor in an operand, or nil where the operand is absent or an int.
func (c *Call) Tensor(name string) *Tensor {
	if a := c.Args[c.index(name)]; len(a) > 0 {
		return a[0].Tensor
	}
	return nil
}

// Tensors returns the tensors of a list operand.
func (c *Call) Tensors(name string) []*Tensor {
	args := c.Args[c.index(name)]
	out := make([]*Tensor, len(args))
	for i, a := range args {
		out[i] = a.Tensor
	}
	return out
}

// Int returns the value of an int operand.
func (c *Call) Int(name string) int64 { return c.Args[c.index(name)][0].Int }

// Ints returns the values of an int list operand.
func (c *Call) Ints(name string) []int64 {
	args := c.Args[c.index(name)]
	out := make([]int64, len(args))
	for i, a := range args {
		out[i] = a.Int
	}
	return out
}

// Float returns the value of a float operand: a literal or an int value.
func (c *Call) Float(name string) float64 {
	i := c.index(name)
	if c.Op.Args[i][0].Kind == ir.FloatArg {
		return c.Op.Args[i][0].Float
	}
	return float64(c.Args[i][0].Int)
}

// Result returns the declared type of result number i: the dtype that MLX gives it.
func (c *Call) Result(i int) ir.Type { return c.Op.Results[i].Type }

// Round rounds v to dtype d under Strict and leaves it as it is under FP32 and Mixed.
func (c *Call) Round(d ir.DType, v float32) float32 {
	if c.Precision == Strict {
		return round(d, v)
	}
	return v
}

// one wraps the single result of a kernel.
func one(t *Tensor, err error) ([]Value, error) {
	if err != nil {
		return nil, err
	}
	return []Value{{Tensor: t}}, nil
}

// Run executes one operation that is neither control flow nor a buffer access. The error names the operation.
func Run(c *Call) ([]Value, error) {
	if c.Op.Def.Expand != nil {
		return runExpansion(c)
	}
	k := kernels[c.Op.Def.Name]
	if k == nil {
		return nil, fmt.Errorf("%s: the reference engine has no kernel for this operation", c.Op.Def.Name)
	}
	out, err := k(c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Op.Def.Name, err)
	}
	return out, nil
}

// runExpansion executes what an operation stands for; see ir.OpDef.Expand.
func runExpansion(c *Call) ([]Value, error) {
	r := &ir.Region{}
	err := ir.Build(func() { r.Results = c.Op.Def.Expand(&ir.Builder{Region: r}, c.Op) })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Op.Def.Name, err)
	}
	x := &Machine{precision: c.Precision, constants: NewConstants(), uses: map[*ir.Region][][]*ir.Value{}, bits: c.Bits,
		env: map[*ir.Value]Value{}, derived: map[*ir.Value]Value{}, ctx: context.Background()}
	for i, args := range c.Op.Args {
		for j, a := range args {
			if a.Kind == ir.ValueArg {
				x.derived[a.Value] = c.Args[i][j]
			}
		}
	}
	for _, op := range r.Ops {
		results, err := x.op(op)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Op.Def.Name, err)
		}
		for j, v := range op.Results {
			x.env[v] = results[j]
		}
	}
	return x.results(r)
}
