package cpu

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
)

// piece is a part of the rows of a matrix, as threads claim them.
type piece struct {
	matrix int
	lo, hi int
}

// A thread that begins a piece waits for memory before it reads at full speed, for as long as it then reads 20 KiB or
// so, so pieces of a matrix that is multiplied by one vector are large. They get smaller towards the end, so that
// threads end together.
const (
	largestPiece  = 1 << 20
	smallestPiece = 32 << 10
)

// pieces cuts matrices into parts of multiples of step rows for products with a number of vectors.
func pieces(matrices []*kernel.Matrix, vectors, step, threads int) []piece {
	var out []piece
	left := 0
	for _, m := range matrices {
		left += m.Bytes(m.Rows)
	}
	for i, m := range matrices {
		row := max(m.Bytes(1), 1)
		for lo := 0; lo < m.Rows; {
			rows := 0
			if vectors > 1 {
				rows = step * max(1, 64/vectors)
			} else {
				// Parts of what is left of the matrix, of equal size.
				rows = max(1, min(max(left/(2*threads), smallestPiece), largestPiece)/row)
				parts := (m.Rows - lo + rows - 1) / rows
				if rows = (m.Rows - lo + parts - 1) / parts; rows > 8 {
					rows = roundUp(rows, 8)
				}
				rows = roundUp(rows, step)
			}
			hi := min(lo+rows, m.Rows)
			out = append(out, piece{i, lo, hi})
			left -= (hi - lo) * row
			lo = hi
		}
	}
	return out
}

// roundUp returns the next multiple of step from n on.
func roundUp(n, step int) int { return (n + step - 1) / step * step }

func bindLinear(b *binder) bool {
	w := b.x.exe.weight(b.Op.Input("weight"))
	if w == nil {
		return false
	}
	var bias []float32
	if b.Op.Input("bias") != nil {
		if bias = b.vector("bias", w.rows); bias == nil {
			return false
		}
	}
	return b.products([]*weight{w}, bias)
}

func bindLinears(b *binder) bool {
	var weights []*weight
	for _, a := range b.Op.Operand("weights") {
		w := b.x.exe.weight(a.Value)
		if w == nil {
			return false
		}
		weights = append(weights, w)
	}
	return b.products(weights, nil)
}

// products binds the products of x with matrices, all in one loop.
func (b *binder) products(weights []*weight, bias []float32) bool {
	x := b.Input("x")
	if x == nil || !x.isFloats() {
		return false
	}
	vectors, width, stride, ok := x.rows()
	if !ok {
		x = b.denseFloats(x)
		vectors, width, stride, _ = x.rows()
	}
	matrices := make([]*kernel.Matrix, len(weights))
	results := make([]*value, len(weights))
	layouts := make([]int, len(weights)) // which form of the activations a matrix takes
	var forms []kernel.Layout
	bytes := 0
	for i, w := range weights {
		if w.cols != width || len(w.matrices) != 1 {
			return false
		}
		matrices[i] = &w.matrices[0]
		bytes += matrices[i].Bytes(w.rows)
		if results[i] = b.result(i, nil); results[i] == nil || results[i].len() != vectors*w.rows {
			return false
		}
		layout := b.x.exe.layout(matrices[i])
		layouts[i] = len(forms)
		for j, f := range forms {
			if f == layout {
				layouts[i] = j
			}
		}
		if layouts[i] == len(forms) {
			forms = append(forms, layout)
		}
	}
	list := pieces(matrices, vectors, rowStep(forms, vectors), b.x.exe.pool.Threads())
	acts := b.activations(len(forms))
	body := func(lo, hi int) {
		for _, p := range list[lo:hi] {
			m, out := matrices[p.matrix], results[p.matrix].slot.f
			kernel.MatMul(out, m.Rows, m, acts[layouts[p.matrix]], p.lo, p.hi)
			if bias != nil {
				for i := range vectors {
					row := out[i*m.Rows:][p.lo:p.hi]
					kernel.Add(row, row, bias[p.lo:p.hi])
				}
			}
		}
	}
	fill := b.filler(acts, forms, vectors, width, func() ([]float32, int) { return x.floats(), stride })
	run := b.parallel(len(list), 1, body)
	s := b.do(b.Op.Def.Name, func() {
		fill()
		run()
	})
	s.bytes, s.flops = bytes, 2*vectors*width*totalRows(weights)
	return true
}

// rowStep returns the rows by which matrices are cut that take activations in these forms.
func rowStep(forms []kernel.Layout, vectors int) (step int) {
	for _, f := range forms {
		step = max(step, f.RowStep(vectors))
	}
	return step
}

func totalRows(weights []*weight) int {
	n := 0
	for _, w := range weights {
		n += w.rows
	}
	return n
}

// activations returns the instance's for the inputs of a product, in n forms. Every step fills them anew.
func (b *binder) activations(n int) []*kernel.Activations {
	for len(b.x.activations) < n {
		b.x.activations = append(b.x.activations, &kernel.Activations{})
	}
	return b.x.activations[:n:n]
}

// filler makes a function that brings vectors of floats into the forms that matrices take. Many are
// divided among the threads.
func (b *binder) filler(acts []*kernel.Activations, forms []kernel.Layout, vectors, width int,
	source func() (x []float32, stride int)) func() {
	fill := func(lo, hi int) {
		x, stride := source()
		for i := range forms {
			acts[i].Fill(x[lo*stride:], stride, lo, hi)
		}
	}
	grain := max(1, (16<<10)/max(width, 1))
	run := b.parallel(vectors, grain, fill)
	return func() {
		for i, f := range forms {
			acts[i].Reset(f, vectors, width)
		}
		run()
	}
}

func bindEmbedding(b *binder) bool {
	w, indices := b.x.exe.weight(b.Op.Input("weight")), b.Input("indices")
	if w == nil || len(w.matrices) != 1 || indices == nil || indices.kind != dense ||
		indices.dtype.IsFloat() || !indices.isDense() {
		return false
	}
	out := b.result(0, nil)
	if out == nil || out.len() != indices.len()*w.cols {
		return false
	}
	m, n := &w.matrices[0], indices.len()
	unsigned := indices.dtype == ir.U64
	s := b.step("embedding", func() error {
		for i, at := range indices.ints()[:n] {
			r, err := rowIndex(at, i, m.Rows, unsigned)
			if err != nil {
				return err
			}
			m.Row(out.slot.f[i*m.Cols:(i+1)*m.Cols], r)
		}
		return nil
	})
	s.bytes = n * m.Bytes(1)
	return true
}

// rowIndex reads an index as the reference kernel does: negative ones count from the end.
func rowIndex(at int64, i, rows int, unsigned bool) (int, error) {
	if at < 0 && !unsigned {
		at += int64(rows)
	}
	if at < 0 || at >= int64(rows) {
		return 0, fmt.Errorf("embedding: indices[%d] is %d, the weight has %d rows", i, at, rows)
	}
	return int(at), nil
}
