package verify

import (
	"slices"
	"strings"
)

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
	if _, err := c.program.Whole(names[0]); err != nil {
		c.find(Warning, "entries", "the methods %s cannot run on one state: %v", strings.Join(names, ", "), err)
		return
	}
	for _, b := range buffers {
		c.find(Note, "entries", "buffer %q is one for the methods %s; ExecuTorch's runtime gives each its own",
			b, strings.Join(uses[b], " and "))
	}
}
