package eval

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric/dot"
)

func init() {
	register(map[string]Kernel{
		"addmm":     addmm,
		"gather_mm": gatherMM,
	})
}

// matrices is a batch of matrices that is read by rows: the right-hand side of a product x·Wᵀ. It hides
// how the weights lie in memory: dense, transposed, or quantized.
type matrices struct {
	batch       []int // dims of the batch
	rows, inner int   // dims of one matrix
	// read gives rows [lo, hi) of matrix number b, row-major. Where copies is set it writes them to buf,
	// which has room for them; else it does not use buf.
	read   func(b, lo, hi int, buf []float32) []float32
	copies bool
}

// denseRows returns matrices [..., rows, inner] that lie as they are read.
func denseRows(v []float32, shape []int) *matrices {
	batch, rows, inner := split2(shape)
	return &matrices{batch, rows, inner, func(b, lo, hi int, _ []float32) []float32 {
		return v[(b*rows+lo)*inner : (b*rows+hi)*inner]
	}, false}
}

// denseColumns returns matrices [..., inner, rows] that are read by columns.
func denseColumns(v []float32, shape []int) *matrices {
	batch, inner, rows := split2(shape)
	return &matrices{batch, rows, inner, func(b, lo, hi int, buf []float32) []float32 {
		for k := range inner {
			at := (b*inner + k) * rows
			for j, x := range v[at+lo : at+hi] {
				buf[j*inner+k] = x
			}
		}
		return buf[:(hi-lo)*inner]
	}, true}
}

// split2 splits the last two dims off a shape of at least two.
func split2(shape []int) (batch []int, a, b int) {
	n := len(shape)
	return shape[: n-2 : n-2], shape[n-2], shape[n-1]
}

// product is one use of matrix number matrix: out[m][n] = Σ_k left[m][k]·matrix[n][k].
type product struct {
	matrix    int
	left, out []float32
}

// scratch holds the rows that multiply has finished with; a buffer is as long as a block of rows was.
var scratch = sync.Pool{New: func() any { return new([]float32) }}

// rowBlock is how many rows of a matrix are read at a time: 16 columns of a transposed matrix are a cache line.
const rowBlock = 16

// multiply computes products. Rows of a matrix are read once for all products with it, however they are ordered.
// Outputs are not whole when done is closed.
func (w *matrices) multiply(done <-chan struct{}, products []product) {
	if w.rows == 0 || len(products) == 0 {
		return
	}
	byMatrix := func(a, b product) int { return cmp.Compare(a.matrix, b.matrix) }
	if !slices.IsSortedFunc(products, byMatrix) {
		products = slices.Clone(products)
		slices.SortStableFunc(products, byMatrix)
	}
	var groups [][]product
	outputs := 0
	for len(products) > 0 {
		n := 1
		for n < len(products) && products[n].matrix == products[0].matrix {
			n++
		}
		groups, products = append(groups, products[:n]), products[n:]
		for _, p := range groups[len(groups)-1] {
			outputs += len(p.out)
		}
	}
	blocks := (w.rows + rowBlock - 1) / rowBlock
	units := len(groups) * blocks
	cost := (outputs/units + rowBlock) * (w.inner + 1)
	parallelUntil(done, units, cost, func(lo, hi int) {
		var buf []float32
		if w.copies {
			kept := scratch.Get().(*[]float32)
			defer scratch.Put(kept)
			n := min(rowBlock, w.rows) * w.inner
			*kept = slices.Grow((*kept)[:0], n)[:n]
			buf = *kept
		}
		for u := lo; u < hi; u++ {
			group, first := groups[u/blocks], u%blocks*rowBlock
			last := min(first+rowBlock, w.rows)
			block := w.read(group[0].matrix, first, last, buf)
			for _, p := range group {
				if rows := len(p.out) / w.rows; rows > 0 {
					dot.Rows(p.out[first:], w.rows, p.left, rows, block, last-first, w.inner)
				}
			}
		}
	})
}

// as returns the elements of t as floats of dtype d.
func (c *Call) as(t *Tensor, d ir.DType) []float32 { return c.cast(t, d).F }

// floatResult makes v result number i, rounded under Strict. It keeps and may change v.
func (c *Call) floatResult(i int, shape []int, v []float32) (*Tensor, error) {
	d := c.Result(i).DType
	if !d.IsFloat() {
		return nil, fmt.Errorf("result %d is %s, want a floating-point dtype", i, d)
	}
	c.roundAll(d, v)
	return Floats(d, shape, v), nil
}

// room makes the storage of a float result of the given shape.
func room(shape []int) ([]float32, error) {
	n, err := elements(shape)
	if err != nil {
		return nil, err
	}
	return make([]float32, n), nil
}

// broadcastOffsets returns, for every index of shape out in row-major order, the index into a dense tensor
// of shape from that is read as one of shape out.
func broadcastOffsets(out, from []int) []int {
	n := 1
	for _, d := range out {
		n *= d
	}
	offsets := make([]int, n)
	if n > 0 {
		eachRun(out, broadcastStrides(from, out), func(at, position, n, step int) {
			for i := range n {
				offsets[at+i] = position + i*step
			}
		})
	}
	return offsets
}

// matmul multiplies a [..., M, K] by b [..., K, N] in dtype d as MLX does: a vector gains a dim that the
// result loses again, batch dims broadcast.
func (c *Call) matmul(d ir.DType, a, b *Tensor) (shape []int, out []float32, err error) {
	left, right, err := matrixShapes(a.Shape, b.Shape)
	if err != nil {
		return nil, nil, err
	}
	aBatch, m, k := split2(left)
	w := denseColumns(c.as(b, d), right)
	if k != w.inner {
		return nil, nil, fmt.Errorf("shapes %v and %v: the last dim of the first is %d, the second needs %d",
			a.Shape, b.Shape, k, w.inner)
	}
	batch, err := broadcastShape(aBatch, w.batch)
	if err != nil {
		return nil, nil, fmt.Errorf("batch dims: %w", err)
	}
	full := append(slices.Clone(batch), m, w.rows)
	if out, err = room(full); err != nil {
		return nil, nil, err
	}
	if len(out) > 0 {
		w.multiply(c.Done, products(c.as(a, d), m, w, out, broadcastOffsets(batch, aBatch),
			broadcastOffsets(batch, w.batch)))
	}
	return dropVectorDims(full, a.Shape, b.Shape), out, nil
}

// matrixShapes makes a vector a matrix: a row on the left, a column on the right.
func matrixShapes(a, b []int) (left, right []int, err error) {
	if len(a) == 0 || len(b) == 0 {
		return nil, nil, fmt.Errorf("shapes %v and %v: a matrix product needs at least one dim on both sides", a, b)
	}
	if len(a) == 1 {
		a = []int{1, a[0]}
	}
	if len(b) == 1 {
		b = []int{b[0], 1}
	}
	return a, b, nil
}

// dropVectorDims takes the dims that matrixShapes gave to vectors a and b off the shape of their product.
func dropVectorDims(shape, a, b []int) []int {
	batch, m, n := split2(shape)
	if len(a) > 1 {
		batch = append(batch, m)
	}
	if len(b) > 1 {
		batch = append(batch, n)
	}
	return batch
}

// products pairs matrix number lhs[i] of a (each [m, inner]) with matrix number rhs[i] of w, for the i-th part of out.
func products(a []float32, m int, w *matrices, out []float32, lhs, rhs []int) []product {
	list := make([]product, len(lhs))
	in, size := m*w.inner, m*w.rows
	for i := range list {
		list[i] = product{rhs[i], a[lhs[i]*in : (lhs[i]+1)*in], out[i*size : (i+1)*size]}
	}
	return list
}

// addmm is alpha·(mat1·mat2) + beta·bias; without a bias it is mat1·mat2 and alpha is not used.
func addmm(c *Call) ([]Value, error) {
	d := c.Result(0).DType
	shape, out, err := c.matmul(d, c.Tensor("mat1"), c.Tensor("mat2"))
	if err != nil {
		return nil, err
	}
	if bias := c.Tensor("bias"); bias != nil {
		attrs := ir.Attrs[ir.AddmmAttrs](c.Op)
		if err := addBias(out, shape, c.as(bias, d), bias.Shape, attrs.Alpha, attrs.Beta); err != nil {
			return nil, err
		}
	}
	return one(c.floatResult(0, shape, out))
}

// addBias replaces out by alpha·out + beta·bias; the bias broadcasts to out's shape.
func addBias(out []float32, shape []int, bias []float32, biasShape []int, alpha, beta float32) error {
	joined, err := broadcastShape(shape, biasShape)
	if err != nil || !slices.Equal(joined, shape) {
		return fmt.Errorf("bias of shape %v does not broadcast to the product's shape %v", biasShape, shape)
	}
	for i, at := range broadcastOffsets(shape, biasShape) {
		out[i] = float32(alpha*out[i]) + float32(beta*bias[at])
	}
	return nil
}

// gatherMM multiplies matrix lhs_indices[i] of a by matrix rhs_indices[i] of b, where both number the
// matrices of the flattened batch dims; absent indices are 0, 1, … in the shape of the batch dims, and
// the two index tensors broadcast. That sorted_indices says they ascend changes nothing here.
func gatherMM(c *Call) ([]Value, error) {
	d, a, b := c.Result(0).DType, c.Tensor("a"), c.Tensor("b")
	if !c.Has("lhs_indices") && !c.Has("rhs_indices") {
		shape, out, err := c.matmul(d, a, b)
		if err != nil {
			return nil, err
		}
		return one(c.floatResult(0, shape, out))
	}
	left, right, err := matrixShapes(a.Shape, b.Shape)
	if err != nil {
		return nil, err
	}
	shape, out, err := c.gather(c.as(a, d), left, denseColumns(c.as(b, d), right))
	if err != nil {
		return nil, err
	}
	return one(c.floatResult(0, dropVectorDims(shape, a.Shape, b.Shape), out))
}

// gather returns the common part of gather_mm and gather_qmm: a has shape [..., M, K], the result [indices..., M, N].
func (c *Call) gather(a []float32, aShape []int, w *matrices) (shape []int, out []float32, err error) {
	aBatch, m, k := split2(aShape)
	if k != w.inner {
		return nil, nil, fmt.Errorf("the last dim of shape %v is %d, the matrices need %d", aShape, k, w.inner)
	}
	lhsShape, rhsShape := aBatch, w.batch
	if t := c.Tensor("lhs_indices"); t != nil {
		lhsShape = t.Shape
	}
	if t := c.Tensor("rhs_indices"); t != nil {
		rhsShape = t.Shape
	}
	batch, err := broadcastShape(lhsShape, rhsShape)
	if err != nil {
		return nil, nil, fmt.Errorf("indices: %w", err)
	}
	shape = append(slices.Clone(batch), m, w.rows)
	if out, err = room(shape); err != nil || len(out) == 0 {
		return shape, out, err
	}
	lhs, err := c.matrixIndices("lhs_indices", aBatch)
	if err != nil {
		return nil, nil, err
	}
	rhs, err := c.matrixIndices("rhs_indices", w.batch)
	if err != nil {
		return nil, nil, err
	}
	w.multiply(c.Done, products(a, m, w, out, pick(lhs, broadcastOffsets(batch, lhsShape)),
		pick(rhs, broadcastOffsets(batch, rhsShape))))
	return shape, out, nil
}

// matrixIndices reads indices into the flattened batch dims, or makes the default ones.
func (c *Call) matrixIndices(operand string, batch []int) ([]int, error) {
	n, err := elements(batch)
	if err != nil {
		return nil, err
	}
	t := c.Tensor(operand)
	if t == nil {
		indices := make([]int, n)
		for i := range indices {
			indices[i] = i
		}
		return indices, nil
	}
	if t.DType.IsFloat() {
		return nil, fmt.Errorf("%s is %s, want an integer dtype", operand, t.DType)
	}
	indices := make([]int, len(t.I))
	for i, v := range t.I {
		if v < 0 || v >= int64(n) {
			return nil, fmt.Errorf("%s[%d] is %d, want 0 to %d, the number of matrices in batch dims %v",
				operand, i, v, n-1, batch)
		}
		indices[i] = int(v)
	}
	return indices, nil
}

func pick(values, at []int) []int {
	out := make([]int, len(at))
	for i, a := range at {
		out[i] = values[a]
	}
	return out
}
