package calibrate

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric/dot"
	"github.com/etc-ml/etc/passes"
)

// site is the operation with weights that a segment begins with: an embedding, a linear or a mixture of experts.
type site struct {
	op *ir.Op
	// weights are one, or the gate, up and down projections of a mixture.
	weights []*weight
	// quantized are the quantized rows of the weights. While a mixture is solved for, they are the rows written so far.
	quantized []rows
}

// siteOf returns the site of a segment, nil if it has none.
func (d *driver) siteOf(op *ir.Op) (*site, error) {
	if op == nil {
		return nil, nil
	}
	names := []string{"gate", "up", "down"}
	switch op.Def.Name {
	case "linear":
		if op.Input("bias") != nil {
			return nil, fmt.Errorf("calibration knows no linear with a bias")
		}
		names = []string{"weight"}
	case "embedding":
		names = []string{"weight"}
	}
	x := &site{op: op}
	for _, name := range names {
		w, err := d.weightOf(op, name)
		if err != nil {
			return nil, err
		}
		x.weights = append(x.weights, w)
	}
	x.quantized = make([]rows, len(names))
	return x, nil
}

// weightOf returns the weight in an operand of op.
func (d *driver) weightOf(op *ir.Op, operand string) (*weight, error) {
	v := op.Input(operand)
	if v == nil || v.Constant == nil {
		return newWeight(nil, nil)
	}
	kind := passes.LinearWeight
	if op.Def.Name == "embedding" {
		kind = passes.EmbeddingWeight
	}
	scheme := d.options.Recipe.Scheme(kind, v.Constant.Name)
	return newWeight(v.Constant, scheme)
}

// prepare finds the quantized rows of a site's weights: those of another program, those that a method without a text
// gives, those that the directory has, or those that it solves for now.
func (d *driver) prepare(x *site, c config) error {
	if x.op.Def.Name == "embedding" { // calibration does not quantize embeddings
		x.quantized[0] = x.weights[0].given
		if d.source != nil {
			from, err := d.source.Rows(x.weights[0].constant, passes.EmbeddingWeight)
			x.quantized[0] = from
			return err
		}
		return nil
	}
	open := make([]*stored, len(x.weights)) // files that are being written
	for i, w := range x.weights {
		var err error
		if x.quantized[i], open[i], err = d.rowsOf(w); err != nil {
			return err
		}
	}
	if !slices.ContainsFunc(open, func(s *stored) bool { return s != nil }) {
		return nil
	}
	solve := d.solveExperts
	if len(open) == 1 {
		solve = d.solveLinear
	}
	if err := solve(x, open, c); err != nil {
		return err
	}
	for i, file := range open {
		if file == nil {
			continue
		}
		if err := d.store.finish(file); err != nil {
			return err
		}
		found, err := d.store.find(file.weight)
		if err != nil {
			return err
		}
		x.quantized[i] = found.quantizedRows
	}
	return nil
}

// rowsOf returns the source of the quantized rows of a weight. It creates a missing file, and also returns it for the
// rows to be written.
func (d *driver) rowsOf(w *weight) (rows, *stored, error) {
	if d.source != nil {
		other, err := d.source.Rows(w.constant, passes.LinearWeight)
		return other, nil, err
	}
	if !w.calibrated() {
		return w.plain, nil, nil
	}
	x, err := d.store.find(w)
	if err != nil {
		return nil, nil, err
	}
	if x != nil {
		return x.quantizedRows, nil, nil
	}
	if x, err = d.store.create(w); err != nil {
		return nil, nil, err
	}
	return x.quantizedRows, x, nil
}

// sources returns the rows of the weights that a stream computes with.
func (x *site) sources(quantized bool) []rows {
	if x == nil {
		return nil
	}
	out := slices.Clone(x.quantized)
	for i, w := range x.weights {
		if !quantized {
			out[i] = w.given
		}
	}
	return out
}

// siteResults computes the site for some windows of a stream, with rows of its weights. It returns the results by call,
// and the bytes that they take in the ledger.
func (d *driver) siteResults(s *stream, x *site, from []rows, windows []*window, each eachFunc) (
	out []map[*ir.Value]eval.Value, held int64, err error) {
	all := calls(windows)
	out = make([]map[*ir.Value]eval.Value, len(all))
	if x == nil {
		return out, 0, nil
	}
	var y dot.Matrix
	operand := "x"
	switch x.op.Def.Name {
	case "embedding":
		operand = "indices"
		y, err = d.embed(s, x, from[0], all, each)
	case "linear":
		y, err = d.multiply(s, x, from[0], all, each)
	default:
		y, err = d.runExperts(s, x, from, all, each)
	}
	held = floatBytes(len(y.Values))
	if err != nil {
		d.ledger.give(held)
		return nil, 0, err
	}
	at, v := 0, x.op.Result()
	for i, c := range all {
		dims := slices.Clone(c.items[x.op.Input(operand)].value.Tensor.Shape)
		if operand == "x" {
			dims = dims[:len(dims)-1]
		}
		n := y.Cols
		for _, size := range dims {
			n *= size
		}
		t := eval.Floats(v.Type.DType, append(dims, y.Cols), y.Values[at:at+n:at+n])
		out[i] = map[*ir.Value]eval.Value{v: {Tensor: t}}
		at += n
	}
	return out, held, nil
}

// matrix makes a matrix of zeros, which the ledger counts.
func (d *driver) matrix(rows, cols int) dot.Matrix {
	d.ledger.reserve(floatBytes(rows * cols))
	return dot.Dense(make([]float32, rows*cols), rows, cols)
}

// release gives the bytes of a matrix back.
func (d *driver) release(m dot.Matrix) { d.ledger.give(floatBytes(len(m.Values))) }

// embed runs an embedding for some calls, with rows of its weight.
func (d *driver) embed(s *stream, x *site, from rows, all []*call, each eachFunc) (dot.Matrix, error) {
	w := x.weights[0]
	starts, n := make([]int, len(all)), 0
	for i, c := range all {
		starts[i] = n
		n += c.items[x.op.Input("indices")].length()
	}
	out := d.matrix(n, w.cols)
	return out, each.try(len(all), func(i int) error {
		value, bytes, err := s.activations.get(all[i].items[x.op.Input("indices")])
		if err != nil {
			return err
		}
		d.ledger.take(bytes)
		defer d.ledger.give(bytes)
		for j, id := range value.Tensor.I {
			if id < 0 || id >= int64(w.rows) {
				return fmt.Errorf("token %d, want 0 to %d", id, w.rows-1)
			}
			row, err := from(int(id), 1)
			if err != nil {
				return err
			}
			copy(out.Row(starts[i]+j), row.Values)
		}
		return nil
	})
}

// multiply runs a linear for some calls, with rows of its weight.
func (d *driver) multiply(s *stream, x *site, from rows, all []*call, each eachFunc) (dot.Matrix, error) {
	t, err := newTable(s.activations, all, x.op.Input("x"))
	if err != nil {
		return dot.Matrix{}, err
	}
	in := d.matrix(t.rows, t.cols)
	defer d.release(in)
	if err := t.read(in.Values, 0, t.rows); err != nil {
		return dot.Matrix{}, err
	}
	w := x.weights[0]
	out := d.matrix(t.rows, w.rows)
	return out, d.product(out, in, from, 0, each)
}

// product sets out to x·Wᵀ for as many rows of a weight W as out has columns, from row first on.
func (d *driver) product(out, x dot.Matrix, w rows, first int, each eachFunc) error {
	n := out.Cols
	return each.try((n+weightRows-1)/weightRows, func(b int) error {
		at := b * weightRows
		count := min(weightRows, n-at)
		held := rowsBytes(count, x.Cols)
		d.ledger.take(held)
		defer d.ledger.give(held)
		part, err := w(first+at, count)
		if err != nil {
			return err
		}
		const block = 256 // rows of x that stay in a core's cache beside the weight's
		for t := 0; t < x.Rows; t += block {
			m := min(block, x.Rows-t)
			dot.Multiply(out.Part(t, at, m, count), x.Part(t, 0, m, x.Cols), part)
		}
		return nil
	})
}

// rowsBytes returns the memory for n rows of a weight: the numbers, the bytes that they are decoded from, and those in
// between.
func rowsBytes(n, cols int) int64 { return 12 * int64(n) * int64(cols) }
