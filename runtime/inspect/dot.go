package inspect

import (
	"bufio"
	"fmt"
	"io"

	"github.com/etc-ml/etc/ir"
)

// WriteDot writes a module as a graph for Graphviz: operations are boxes, parameters, constants and buffers
// ellipses; the arms of an if and the body of a scan are clusters.
func WriteDot(w io.Writer, m *ir.Module) error {
	d := &dot{w: bufio.NewWriter(w), ids: map[any]string{}}
	d.printf("digraph %q {\n  node [shape=box, fontname=monospace];\n", m.Entry.Name)
	for _, p := range m.Entry.Params {
		d.node(p, "ellipse", p.Param+"\n"+p.Type.String())
	}
	for _, x := range m.Derived {
		d.node(x.Value, "ellipse", x.Cell.Name+"\nderived "+x.Value.Type.String())
	}
	d.region(m.Entry.Body, "  ")
	for i, r := range m.Entry.Body.Results {
		key := fmt.Sprintf("output %d", i)
		d.node(key, "ellipse", key+"\n"+m.Entry.Outputs[i].String())
		d.edge(r, key, "  ")
	}
	d.printf("}\n")
	if d.err != nil {
		return d.err
	}
	return d.w.Flush()
}

type dot struct {
	w   *bufio.Writer
	ids map[any]string // *ir.Op, *ir.Value, *ir.Buffer or string
	err error
}

func (d *dot) printf(format string, args ...any) {
	if d.err == nil {
		_, d.err = fmt.Fprintf(d.w, format, args...)
	}
}

// node writes the node of a key once and gives its name.
func (d *dot) node(key any, shape, label string) string {
	if id, ok := d.ids[key]; ok {
		return id
	}
	id := fmt.Sprintf("n%d", len(d.ids))
	d.ids[key] = id
	d.printf("  %s [shape=%s, label=%q];\n", id, shape, label)
	return id
}

// from returns the node that a value comes from.
func (d *dot) from(v *ir.Value) string {
	switch {
	case v.Def != nil:
		return d.ids[v.Def]
	case v.Constant != nil:
		return d.node(v, "ellipse", v.Constant.Name+"\n"+v.Type.String())
	case v.Region != nil:
		return d.node(v, "ellipse", fmt.Sprintf("argument %d\n%s", v.Index, v.Type))
	}
	return d.ids[v]
}

func (d *dot) edge(from *ir.Value, to any, indent string) {
	d.printf("%s%s -> %s [label=%q];\n", indent, d.from(from), d.ids[to], from.Type.String())
}

func (d *dot) region(r *ir.Region, indent string) {
	for _, op := range r.Ops {
		id := d.node(op, "box", abridge(op.Def.Name+ir.FormatAttrs(op)))
		op.EachArg(func(a *ir.Arg) {
			if a.Kind == ir.ValueArg {
				d.edge(a.Value, op, indent)
			}
		})
		if b := op.Buffer; b != nil {
			buffer := d.node(b, "ellipse", b.Name+"\nbuffer "+b.Type.String())
			if op.Def.Effect == ir.Writes {
				d.printf("%s%s -> %s [style=dashed];\n", indent, id, buffer)
			} else {
				d.printf("%s%s -> %s [style=dashed];\n", indent, buffer, id)
			}
		}
		for i, inner := range op.Regions {
			d.printf("%ssubgraph \"cluster_%s_%d\" {\n%s  label=%q;\n", indent, id, i, indent, regionName(op, i))
			d.region(inner, indent+"  ")
			d.printf("%s}\n", indent)
			for _, v := range inner.Results {
				d.edge(v, op, indent)
			}
		}
	}
}

func regionName(op *ir.Op, i int) string {
	if op.Def.Name == "if" {
		return [...]string{"then", "else"}[i]
	}
	return "body"
}

// abridge shortens a label: the attributes of a metal_kernel are whole programs.
func abridge(label string) string {
	const most = 120
	if runes := []rune(label); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return label
}
