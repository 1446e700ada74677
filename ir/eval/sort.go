package eval

import (
	"cmp"
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
)

func init() {
	register(map[string]Kernel{
		"sort":    sortAxis,
		"argsort": argSort,
	})
}

// sortedRow is a row together with its order: element number at(k) is the k-th smallest. The sort is
// stable and NaN comes last.
type sortedRow struct {
	floats []float32 // exactly one of floats and ints is set
	ints   []int64
	keys   []uint64 // the lower 32 bits are the positions
}

func (r *sortedRow) at(k int) int { return int(uint32(r.keys[k])) }

// sortRows sorts the rows of x and calls f with each, in order of the result.
func sortRows(r *rows, x *Tensor, f func(i int, row sortedRow)) {
	keys := make([]uint64, r.n)
	if x.F != nil {
		eachRow(r, x.F, func(i int, row []float32) {
			for j, v := range row {
				keys[j] = uint64(floatKey(v))<<32 | uint64(j)
			}
			slices.Sort(keys)
			f(i, sortedRow{floats: row, keys: keys})
		})
		return
	}
	eachRow(r, x.I, func(i int, row []int64) {
		sortInts(keys, row, x.DType)
		f(i, sortedRow{ints: row, keys: keys})
	})
}

// floatKey maps floats to numbers of the same order: both zeros are equal, every NaN is greatest.
func floatKey(v float32) uint32 {
	switch {
	case v != v:
		return math.MaxUint32
	case v == 0:
		return 1 << 31
	}
	b := math.Float32bits(v)
	if b>>31 != 0 {
		return ^b
	}
	return b | 1<<31
}

// sortInts sets the lower halves of keys to the stable order of row.
func sortInts(keys []uint64, row []int64, d ir.DType) {
	if d.Size() < 8 {
		least := int64(0)
		if !d.IsUnsigned() {
			least = math.MinInt32
		}
		for j, v := range row {
			keys[j] = uint64(v-least)<<32 | uint64(j)
		}
		slices.Sort(keys)
		return
	}
	if d == ir.U64 {
		row = ordered(row)
	}
	for j := range keys {
		keys[j] = uint64(j)
	}
	slices.SortFunc(keys, func(a, b uint64) int { return cmp.Or(cmp.Compare(row[a], row[b]), cmp.Compare(a, b)) })
}

func sortAxis(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	r, err := alongRows(x, ir.Attrs[ir.AxisAttrs](c.Op).Axis)
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(x.DType, x.Shape...)
	if err != nil {
		return nil, err
	}
	floats, ints := make([]float32, r.n), make([]int64, r.n)
	sortRows(r, x, func(i int, row sortedRow) {
		if x.F != nil {
			for k := range floats {
				floats[k] = row.floats[row.at(k)]
			}
			setRow(r, out.F, i, floats)
		} else {
			for k := range ints {
				ints[k] = row.ints[row.at(k)]
			}
			setRow(r, out.I, i, ints)
		}
	})
	return c.result(out, nil)
}

// argSort returns the positions that sort an axis, as u32.
func argSort(c *Call) ([]Value, error) {
	x := c.Tensor("x")
	r, err := alongRows(x, ir.Attrs[ir.AxisAttrs](c.Op).Axis)
	if err != nil {
		return nil, err
	}
	out, err := NewTensor(ir.U32, x.Shape...)
	if err != nil {
		return nil, err
	}
	order := make([]int64, r.n)
	sortRows(r, x, func(i int, row sortedRow) {
		for k := range order {
			order[k] = int64(row.at(k))
		}
		setRow(r, out.I, i, order)
	})
	return c.result(out, nil)
}
