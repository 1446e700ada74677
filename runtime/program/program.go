package program

import (
	"fmt"
	"io"
	"slices"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/lift"
	schema "github.com/etc-ml/etc/schema/program"
)

// Program is an open .pte. Its modules are valid until Close.
type Program struct {
	File *container.File
	// Metadata are the constant methods in the order of the file.
	Metadata []ir.Method
}

// Open maps and checks a file. Errors of its content satisfy errors.Is with container.ErrInvalid.
func Open(path string) (*Program, error) {
	f, err := container.Open(path)
	if err != nil {
		return nil, err
	}
	p, err := New(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	return p, nil
}

// New reads the constant methods of an open file. The program owns the file.
func New(f *container.File) (*Program, error) {
	p := &Program{File: f}
	for _, m := range f.Methods() {
		if len(m.Inputs) > 0 || len(m.Calls) > 0 || len(m.Others) > 0 {
			continue
		}
		values, _, err := f.Constant(m.Name)
		if err != nil {
			return nil, err
		}
		k := ir.Method{Name: m.Name}
		for _, v := range values {
			switch v.Kind {
			case schema.KernelTypesInt:
				k.Values = append(k.Values, v.Int)
			case schema.KernelTypesBool:
				k.Values = append(k.Values, v.Bool)
			case schema.KernelTypesDouble:
				k.Values = append(k.Values, v.Double)
			}
		}
		if len(k.Values) == len(values) {
			p.Metadata = append(p.Metadata, k)
		}
	}
	return p, nil
}

// Close ends the life of the program, its modules and their constants.
func (p *Program) Close() error { return p.File.Close() }

// Methods names the methods that compute, in the order of the file.
func (p *Program) Methods() []string {
	var names []string
	for _, m := range p.File.Methods() {
		if len(m.Calls) > 0 {
			names = append(names, m.Name)
		}
	}
	return names
}

// Whole lifts all methods that compute and makes them one module: the main one, which the method names, then the
// others in the order of the file. Constants and buffers of equal names are one. What [Program.Module] refuses of any
// of them is refused.
func (p *Program) Whole(main string) (*ir.Module, error) {
	names := []string{main}
	for _, name := range p.Methods() {
		if name != main {
			names = append(names, name)
		}
	}
	parts := make([]*ir.Module, len(names))
	for i, name := range names {
		var err error
		if parts[i], err = p.Module(name); err != nil {
			return nil, err
		}
	}
	m, err := ir.Join(parts)
	if err == nil {
		err = ir.Verify(m)
	}
	if err != nil {
		return nil, invalid(p, "", err)
	}
	return m, nil
}

// Module lifts a method. The method must be one call of the MLX delegate over its inputs; what else ExecuTorch programs
// may hold is refused by name. It is long because it is a list of what is refused, each with its message.
func (p *Program) Module(method string) (*ir.Module, error) {
	m, ok := p.File.Method(method)
	if !ok {
		return nil, invalid(p, method, fmt.Errorf("the file has no such method; it has %q", p.Methods()))
	}
	if len(m.Others) > 0 {
		return nil, invalid(p, method, fmt.Errorf("holds the instruction %s; only calls of the MLX delegate can be run",
			m.Others[0]))
	}
	if len(m.Calls) != 1 {
		return nil, invalid(p, method, fmt.Errorf("has %d delegate calls, want one call of the MLX delegate",
			len(m.Calls)))
	}
	if d := m.Delegates[m.Calls[0].Delegate]; d.ID != container.MLXBackend {
		return nil, invalid(p, method, fmt.Errorf("is delegated to %q; only %q can be run", d.ID, container.MLXBackend))
	}
	mlx, err := p.File.MLX(m, 0)
	if err != nil {
		return nil, err
	}
	lm := lift.Method{Name: method, Graph: mlx.Graph, InputCount: len(m.Inputs), Metadata: p.Metadata}
	for i, v := range mlx.Inputs {
		at := slices.Index(m.Inputs, v)
		if at < 0 {
			return nil, invalid(p, method,
				fmt.Errorf("delegate input %d is value %d, which is no input of the method", i, v))
		}
		lm.Inputs = append(lm.Inputs, at)
	}
	for i, v := range m.Outputs {
		o := lift.Output{Result: slices.Index(mlx.Outputs, v), Input: slices.Index(m.Inputs, v)}
		if o.Result < 0 && o.Input < 0 {
			return nil, invalid(p, method,
				fmt.Errorf("output %d is value %d, which the delegate does not compute", i, v))
		}
		if t := m.Values[v].Tensor; t != nil {
			o.DType = ir.DType(t.ScalarType)
			if !o.DType.Valid() {
				return nil, invalid(p, method,
					fmt.Errorf("output %d has scalar type %s, which is not supported", i, t.ScalarType))
			}
		}
		lm.Outputs = append(lm.Outputs, o)
	}
	constants := make(map[string]*Constant, len(mlx.Constants))
	for _, c := range mlx.Constants {
		d := &Constant{name: c.Name, dtype: ir.DType(c.ScalarType), bytes: c.Data}
		for _, n := range c.Shape {
			d.shape = append(d.shape, int64(n))
		}
		constants[c.Name] = d
	}
	lm.Constant = func(name string) (ir.Data, error) {
		if c, ok := constants[name]; ok {
			return c, nil
		}
		return nil, fmt.Errorf("the file has no bytes for it")
	}
	module, err := lift.Lift(lm)
	if err != nil {
		return nil, invalid(p, "", err)
	}
	return module, nil
}

// invalid makes an error of the file's content.
func invalid(p *Program, method string, err error) error {
	if method != "" {
		err = fmt.Errorf("method %s: %w", method, err)
	}
	return &contentError{p.File.Name(), err}
}

type contentError struct {
	file string
	err  error
}

func (e *contentError) Error() string { return e.file + ": " + e.err.Error() }
func (e *contentError) Unwrap() error { return e.err }
func (e *contentError) Is(target error) bool {
	return target == container.ErrInvalid || target == kind.ErrInvalid
}

// Constant is a constant whose bytes lie in the mapped file.
type Constant struct {
	name  string
	dtype ir.DType
	shape []int64
	bytes []byte
}

// DType returns the element type.
func (c *Constant) DType() ir.DType { return c.dtype }

// Shape returns the constant's shape.
func (c *Constant) Shape() []int64 { return c.shape }

// Provenance names the constant: in one file, names identify bytes.
func (c *Constant) Provenance() string { return "file(" + c.name + ")" }

// Bytes returns the constant's bytes, a view of the map.
func (c *Constant) Bytes() []byte { return c.bytes }

// ReadAt reads from the map.
func (c *Constant) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= int64(len(c.bytes)) {
		return 0, io.EOF
	}
	n := copy(p, c.bytes[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
