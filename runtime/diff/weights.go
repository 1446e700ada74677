package diff

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir"
)

// weight is a constant, or the codes, scales and biases of a quantized weight.
type weight struct {
	name   string
	format string
	shape  []int64 // of the weight
	parts  []part  // one, or codes, scales and biases
	dtype  ir.DType
	codes  ir.WeightForm // form of a quantized weight; zero for others
}

// part is a tensor in bytes: a view of a file, or what its init chain derives.
type part struct {
	dtype ir.DType
	shape []int64
	bytes []byte
}

// weights returns the weights of the methods of a file.
type weights struct {
	list []*weight
	seen map[string]bool // by identity
}

func newWeights() *weights { return &weights{seen: map[string]bool{}} }

// quantized is the use of a quantized weight by an operation.
type quantized struct {
	codes          *ir.Constant
	scales, biases *ir.Value // biases is nil where there are none
	form           ir.WeightForm
}

// add notes the weights of a module, in the order of its constants. A weight that several methods share
// counts once.
func (w *weights) add(m *ir.Module) error {
	parts := map[*ir.Constant]bool{}
	joined := map[*ir.Constant]*weight{} // by codes
	for _, q := range quantizedWeights(m) {
		x, used, err := q.weight(m)
		if err != nil {
			return err
		}
		if x == nil {
			continue
		}
		joined[q.codes] = x
		for _, c := range used {
			parts[c] = true
		}
	}
	for _, d := range m.Derived {
		parts[d.Cell] = true // other bytes take its place
	}
	for _, c := range m.Constants {
		x := joined[c]
		if x == nil {
			if parts[c] {
				continue
			}
			p, err := constantPart(c)
			if err != nil {
				return err
			}
			x = &weight{name: c.Name, format: p.dtype.String(), shape: p.shape, dtype: p.dtype, parts: []part{p}}
		}
		if key := x.identity(); !w.seen[key] {
			w.seen[key] = true
			w.list = append(w.list, x)
		}
	}
	return nil
}

// identity returns the name of a weight with its format and where its bytes are.
func (w *weight) identity() string {
	out := w.name + " " + w.format
	for _, p := range w.parts {
		if len(p.bytes) > 0 {
			out += fmt.Sprintf(" %p", &p.bytes[0])
		}
	}
	return out
}

// constantPart returns a view of a constant's bytes.
func constantPart(c *ir.Constant) (part, error) {
	p := part{dtype: c.Data.DType(), shape: c.Data.Shape()}
	if view, ok := c.Data.(interface{ Bytes() []byte }); ok {
		p.bytes = view.Bytes()
		return p, nil
	}
	var err error
	p.bytes, err = ir.ReadData(c.Data)
	return p, err
}

// quantizedWeights finds the quantized weights that the operations of a module use, each once, in the order
// of their codes among the constants.
func quantizedWeights(m *ir.Module) []quantized {
	cells := map[*ir.Value]*ir.Constant{}
	for _, d := range m.Derived {
		cells[d.Value] = d.Cell
	}
	byCodes := map[*ir.Constant]quantized{}
	m.Entry.Body.Walk(func(op *ir.Op) {
		form, ok := ir.FormOf(op)
		switch {
		case !ok || op.Def.Name == "quantized": // has no operand w
			return
		case op.Def.Name == "dequantize" && op.Input("global_scale") != nil:
			return // a scale that has no place in a weight
		}
		q := quantized{form: form}
		codes := stored(op.Input("w"))
		if codes == nil || codes.Constant == nil {
			return
		}
		q.codes, q.scales = codes.Constant, stored(op.Input("scales"))
		if v := op.Input("biases"); v != nil {
			if q.biases = stored(v); q.biases == nil {
				return
			}
		}
		if q.scales != nil {
			byCodes[q.codes] = q
		}
	})
	var out []quantized
	for _, c := range m.Constants {
		if q, ok := byCodes[c]; ok {
			out = append(out, q)
		}
	}
	return out
}

// stored finds the constant, derived or not, whose rows a value has; nil where it is computed.
func stored(v *ir.Value) *ir.Value {
	for v != nil {
		if v.Def == nil {
			if v.Constant == nil && (v.Param != "" || v.Region != nil) {
				return nil
			}
			return v
		}
		switch v.Def.Def.Name {
		case "take", "contiguous", "id_copy":
			v = v.Def.Input("x")
		default:
			return nil
		}
	}
	return nil
}

// weight joins the parts of a quantized weight; nil where they do not fit together. It also gives the
// constants that are parts.
func (q quantized) weight(m *ir.Module) (*weight, []*ir.Constant, error) {
	w := &weight{name: logicalName(q.codes.Name), codes: q.form}
	codes, err := constantPart(q.codes)
	if err != nil {
		return nil, nil, err
	}
	w.parts = []part{codes}
	used := []*ir.Constant{q.codes}
	for _, v := range []*ir.Value{q.scales, q.biases} {
		if v == nil {
			continue
		}
		var p part
		if v.Constant != nil {
			p, err = constantPart(v.Constant)
			used = append(used, v.Constant)
		} else {
			p, err = derivedPart(m, v)
		}
		if err != nil {
			return nil, nil, err
		}
		w.parts = append(w.parts, p)
	}
	n := len(codes.shape) - 1
	if n < 1 || codes.dtype != ir.U32 || codes.shape[n]*32%int64(q.form.Bits) != 0 {
		return nil, nil, nil
	}
	w.shape = append(slices.Clone(codes.shape[:n]), q.form.Columns(codes.shape[n]))
	groups := append(slices.Clone(codes.shape[:n]), q.form.Groups(w.shape[n]))
	for _, p := range w.parts[1:] {
		if w.shape[n]%int64(q.form.Group) != 0 || !slices.Equal(p.shape, groups) {
			return nil, nil, nil
		}
	}
	w.dtype = w.parts[1].dtype
	w.format = fmt.Sprintf("%s %s", q.form, w.dtype)
	return w, used, nil
}

// logicalName returns the name of the weight that codes belong to: what etc export and ExecuTorch's exporter
// append to it is cut off.
func logicalName(codes string) string {
	if module, rest, ok := strings.Cut(codes, ".parametrizations."); ok {
		if name, _, ok := strings.Cut(rest, ".original"); ok {
			return module + "." + name
		}
	}
	for _, suffix := range []string{".packed", ".qdata_to_packed", "_to_packed"} {
		if name, ok := strings.CutSuffix(codes, suffix); ok && name != "" {
			return name
		}
	}
	return codes
}

// size returns the size of all parts in bytes.
func (w *weight) size() int64 {
	n := int64(0)
	for _, p := range w.parts {
		n += int64(len(p.bytes))
	}
	return n
}

func (w *weight) form() *Form {
	return &Form{Format: w.format, Shape: append([]int64{}, w.shape...), Size: w.size()}
}

func (w *weight) hash() string {
	all := make([][]byte, len(w.parts))
	for i, p := range w.parts {
		all[i] = p.bytes
	}
	return hash(all...)
}

// sameType reports whether two weights have the same format, shape and parts.
func (w *weight) sameType(o *weight) bool {
	return w.format == o.format && slices.Equal(w.shape, o.shape) &&
		slices.EqualFunc(w.parts, o.parts, func(p, q part) bool {
			return p.dtype == q.dtype && slices.Equal(p.shape, q.shape)
		})
}

// equal reports whether two weights of one type have the same bytes.
func (w *weight) equal(o *weight) bool {
	return slices.EqualFunc(w.parts, o.parts, func(p, q part) bool { return bytes.Equal(p.bytes, q.bytes) })
}

// compare compares a weight with its partner in the other file, which may be nil. It gives nil where there is
// no difference.
func (w *weight) compare(o *weight) (*Weight, error) {
	if o == nil {
		return &Weight{Name: w.name, Change: Removed, A: w.form()}, nil
	}
	d := &Weight{Name: w.name, Change: Retyped, A: w.form(), B: o.form()}
	if w.sameType(o) {
		if w.equal(o) {
			return nil, nil
		}
		d.Change = Changed
	}
	d.A.Hash, d.B.Hash = w.hash(), o.hash()
	var err error
	if d.RelativeRMS, err = relativeRMS(w, o); err != nil {
		return nil, fmt.Errorf("weight %s: %w", w.name, err)
	}
	return d, nil
}

// compareWeights adds the weights that differ. Weights of one name, of which there may be several, are paired
// with their like first.
func (r *Report) compareWeights(a, b *weights) error {
	others := map[string][]*weight{}
	for _, w := range b.list {
		others[w.name] = append(others[w.name], w)
	}
	partner := map[*weight]*weight{}
	take := func(w *weight, fits func(o *weight) bool) {
		if partner[w] != nil {
			return
		}
		if i := slices.IndexFunc(others[w.name], fits); i >= 0 {
			partner[w] = others[w.name][i]
			others[w.name] = slices.Delete(others[w.name], i, i+1)
		}
	}
	for _, fits := range []func(w, o *weight) bool{
		func(w, o *weight) bool { return w.sameType(o) && w.equal(o) },
		(*weight).sameType,
		func(*weight, *weight) bool { return true },
	} {
		for _, w := range a.list {
			take(w, func(o *weight) bool { return fits(w, o) })
		}
	}
	differences := make([]*Weight, len(a.list)) // nil where there is none
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, w := range a.list {
		group.Go(func() error {
			return fault.Run("comparing weights", func() (err error) {
				fault.Readable()
				differences[i], err = w.compare(partner[w])
				return err
			})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, d := range differences {
		if d == nil {
			r.Counts.WeightsEqual++
			continue
		}
		*map[Change]*int{Removed: &r.Counts.WeightsRemoved, Changed: &r.Counts.WeightsChanged,
			Retyped: &r.Counts.WeightsRetyped}[d.Change]++
		r.Weights = append(r.Weights, *d)
	}
	for _, w := range b.list {
		if slices.Contains(others[w.name], w) {
			r.Counts.WeightsAdded++
			r.Weights = append(r.Weights, Weight{Name: w.name, Change: Added, B: w.form()})
		}
	}
	slices.SortStableFunc(r.Weights, func(x, y Weight) int { return cmp.Compare(rank(x.Change), rank(y.Change)) })
	return nil
}

// rank orders changes: what is in one file only comes last.
func rank(c Change) int {
	return slices.Index([]Change{Retyped, Changed, Removed, Added}, c)
}
