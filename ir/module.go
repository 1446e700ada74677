package ir

// Module is what a program computes: one method or several over the same constants and the same state.
type Module struct {
	// Constants in the order in which they are written.
	Constants []*Constant
	// Buffers in the order in which they are written.
	Buffers []*Buffer
	// Init runs once when the program is loaded and derives constants; nil where there is none.
	Init *Region
	// Derived are the constants that Init computes.
	Derived []*Derived
	// Entry is the method, the main one where there are several: "forward" of language models.
	Entry *Func
	// More are further methods, in the order in which they are written: the "draft" of a language model. A buffer that
	// several methods use is one buffer: what a call of one writes, the next call of another reads. Methods share no
	// symbols.
	More []*Func
	// Metadata are the program's constant methods, in the order in which they are written.
	Metadata []Method
}

// Entries returns all methods: the main one, then the further ones.
func (m *Module) Entries() []*Func {
	if m.Entry == nil {
		return m.More
	}
	return append([]*Func{m.Entry}, m.More...)
}

// Named returns the method of a name, nil where there is none.
func (m *Module) Named(entry string) *Func {
	for _, f := range m.Entries() {
		if f.Name == entry {
			return f
		}
	}
	return nil
}

// Only returns a module of one method of m. It has the constants, buffers and init of m, shared, those too that the
// method does not use.
func (m *Module) Only(f *Func) *Module {
	c := m.copyLists()
	c.Entry, c.More = f, nil
	return c
}

// Func is a method of a module.
type Func struct {
	// Name is the method's name, "forward" for language models.
	Name string
	// Params are the inputs in their positional order.
	Params []*Value
	// Body computes the outputs; Body.Results are they, in order.
	Body *Region
	// Outputs are the declared types of the outputs: tensors are converted to the declared dtype, and
	// the declared dims tell their bounds. Int outputs have IntKind.
	Outputs []Type
}

// Method is a constant method: no inputs, one or more outputs known at export time.
type Method struct {
	Name string
	// Values are int64, bool or float64.
	Values []any
}

// Constant is a tensor whose bytes come with the program.
type Constant struct {
	// Name is the key of its bytes in the file, without the delegate's prefix.
	Name string
	// Value stands for the constant wherever it is used; its type has constant dims.
	Value *Value
	// Data produces the bytes; nil in a module that was parsed from text without weights.
	Data Data
}

// Derived is a constant that the init function computes, in a cell that the file gives other bytes:
// ExecuTorch writes the biases of symmetric quantization so (a scalar becomes [N, K/group]).
type Derived struct {
	// Value stands for the derived constant in the entry function.
	Value *Value
	// Cell is the constant whose slot it takes.
	Cell *Constant
	// From is the value of the init function that it gets.
	From *Value
}

// Buffer is state that lives from call to call: a KV cache, a recurrent state. It starts as zeros.
type Buffer struct {
	Name string
	// Type has constant dims.
	Type Type
}

// NewConstant appends a constant to m and gives its value.
func (m *Module) NewConstant(name string, t Type, data Data) *Value {
	c := &Constant{Name: name, Data: data}
	c.Value = &Value{Type: t, Constant: c}
	m.Constants = append(m.Constants, c)
	return c.Value
}

// NewBuffer appends a buffer to m.
func (m *Module) NewBuffer(name string, t Type) *Buffer {
	b := &Buffer{name, t}
	m.Buffers = append(m.Buffers, b)
	return b
}

// NewParam appends an input to f and gives its value.
func (f *Func) NewParam(name string, t Type) *Value {
	v := &Value{Type: t, Index: len(f.Params), Param: name}
	f.Params = append(f.Params, v)
	return v
}

// NewArg appends an argument to r and gives its value.
func (r *Region) NewArg(t Type) *Value {
	v := &Value{Type: t, Index: len(r.Args), Region: r}
	r.Args = append(r.Args, v)
	return v
}
