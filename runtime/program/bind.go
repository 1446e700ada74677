package program

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

// Bind gives the constants of a module that was parsed from text the bytes of the file's named data of
// their names.
func (p *Program) Bind(m *ir.Module) error {
	segments := map[string]int{}
	for _, n := range p.File.NamedData() {
		if _, twice := segments[n.Key]; !twice {
			segments[n.Key] = n.Segment
		}
	}
	for _, c := range m.Constants {
		raw, ok := p.File.Lookup(c.Name)
		if !ok {
			return invalid(p, "", fmt.Errorf("no named data %q, which the module's constant needs", c.Name))
		}
		dims, _ := c.Value.Type.Static()
		want := ir.Elements(dims) * int64(c.Value.Type.DType.Size())
		if int64(len(raw)) != want {
			return invalid(p, "", fmt.Errorf("named data %q has %d bytes, constant @%s of type %s needs %d", c.Name,
				len(raw), c.Name, c.Value.Type, want))
		}
		// Names of one segment share their provenance, so that it is written once again.
		c.Data = &Constant{name: fmt.Sprint("segment ", segments[c.Name]), dtype: c.Value.Type.DType,
			shape: slices.Clone(dims), bytes: raw}
	}
	return nil
}
