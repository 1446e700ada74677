package speculate

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
)

// Bind returns a module whose draft reads the caches of forward where the file has inputs for them: an input of the
// method with the name and the type of a buffer of m becomes a load of that buffer, and the draft's other inputs
// are what callers give. A draft that owns its cache stays as it is. m is not changed; the result shares operations
// with it.
func Bind(m *ir.Module, draft string) (*ir.Module, error) {
	f := m.Named(draft)
	if f == nil {
		return nil, fmt.Errorf("the program has no method %s", draft)
	}
	buffers := map[string]*ir.Buffer{}
	for _, b := range m.Buffers {
		buffers[b.Name] = b
	}
	if !slices.ContainsFunc(f.Params, func(p *ir.Value) bool { return buffers[p.Param] != nil }) {
		return m, nil
	}
	copied := m.Only(f).Clone()
	n := copied.Entry
	var loads []*ir.Op
	loaded := map[*ir.Value]*ir.Value{}
	var params []*ir.Value
	err := ir.Build(func() {
		b := &ir.Builder{Module: copied, Insert: func(op *ir.Op) { loads = append(loads, op) }}
		for _, p := range n.Params {
			buffer := buffers[p.Param]
			if buffer == nil {
				params = append(params, p)
				continue
			}
			if !buffer.Type.Equal(p.Type) {
				b.Fail("%s: input %s is %s, the cache of that name %s", draft, p.Param, p.Type, buffer.Type)
			}
			loaded[p] = b.Load(buffer)
		}
	})
	if err != nil {
		return nil, err
	}
	n.Body.Ops = append(loads, n.Body.Ops...)
	ir.ReplaceUses(n.Body, loaded)
	n.Params = nil
	for _, p := range params {
		q := *p
		q.Index = len(n.Params)
		ir.ReplaceUses(n.Body, map[*ir.Value]*ir.Value{p: &q})
		n.Params = append(n.Params, &q)
	}
	out := *m
	out.More = slices.Clone(m.More)
	out.More[slices.Index(out.More, f)] = n
	return &out, ir.Verify(&out)
}
