package kernels

import (
	"fmt"
	"math"
)

// Reduction is what Reduce makes of a row.
type Reduction int

// The reductions. The places of extrema are those of the first.
const (
	SumOf Reduction = iota
	MeanOf
	MaxOf
	MinOf
	ArgMaxOf
	ArgMinOf
)

// Reduce reduces rows of N numbers, Heads of them to a token, or makes their softmax.
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

// Launch is the dispatch for up to tokens tokens. Buffers: x f32, out [T, Heads], f32 or for places i32, step.
func (r Reduce) Launch(tokens int) (Launch, error) { return r.launch("reduce", tokens) }

// SoftmaxLaunch is the dispatch for up to tokens tokens. Buffers: x f32, y f32 [T, Heads, N], step.
func (r Reduce) SoftmaxLaunch(tokens int) (Launch, error) {
	l, err := r.launch("softmax", tokens)
	l.Trial = r.trialSoftmax
	return l, err
}

// Twin computes what the kernel does; places are numbers.
func (r Reduce) Twin(tokens int, x, out []float32) {
	rows := r.X.or(r.Heads, r.N)
	for i := range out[:tokens*r.Heads] {
		row := x[rows.at(i/r.Heads, i%r.Heads):][:r.N]
		var sum float64
		low, high := 0, 0
		for j, v := range row {
			sum += float64(v)
			if v < row[low] {
				low = j
			}
			if v > row[high] {
				high = j
			}
		}
		out[i] = [...]float32{float32(sum), float32(sum / float64(r.N)), row[high], row[low], float32(high), float32(low)}[r.Kind]
	}
}

// SoftmaxTwin computes what the softmax kernel does.
func (r Reduce) SoftmaxTwin(tokens int, x, y []float32) {
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

// Gather takes rows of a table [Rows, N] by Each numbers to a token. Negative numbers count from the end; what
// lies outside is the first or the last row.
type Gather struct {
	N, Rows, Each int
	// Table, Out and Index are dtypes.
	Table, Out, Index DType
}

// Launch is the dispatch for up to tokens tokens. Buffers: table, index [T, Each], out [T, Each, N], step.
func (g Gather) Launch(tokens int) (Launch, error) {
	if g.N <= 0 || g.Rows <= 0 || g.Each <= 0 || g.Table == None || g.Out == None || g.Index != I32 && g.Index != U32 && g.Index != I64 {
		return Launch{}, fmt.Errorf("gather of rows of a table %s[%d, %d] as %s by %s numbers", g.Table, g.Rows, g.N, g.Out, g.Index)
	}
	return Launch{
		File: "gather", Kernel: "gather_rows",
		Defines: define("GATHER_N", g.N, "GATHER_ROWS", g.Rows, "GATHER_EACH", g.Each, "GATHER_T", g.Table.text(), "GATHER_OUT_T", g.Out.text(),
			"GATHER_CAST(v)", dtypes[g.Out].cast, "GATHER_INDEX_T", g.Index.text()),
		Groups: [3]int{ceil(tokens*g.Each*g.N, 256), 1, 1}, Threads: [3]int{256, 1, 1},
	}, nil
}

// Twin computes what the kernel does.
func (g Gather) Twin(tokens int, table []float32, index []int64, out []float32) {
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
