package verify

import (
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/speculate"
)

// draft checks the method that drafts tokens, where there is one. The hidden state that it takes must be as wide as
// the one that it gives, because each draft goes on from the one before. The caches that an assistant takes must be
// buffers of the main method, with the same name and type.
func (c *checker) draft(m *ir.Module) {
	f := m.Named(speculate.Method)
	if f == nil {
		return
	}
	kind := speculate.KindOf(f)
	if kind == speculate.None {
		return // a method of another kind that has the name
	}
	if in, out := f.Params[2].Type.Shape[2], f.Outputs[1].Shape[2]; !in.Equal(out) {
		c.find(Error, "draft", "method %s takes hidden states of %s elements and gives some of %s, so it cannot go "+
			"on from its own",
			f.Name, in, out)
	}
	if kind == speculate.Assistant {
		for _, p := range f.Params[3:] {
			if !slices.ContainsFunc(m.Buffers,
				func(b *ir.Buffer) bool { return b.Name == p.Param && b.Type.Equal(p.Type) }) {
				c.find(Error, "draft", "method %s reads the cache %s of type %s, and %s has no such buffer",
					f.Name, p.Param, p.Type,
					m.Entry.Name)
			}
		}
	}
}

// entries checks methods that share weights or state: they must be one module. A method that cannot be lifted has a
// finding of its own.
func (c *checker) entries() {
	names := slices.DeleteFunc(c.program.Methods(), func(name string) bool {
		_, constant := known[name] // one that computes has a finding of its own
		return constant
	})
	if len(names) < 2 {
		return
	}
	uses := map[string][]string{} // methods by buffer
	var buffers []string
	for _, name := range names {
		m, err := c.program.Module(name)
		if err != nil {
			return
		}
		for _, b := range m.Buffers {
			if uses[b.Name] = append(uses[b.Name], name); len(uses[b.Name]) == 2 {
				buffers = append(buffers, b.Name)
			}
		}
	}
	whole, err := c.program.Whole(names[0])
	if err != nil {
		c.find(Warning, "entries", "the methods %s cannot run on one state: %v", strings.Join(names, ", "), err)
		return
	}
	c.draft(whole)
	for _, b := range buffers {
		c.find(Note, "entries", "buffer %q is one for the methods %s; ExecuTorch's runtime gives each its own",
			b, strings.Join(uses[b], " and "))
	}
}
