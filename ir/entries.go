package ir

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// This file takes modules of several entries apart and puts them together again: a program has a graph for each entry,
// with the constants, the buffers and the part of init that the entry needs. Constants and buffers of equal names are
// the same in all.

// needs lists the constants, buffers and init operations that an entry uses.
type needs struct {
	values  map[*Value]bool // constants and derived constants that the entry uses, or an operation of init for it
	buffers map[*Buffer]bool
	init    map[*Op]bool
}

// needsOf finds what f uses, through init too.
func (m *Module) needsOf(f *Func) *needs {
	n := &needs{map[*Value]bool{}, map[*Buffer]bool{}, map[*Op]bool{}}
	n.region(f.Body)
	for _, d := range m.Derived {
		if n.values[d.Value] {
			n.values[d.Cell.Value], n.values[d.From] = true, true
		}
	}
	if m.Init == nil {
		return n
	}
	for _, op := range slices.Backward(m.Init.Ops) {
		if slices.ContainsFunc(op.Results, func(v *Value) bool { return n.values[v] }) {
			n.init[op] = true
			n.op(op)
		}
	}
	return n
}

func (n *needs) region(r *Region) {
	for _, op := range r.Ops {
		n.op(op)
	}
	for _, v := range r.Results {
		n.values[v] = true
	}
}

func (n *needs) op(op *Op) {
	op.EachArg(func(a *Arg) {
		if a.Kind == ValueArg {
			n.values[a.Value] = true
		}
	})
	for _, b := range op.Buffers() {
		n.buffers[b] = true
	}
	for _, r := range op.Regions {
		n.region(r)
	}
}

// owners says, for everything that entries share, which entry is the first that needs it. The main one owns what no
// entry needs.
type owners struct{ entries []*needs }

func (m *Module) owners() *owners {
	o := &owners{}
	for _, f := range m.Entries() {
		o.entries = append(o.entries, m.needsOf(f))
	}
	return o
}

func (o *owners) first(needed func(*needs) bool) int {
	return max(0, slices.IndexFunc(o.entries, needed))
}

func (o *owners) constant(c *Constant) int {
	return o.first(func(n *needs) bool { return n.values[c.Value] })
}

func (o *owners) buffer(b *Buffer) int {
	return o.first(func(n *needs) bool { return n.buffers[b] })
}

func (o *owners) derived(d *Derived) int {
	return o.first(func(n *needs) bool { return n.values[d.Value] })
}

func (o *owners) op(op *Op) int { return o.first(func(n *needs) bool { return n.init[op] }) }

// OrderByEntry puts what entries share into the order in which [Join] finds it in their parts: constants, buffers,
// derived constants and operations of init by the first entry that needs them, else as they were. A module of one
// entry stays as it is.
func (m *Module) OrderByEntry() {
	if len(m.More) == 0 {
		return
	}
	o := m.owners()
	sortBy(m.Constants, o.constant)
	sortBy(m.Buffers, o.buffer)
	sortBy(m.Derived, o.derived)
	if m.Init != nil {
		sortBy(m.Init.Ops, o.op)
	}
}

func sortBy[T any](list []T, owner func(T) int) {
	slices.SortStableFunc(list, func(a, b T) int { return owner(a) - owner(b) })
}

// Parts returns a module with one entry for each entry of m, with everything that the entry needs. The main one also
// has what no entry needs. They share everything with m. It returns an error that names what is not in the order of
// [Module.OrderByEntry].
func (m *Module) Parts() ([]*Module, error) {
	if len(m.More) == 0 {
		return []*Module{m}, nil
	}
	o := m.owners()
	for _, list := range []struct {
		ok   bool
		what string
	}{
		{ordered(m.Constants, o.constant), "constants"},
		{ordered(m.Buffers, o.buffer), "buffers"},
		{ordered(m.Derived, o.derived), "derived constants"},
		{m.Init == nil || ordered(m.Init.Ops, o.op), "operations of init"},
	} {
		if !list.ok {
			return nil, fmt.Errorf("the %s do not stand in the order of the entries that need them; order them first",
				list.what)
		}
	}
	parts := make([]*Module, len(o.entries))
	for i, f := range m.Entries() {
		n := o.entries[i]
		p := &Module{Entry: f, Metadata: m.Metadata}
		p.Constants = keep(m.Constants, func(c *Constant) bool {
			return n.values[c.Value] ||
				i == 0 && o.constant(c) == 0
		})
		p.Buffers = keep(m.Buffers, func(b *Buffer) bool { return n.buffers[b] || i == 0 && o.buffer(b) == 0 })
		p.Derived = keep(m.Derived, func(d *Derived) bool { return n.values[d.Value] || i == 0 && o.derived(d) == 0 })
		if m.Init != nil {
			ops := keep(m.Init.Ops, func(op *Op) bool { return n.init[op] || i == 0 && o.op(op) == 0 })
			if len(ops) > 0 || i == 0 && len(m.Init.Ops) == 0 {
				p.Init = &Region{Ops: ops}
			}
		}
		parts[i] = p
	}
	return parts, nil
}

func ordered[T any](list []T, owner func(T) int) bool {
	return slices.IsSortedFunc(list, func(a, b T) int { return owner(a) - owner(b) })
}

func keep[T any](list []T, wanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(list), func(x T) bool { return !wanted(x) })
}

// Join makes one module from modules of one entry each, and takes over their content. Constants and buffers with the
// same name are merged, as are init operations that compute the same. The constant methods are those of the first
// module. It returns an error where two things with the same name differ.
func Join(parts []*Module) (*Module, error) {
	m := parts[0]
	j := &joiner{m: m, constants: map[string]*Constant{}, named: map[string]*Buffer{},
		derived: map[*Constant]*Derived{},
		values:  map[*Value]*Value{}, buffers: map[*Buffer]*Buffer{}, ids: map[*Value]string{}, init: map[string]*Op{}}
	for _, c := range m.Constants {
		j.constants[c.Name] = c
	}
	for _, b := range m.Buffers {
		j.named[b.Name] = b
	}
	for _, d := range m.Derived {
		j.derived[d.Cell] = d
	}
	if m.Init != nil {
		for _, op := range m.Init.Ops {
			j.note(op)
		}
	}
	for _, p := range parts[1:] {
		if err := j.add(p); err != nil {
			return nil, fmt.Errorf("methods %s and %s: %w", m.Entry.Name, p.Entry.Name, err)
		}
	}
	return m, nil
}

type joiner struct {
	m         *Module
	constants map[string]*Constant // of m, by name
	named     map[string]*Buffer
	derived   map[*Constant]*Derived // by cell
	values    map[*Value]*Value      // for a value of a part, the value of m in its place
	buffers   map[*Buffer]*Buffer    // for a buffer of a part, the buffer of m in its place
	ids       map[*Value]string
	init      map[string]*Op // the operations of init, by what they compute
}

// id returns a text for a value of the joined module that no other value has.
func (j *joiner) id(v *Value) string {
	if j.ids[v] == "" {
		j.ids[v] = "v" + strconv.Itoa(len(j.ids))
	}
	return j.ids[v]
}

// note enters an operation of init of m by what it computes. An operation of another part that computes the same is
// then left out.
func (j *joiner) note(op *Op) {
	if pure(op) {
		if key := computes(op, j.id); j.init[key] == nil {
			j.init[key] = op
		}
	}
}

func pure(op *Op) bool {
	ok := op.Def.Effect == Pure || op.Def.Effect == Control
	for _, r := range op.Regions {
		r.Walk(func(o *Op) { ok = ok && (o.Def.Effect == Pure || o.Def.Effect == Control) })
	}
	return ok
}

func (j *joiner) add(p *Module) error {
	for _, c := range p.Constants {
		o := j.constants[c.Name]
		if o == nil {
			j.constants[c.Name] = c
			j.m.Constants = append(j.m.Constants, c)
			continue
		}
		if !o.Value.Type.Equal(c.Value.Type) {
			return fmt.Errorf("constant @%s has type %s in one and %s in the other", c.Name, o.Value.Type, c.Value.Type)
		}
		j.values[c.Value] = o.Value
	}
	for _, b := range p.Buffers {
		o := j.named[b.Name]
		if o == nil {
			j.named[b.Name] = b
			j.m.Buffers = append(j.m.Buffers, b)
			continue
		}
		if !o.Type.Equal(b.Type) {
			return fmt.Errorf("buffer @%s has type %s in one and %s in the other", b.Name, o.Type, b.Type)
		}
		j.buffers[b] = o
	}
	if err := j.addInit(p); err != nil {
		return err
	}
	j.rewrite(p.Entry.Body)
	j.m.More = append(j.m.More, p.Entry)
	return nil
}

func (j *joiner) addInit(p *Module) error {
	if p.Init == nil {
		return nil
	}
	if j.m.Init == nil {
		j.m.Init = &Region{}
	}
	for _, op := range p.Init.Ops {
		j.op(op) // after the operations before it were found to be others
		if pure(op) {
			if same := j.init[computes(op, j.id)]; same != nil {
				for i, v := range op.Results {
					j.values[v] = same.Results[i]
				}
				continue
			}
		}
		j.m.Init.Ops = append(j.m.Init.Ops, op)
		j.note(op)
	}
	for _, d := range p.Derived {
		if v := j.values[d.Cell.Value]; v != nil {
			d.Cell = v.Constant
		}
		d.From = j.value(d.From)
		switch o := j.derived[d.Cell]; {
		case o == nil:
			j.derived[d.Cell] = d
			j.m.Derived = append(j.m.Derived, d)
		case o.From != d.From:
			return fmt.Errorf("constant @%s is derived in two ways", d.Cell.Name)
		default:
			j.values[d.Value] = o.Value
		}
	}
	return nil
}

func (j *joiner) value(v *Value) *Value {
	if n := j.values[v]; n != nil {
		return n
	}
	return v
}

// rewrite makes a region use what stands for its values and buffers.
func (j *joiner) rewrite(r *Region) {
	for _, op := range r.Ops {
		j.op(op)
	}
	for i, v := range r.Results {
		r.Results[i] = j.value(v)
	}
}

func (j *joiner) op(op *Op) {
	op.EachArg(func(a *Arg) {
		if a.Kind == ValueArg {
			a.Value = j.value(a.Value)
		}
	})
	for _, b := range []**Buffer{&op.Buffer, &op.Second} {
		if n := j.buffers[*b]; n != nil {
			*b = n
		}
	}
	for _, r := range op.Regions {
		j.rewrite(r)
	}
}

// computes returns a text that is equal for operations that compute the same: values that they define are numbered, for
// others id gives the text.
func computes(op *Op, id func(*Value) string) string {
	inner := map[*Value]string{}
	define := func(v *Value) { inner[v] = "i" + strconv.Itoa(len(inner)) }
	name := func(v *Value) string {
		if n := inner[v]; n != "" {
			return n
		}
		return id(v)
	}
	var b strings.Builder
	var write func(op *Op)
	write = func(op *Op) {
		b.WriteString(op.Def.Name)
		for _, args := range op.Args {
			b.WriteByte('(')
			for _, a := range args {
				switch a.Kind {
				case IntArg:
					fmt.Fprintf(&b, "%d,", a.Int)
				case FloatArg:
					fmt.Fprintf(&b, "%x,", a.Float)
				default:
					b.WriteString(name(a.Value) + ",")
				}
			}
		}
		b.WriteString(FormatAttrs(op))
		for _, r := range op.Regions {
			b.WriteByte('{')
			for _, v := range r.Args {
				define(v)
			}
			for _, o := range r.Ops {
				write(o)
				for _, v := range o.Results {
					define(v)
				}
			}
			for _, v := range r.Results {
				b.WriteString(name(v) + ",")
			}
			b.WriteByte('}')
		}
	}
	write(op)
	return b.String()
}
