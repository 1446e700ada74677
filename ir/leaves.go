package ir

// Composed is Data, or a [Computation], that is made of other data.
type Composed interface {
	// From is the data that it reads.
	From() []Data
}

// Leaves returns the data that d is made from in the end, such as the tensors of a checkpoint: everything that is not
// [Composed]. Each is listed once, in the order of first use; data with equal provenance is equal.
func Leaves(d Data) []Data {
	var out []Data
	seen := map[string]bool{}
	var walk func(d Data)
	walk = func(d Data) {
		from, composed := d.(Composed)
		if j, ok := d.(Joint); ok && !composed {
			c, _ := j.Group()
			from, composed = c.(Composed)
		}
		if composed {
			for _, f := range from.From() {
				walk(f)
			}
			return
		}
		if key := d.Provenance(); !seen[key] {
			seen[key] = true
			out = append(out, d)
		}
	}
	walk(d)
	return out
}

func (r reshaped) From() []Data { return []Data{r.Data} }
func (r rowSlice) From() []Data { return []Data{r.src} }
func (c concat) From() []Data   { return c.parts }
func (m mapped) From() []Data   { return []Data{m.src} }
func (e exact) From() []Data    { return []Data{e.Data} }
