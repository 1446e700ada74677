package kernels

import (
	"errors"
	"fmt"
	"math"
)

// Reduction is what Reduce computes of a row.
type Reduction int

// The reductions. The index of an extremum is that of its first occurrence.
const (
	SumOf Reduction = iota
	MeanOf
	MaxOf
	MinOf
	ArgMaxOf
	ArgMinOf
)

// Reduce reduces rows of N numbers, Heads rows to a token, or computes their softmax.
type Reduce struct {
	Kind     Reduction
	N, Heads int
	X        Rows
}

func (r Reduce) launch(kernel string, tokens int) (Launch, error) {
	if r.N <= 0 || r.Heads <= 0 || r.Kind < SumOf || r.Kind > ArgMinOf {
		return Launch{}, fmt.Errorf("%s of %d rows of %d numbers, of kind %d", kernel, r.Heads, r.N, r.Kind)
	}
	simdgroups := 1
	for simdgroups < 32 && simdgroups*128 < r.N {
		simdgroups *= 2
	}
	out := "float"
	if r.Kind >= ArgMaxOf {
		out = "int"
	}
	x := r.X.or(r.Heads, r.N)
	return Launch{
		File: "reduce", Kernel: kernel,
		Defines: define("REDUCE_N", r.N, "REDUCE_HEADS", r.Heads, "REDUCE_TOKEN", x.Token, "REDUCE_ROW", x.Row,
			"REDUCE_SIMDGROUPS", simdgroups, "REDUCE_KIND", int(r.Kind), "REDUCE_OUT_T", out),
		Groups: [3]int{tokens * r.Heads, 1, 1}, Threads: [3]int{simdgroups * 32, 1, 1},
	}, nil
}

// Launch is the dispatch for up to tokens tokens. It takes ReduceArguments: Out [T, Heads], f32 or for places i32.
func (r Reduce) Launch(tokens int) (Launch, error) {
	l, err := r.launch("reduce", tokens)
	l.Case = r.newCase
	return l, err
}

// SoftmaxLaunch is the dispatch for up to tokens tokens. It takes SoftmaxArguments: Y f32 [T, Heads, N].
func (r Reduce) SoftmaxLaunch(tokens int) (Launch, error) {
	l, err := r.launch("softmax", tokens)
	l.Case = r.softmaxCase
	return l, err
}

// Reference computes what the kernel computes; indices are returned as numbers.
func (r Reduce) Reference(tokens int, x, out []float32) {
	rows := r.X.or(r.Heads, r.N)
	for i := range out[:tokens*r.Heads] {
		row := x[rows.at(i/r.Heads, i%r.Heads):][:r.N]
		sum, at := 0.0, 0
		for j, v := range row {
			sum += float64(v)
			if r.before(v, row[at]) {
				at = j
			}
		}
		switch r.Kind {
		case SumOf:
			out[i] = float32(sum)
		case MeanOf:
			out[i] = float32(sum / float64(r.N))
		case MaxOf, MinOf:
			out[i] = row[at]
		case ArgMaxOf, ArgMinOf:
			out[i] = float32(at)
		}
	}
}

// before reports whether v replaces the extremum found so far, other, which comes earlier in the row. A NaN counts as
// the extremum if its value is asked for, and never if its index is.
func (r Reduce) before(v, other float32) bool {
	switch {
	case v != v || other != other:
		return (v != v) != (other != other) && (v != v) == (r.Kind == MaxOf || r.Kind == MinOf)
	case r.Kind == MinOf || r.Kind == ArgMinOf:
		return v < other
	}
	return v > other
}

// ReferenceSoftmax computes what the softmax kernel computes.
func (r Reduce) ReferenceSoftmax(tokens int, x, y []float32) {
	rows := r.X.or(r.Heads, r.N)
	for i := range tokens * r.Heads {
		row, dst := x[rows.at(i/r.Heads, i%r.Heads):][:r.N], y[i*r.N:][:r.N]
		high, sum := math.Inf(-1), 0.0
		for _, v := range row {
			high = max(high, float64(v))
		}
		for _, v := range row {
			sum += math.Exp(float64(v) - high)
		}
		for j, v := range row {
			dst[j] = float32(math.Exp(float64(v)-high) / sum)
		}
	}
}

// Gather reads rows of a table [Rows, N] by index, Each rows to a token. Negative indices count from the end; indices
// outside are clamped.
type Gather struct {
	N, Rows, Each int
	// Table and Out are F32 or BF16, Index is I32 or I64.
	Table, Out, Index DType
}

// Launch is the dispatch for up to tokens tokens. It takes GatherRowsArguments: Index [T, Each], Out [T, Each, N].
func (g Gather) Launch(tokens int) (Launch, error) {
	if g.N <= 0 || g.Rows <= 0 || g.Each <= 0 || g.Index != I32 && g.Index != I64 {
		return Launch{}, fmt.Errorf("gather of rows of a table %s[%d, %d] as %s by %s numbers", g.Table,
			g.Rows, g.N, g.Out, g.Index)
	}
	if err := errors.Join(needFloat("table", g.Table), needFloat("out", g.Out)); err != nil {
		return Launch{}, fmt.Errorf("gather: %w", err)
	}
	if n := tokens * g.Each * g.N; n > math.MaxInt32 {
		return Launch{}, fmt.Errorf("gather of %d elements, want at most %d", n, math.MaxInt32)
	}
	return Launch{
		File: "gather", Kernel: "gather_rows",
		Defines: define("GATHER_N", g.N, "GATHER_ROWS", g.Rows, "GATHER_EACH", g.Each, "GATHER_T", g.Table.text(),
			"GATHER_OUT_T", g.Out.text(),
			"GATHER_CAST(v)", dtypes[g.Out].cast, "GATHER_INDEX_T", g.Index.text()),
		Groups: [3]int{ceil(tokens*g.Each*g.N, 256), 1, 1}, Threads: [3]int{256, 1, 1},
		Case: g.newCase,
	}, nil
}

// Reference computes what the kernel does.
func (g Gather) Reference(tokens int, table []float32, index []int64, out []float32) {
	for i, row := range index[:tokens*g.Each] {
		if row < 0 {
			row += int64(g.Rows)
		}
		row = min(max(row, 0), int64(g.Rows-1))
		for j := range g.N {
			out[i*g.N+j] = g.Out.store(table[int(row)*g.N+j])
		}
	}
}
