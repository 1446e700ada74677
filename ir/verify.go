package ir

import "fmt"

// Verify checks every invariant of a module: operands and attributes fit the op table, values are
// defined before they are used, every type is what its type rule derives, the value of a load is not
// used after a later write of its buffer, constants and buffers have constant dims, entries share no
// symbols. The error quotes the operation in the text form.
func Verify(m *Module) error {
	v := &verifier{module: m, visible: make(map[*Value]bool, m.size()), symbols: map[*Symbol]bool{},
		buffers: map[*Buffer]bool{},
		version: map[*Buffer]int{}, loads: map[*Value]loadState{}}
	return v.run()
}

// size is about the number of values of a module.
func (m *Module) size() int {
	n := len(m.Constants)
	if m.Entry != nil {
		n += len(m.Entry.Body.Ops)
	}
	return n
}

type loadState struct {
	buffer  *Buffer
	version int
}

type verifier struct {
	module  *Module
	visible map[*Value]bool
	symbols map[*Symbol]bool // those that have been introduced
	buffers map[*Buffer]bool
	version map[*Buffer]int // writes seen so far
	loads   map[*Value]loadState
}

// run verifies a module in the order in which its parts see each other.
func (v *verifier) run() error {
	for _, part := range []func() error{v.constants, v.declaredBuffers, v.init, v.derived, v.entries} {
		if err := part(); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) constants() error {
	names := map[string]bool{}
	for _, c := range v.module.Constants {
		if names[c.Name] {
			return fmt.Errorf("constant @%s stands twice", c.Name)
		}
		names[c.Name] = true
		dims, static := c.Value.Type.Static()
		if c.Value.Type.Kind != TensorKind || !static {
			return fmt.Errorf("constant @%s has type %s, want a tensor with constant dims", c.Name, c.Value.Type)
		}
		if d := c.Data; d != nil && (d.DType() != c.Value.Type.DType ||
			!equalShapes(Dims(d.Shape()...), Dims(dims...))) {
			return fmt.Errorf("constant @%s has type %s, its data is %s%v", c.Name, c.Value.Type, d.DType(), d.Shape())
		}
		v.visible[c.Value] = true
	}
	return nil
}

func (v *verifier) declaredBuffers() error {
	names := map[string]bool{}
	for _, b := range v.module.Buffers {
		if names[b.Name] {
			return fmt.Errorf("buffer @%s stands twice", b.Name)
		}
		names[b.Name] = true
		if _, static := b.Type.Static(); b.Type.Kind != TensorKind || !static {
			return fmt.Errorf("buffer @%s has type %s, want a tensor with constant dims", b.Name, b.Type)
		}
		v.buffers[b] = true
	}
	return nil
}

func (v *verifier) init() error {
	init := v.module.Init
	if init == nil {
		return nil
	}
	var used *Buffer
	init.Walk(func(op *Op) {
		if op.Buffer != nil {
			used = op.Buffer
		}
	})
	if used != nil {
		return fmt.Errorf("init: buffer @%s is used; buffers start as zeros and belong to the entry", used.Name)
	}
	if err := v.region(init); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	return nil
}

// derived verifies derived constants. What follows, the entries, sees them and constants, not the other values of init.
func (v *verifier) derived() error {
	m := v.module
	cells := map[*Constant]bool{}
	for _, d := range m.Derived {
		switch {
		case !v.visible[d.From]:
			return fmt.Errorf("derive ^%s: its value is not defined in init", d.Cell.Name)
		case !v.visible[d.Cell.Value]:
			return fmt.Errorf("derive ^%s: its cell is not a constant of the module", d.Cell.Name)
		case cells[d.Cell]:
			return fmt.Errorf("^%s is derived twice", d.Cell.Name)
		case !d.Value.Type.Equal(d.From.Type):
			return fmt.Errorf("^%s has type %s, init gives it %s", d.Cell.Name, d.Value.Type, d.From.Type)
		}
		if _, static := d.Value.Type.Static(); !static {
			return fmt.Errorf("^%s has type %s, want constant dims", d.Cell.Name, d.Value.Type)
		}
		cells[d.Cell] = true
	}
	clear(v.visible)
	for _, c := range m.Constants {
		v.visible[c.Value] = true
	}
	for _, d := range m.Derived {
		v.visible[d.Value] = true
	}
	return nil
}

func (v *verifier) entries() error {
	m := v.module
	if m.Entry == nil {
		return fmt.Errorf("the module has no entry")
	}
	entries := map[string]bool{}
	owner := map[*Symbol]string{}
	for _, f := range m.Entries() {
		if entries[f.Name] {
			return fmt.Errorf("entry %s stands twice", f.Name)
		}
		entries[f.Name] = true
		v.symbols = map[*Symbol]bool{}
		if err := v.entry(f); err != nil {
			return err
		}
		for s := range v.symbols {
			if other, taken := owner[s]; taken {
				return fmt.Errorf("%s and %s share a symbol; each call has sizes of its own, so each entry needs its "+
					"own symbols",
					other, f.Name)
			}
			owner[s] = f.Name
		}
	}
	return nil
}

func (v *verifier) entry(f *Func) error {
	names := map[string]bool{}
	for _, p := range f.Params {
		if names[p.Param] {
			return fmt.Errorf("%s: parameter %%%s stands twice", f.Name, p.Param)
		}
		names[p.Param] = true
		if p.Type.Kind == QuantizedKind {
			return fmt.Errorf("%s: parameter %%%s has type %s, want a tensor or an int", f.Name, p.Param, p.Type)
		}
		v.introduce(p.Type)
		v.visible[p] = true
		defer delete(v.visible, p)
	}
	if err := v.region(f.Body); err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	if len(f.Body.Results) != len(f.Outputs) {
		return fmt.Errorf("%s: %d results, %d declared outputs", f.Name, len(f.Body.Results), len(f.Outputs))
	}
	for i, r := range f.Body.Results {
		v.introduce(f.Outputs[i])
		if err := compatibleOutput(r.Type, f.Outputs[i]); err != nil {
			return fmt.Errorf("%s: output %d: %w", f.Name, i, err)
		}
	}
	return nil
}

// compatibleOutput checks that a result can be what its output declares: the dtype is converted, the
// dims must be able to agree.
func compatibleOutput(t, declared Type) error {
	if t.Kind != declared.Kind || t.Kind == QuantizedKind {
		return fmt.Errorf("declared as %s, the program computes %s", declared, t)
	}
	if t.Kind == IntKind {
		return nil
	}
	if len(t.Shape) != len(declared.Shape) {
		return fmt.Errorf("declared as %s, the program computes %s", declared, t)
	}
	for i := range t.Shape {
		if differ(t.Shape[i], declared.Shape[i]) {
			return fmt.Errorf("declared as %s, the program computes %s", declared, t)
		}
	}
	return nil
}

// differ reports whether two dims are provably unequal.
func differ(a, b *Expr) bool {
	lo, hi := a.Sub(b).Bounds()
	return lo > 0 || hi < 0
}

func (v *verifier) region(r *Region) error {
	var defined []*Value
	define := func(x *Value) error {
		if v.visible[x] {
			return fmt.Errorf("a value is defined twice")
		}
		v.visible[x] = true
		defined = append(defined, x)
		return nil
	}
	for _, a := range r.Args {
		if err := define(a); err != nil {
			return err
		}
		v.introduce(a.Type)
	}
	for _, op := range r.Ops {
		if err := v.op(op); err != nil {
			return fmt.Errorf("%w\n\tin %s", err, Describe(v.module, op))
		}
		for _, x := range op.Results {
			if err := define(x); err != nil {
				return fmt.Errorf("%w\n\tin %s", err, Describe(v.module, op))
			}
		}
	}
	for i, x := range r.Results {
		if err := v.use(x); err != nil {
			return fmt.Errorf("result %d: %w", i, err)
		}
	}
	for _, x := range defined {
		v.visible[x] = v.module.Init == r // values of init stay visible for the derived constants
	}
	return nil
}

// use checks that x may be used here.
func (v *verifier) use(x *Value) error {
	if x == nil || !v.visible[x] {
		return fmt.Errorf("a value is used where it is not defined")
	}
	if l, ok := v.loads[x]; ok && v.version[l.buffer] != l.version {
		return fmt.Errorf("the loaded value of buffer @%s is used after a later write of the buffer; copy it with "+
			"id_copy first", l.buffer.Name)
	}
	return nil
}

// checkOp checks what can be seen from the operation alone: operands, attributes, buffer, regions.
func checkOp(op *Op) error {
	if err := checkArgs(op); err != nil {
		return err
	}
	if needs := op.Def.Effect == Reads || op.Def.Effect == Writes; needs != (op.Buffer != nil) {
		if needs {
			return fmt.Errorf("%s: names no buffer", op.Def.Name)
		}
		return fmt.Errorf("%s: works on no buffer, but names @%s", op.Def.Name, op.Buffer.Name)
	}
	if op.Def.SecondBuffer != (op.Second != nil) {
		return fmt.Errorf("%s: names %d buffers", op.Def.Name, len(op.Buffers()))
	}
	if len(op.Regions) != op.Def.Regions {
		return fmt.Errorf("%s: has %d regions, want %d", op.Def.Name, len(op.Regions), op.Def.Regions)
	}
	if op.Def.Results >= 0 && op.Results != nil && len(op.Results) != op.Def.Results {
		return fmt.Errorf("%s: has %d results, want %d", op.Def.Name, len(op.Results), op.Def.Results)
	}
	return nil
}

func (v *verifier) op(op *Op) error {
	if err := checkOp(op); err != nil {
		return err
	}
	for _, b := range op.Buffers() {
		if !v.buffers[b] {
			return fmt.Errorf("buffer @%s is not one of the module", b.Name)
		}
	}
	var err error
	op.EachArg(func(a *Arg) {
		if a.Kind == ValueArg && err == nil {
			err = v.use(a.Value)
		}
	})
	if err != nil {
		return err
	}
	if err := v.regions(op); err != nil {
		return err
	}
	types, err := derive(op)
	if err != nil {
		return err
	}
	if len(types) != len(op.Results) {
		return fmt.Errorf("has %d results, its arguments make it %d", len(op.Results), len(types))
	}
	for i, t := range types {
		if !t.Equal(op.Results[i].Type) {
			return fmt.Errorf("result %d has type %s, its arguments make it %s", i, op.Results[i].Type, t)
		}
	}
	return v.effects(op)
}

// regions checks the bodies of if and scan. What one arm writes, the other does not see; what either
// writes, is written afterwards.
func (v *verifier) regions(op *Op) error {
	if len(op.Regions) == 0 {
		return nil
	}
	writes := map[*Buffer]bool{}
	for _, r := range op.Regions {
		r.EachWrite(func(b *Buffer) { writes[b] = true })
	}
	if op.Def.Name == "scan" { // the second step sees what the first wrote
		for b := range writes {
			v.version[b]++
		}
	}
	before := map[*Buffer]int{}
	for b := range writes {
		before[b] = v.version[b]
	}
	for _, r := range op.Regions {
		for b, n := range before {
			v.version[b] = n
		}
		if err := v.region(r); err != nil {
			return err
		}
	}
	for b, n := range before {
		v.version[b] = n + 1 + v.version[b] // never a version that an arm has seen
	}
	return nil
}

// effects notes loads, writes and new symbols.
func (v *verifier) effects(op *Op) error {
	switch op.Def.Effect {
	case Reads:
		v.loads[op.Results[0]] = loadState{op.Buffer, v.version[op.Buffer]}
	case Writes:
		for _, b := range op.Buffers() {
			v.version[b]++
		}
	}
	if op.Def.Name == "item_int" {
		if s, ok := op.Results[0].Type.Int.Symbol(); !ok || v.symbols[s] {
			return fmt.Errorf("its symbol is not new")
		}
	}
	for _, r := range op.Results {
		v.introduce(r.Type)
	}
	return nil
}

// introduce notes the symbols of a type.
func (v *verifier) introduce(t Type) {
	note := func(s *Symbol) { v.symbols[s] = true }
	for _, d := range t.Shape {
		d.Symbols(note)
	}
	if t.Int != nil {
		t.Int.Symbols(note)
	}
}
