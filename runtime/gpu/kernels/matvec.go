package kernels

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Norm is the kind of RMS norm that is applied to vectors before a product: x / sqrt(mean(x²) + Eps) · weights. Zhang
// and Sennrich, arXiv:1910.07467.
type Norm int

// The norms.
const (
	NoNorm    Norm = iota
	NormBF16       // with weights bf16 [K]
	NormF32        // with weights f32 [K]
	NormPlain      // without weights
)

// Activation is the activation function of a gate.
type Activation int

// The activations of ir.Activations.
const (
	Identity Activation = iota
	SiLU
	Sigmoid
	GELU
	GELUTanh
)

// ActivationNamed returns the activation with the name that ir uses.
func ActivationNamed(name string) (Activation, error) {
	for i, n := range []string{"", "silu", "sigmoid", "gelu", "gelu_tanh"} {
		if n == name {
			return Activation(i), nil
		}
	}
	return 0, fmt.Errorf("activation %q, want silu, sigmoid, gelu or gelu_tanh", name)
}

// of computes the activation in float64.
func (a Activation) of(x float64) float64 {
	switch a {
	case SiLU:
		return x / (1 + math.Exp(-x))
	case Sigmoid:
		return 1 / (1 + math.Exp(-x))
	case GELU:
		return 0.5 * x * (1 + math.Erf(x/math.Sqrt2))
	case GELUTanh:
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	return x
}

// Vectors has what all products of a few vectors with stored weights have in common.
type Vectors struct {
	Format
	// K is the length of the vectors.
	K int
	// M is the number of vectors that the kernel is made for, 1 to 8. If it is more than 1, step says how many there
	// are.
	M int
	// Norm is the norm that is fused with the product. Eps belongs to it.
	Norm Norm
	Eps  float32
	// Sum, if not nil, is the residual sum whose norm is the vector. Only streamed products of one vector have it.
	Sum *VectorSum
}

// VectorSum computes the vector of a product from a vector x [K], which is normalized, and a residual:
//
//	v = (x/rms(x)·before + residual)·scale
//
// with rms(x) = √(mean(x²) + Eps).
type VectorSum struct {
	Eps float32
	// Scaled says that there is a scale. Kept says that v is written too.
	Scaled, Kept bool
}

// Reference computes the vector v.
func (s VectorSum) Reference(x, before, residual []float32, scale float32) []float32 {
	n := RMSNorm{N: len(x), Heads: 1, Pre: F32, PreEps: s.Eps, Add: true, Sum: true, SumOnly: true}
	if s.Scaled {
		n.Scale = F32
	}
	v := make([]float32, len(x))
	n.Reference(1, x, before, residual, scale, nil, nil, v, nil)
	return v
}

// MatVec is y = x·Wᵀ with x [M, K] and W [N, K].
type MatVec struct {
	Vectors
	N int
	// Epilogue is applied to the results. Cap is the bound of a softcap.
	Epilogue Epilogue
	// Cap is the softcap's.
	Cap float32
	// Head, if not 0, is the number of columns of a head. Each head of the vector is normalized on its own and
	// multiplied by a gate: x = head/rms(head)·weights·Activation(gate), with weights [Head] and a gate [K]. There is
	// one vector.
	Head       int
	Activation Activation
}

// Epilogue is what is done with the results of a product before they are written.
type Epilogue int

// The epilogues.
const (
	NoEpilogue Epilogue = iota
	AddMatrix           // + extra [M, N]
	AddVector           // + extra [N]
	Softcap             // Cap · tanh(y / Cap)
)

// Tunings returns the variants worth measuring on a machine, the default first.
func (v MatVec) Tunings(m Machine) []Tuning {
	return v.variants(m, 1, []int{v.N}, v.Head == 0)
}

// Launch is the dispatch. It takes MatVecArguments: X f32 [M, K], Norm [K] or [Head], Gate f32 [K], Extra f32 [M, N] or
// [N], Y f32 [M, N]. With a Sum it takes StreamSumOneArguments: Before and Residual f32 [K], Scale f32 [1] and Out,
// where the vector is kept, f32 [K]; no kernel may write Before and Scale.
func (v MatVec) Launch(t Tuning) (Launch, error) {
	more := define("MATVEC_EPILOGUE", int(v.Epilogue), "MATVEC_CAP", v.Cap)
	if v.Head != 0 {
		if v.Sum != nil || v.Head < 8 || v.Head > 128 || v.Head&(v.Head-1) != 0 || v.K%v.Head != 0 ||
			v.M != 1 || v.Norm == NoNorm {
			return Launch{}, fmt.Errorf(
				"matvec of %d vectors of %d columns in heads of %d: want one vector that is no sum, normed in heads "+
					"of 8, 16, 32, 64 or 128", v.M, v.K, v.Head)
		}
		if t.Direct {
			return Launch{}, fmt.Errorf("matvec: tuning: heads of %d columns are read directly, want them staged",
				v.Head)
		}
		if full, err := v.tune(t, 1, 1); err == nil && t.Stream.Groups == 0 && full.Chunk < v.K &&
			full.Chunk%v.Head != 0 {
			return Launch{}, fmt.Errorf("matvec: tuning: chunks of %d columns part heads of %d", full.Chunk, v.Head)
		}
		more = append(more, define("MATVEC_HEAD", v.Head, "MATVEC_GATE", int(v.Activation))...)
	}
	return v.launch(t, "", 1, []int{v.N}, more, v.newCase)
}

// Reference computes what the kernel computes, for len(y)/N vectors.
func (v MatVec) Reference(w *Weight, x, norm, gate, extra, y []float32) {
	if v.Head != 0 {
		x, v.Norm = v.gated(x, norm, gate), NoNorm
	}
	v.products(w, x, norm, func(m, n int, sum float64) {
		switch i := m*v.N + n; v.Epilogue {
		case AddMatrix:
			sum += float64(extra[i])
		case AddVector:
			sum += float64(extra[n])
		case Softcap:
			sum = float64(v.Cap) * math.Tanh(sum/float64(v.Cap))
		}
		y[m*v.N+n] = float32(sum)
	})
}

// gated returns the vector after the norm of heads and the gate.
func (v MatVec) gated(x, norm, gate []float32) []float32 {
	out := make([]float32, v.K)
	for at := 0; at < v.K; at += v.Head {
		for i, e := range v.normed(x[at:at+v.Head], norm) {
			out[at+i] = float32(e * v.Activation.of(float64(gate[at+i])))
		}
	}
	return out
}

// maxWeights is the largest number of weights of one product.
const maxWeights = 4

// MatVecMany is the products of the same vectors with 1 to 4 weights of N[i] rows and one format.
type MatVecMany struct {
	Vectors
	N []int
	// Conv, if not nil, is a convolution of one token: the first Channels results of weight 0. There is one vector.
	// Conv.Token is not used.
	Conv *Conv
	// Slots, if not 0, is the number of sequences that the table of a call of several has room for. The row is the only
	// one of the call, and the convolution's state lies in a slot of a pool, as in a SlotConv.
	Slots int
	// Early says that no kernel of the sequence writes the convolution's state and reset before this one, so it can
	// read them while the kernels before it still run.
	Early bool
	// Activated are results that are also written after an activation.
	Activated Activated
}

// Activated selects Rows results of weight number Weight, from row First on. Rows is 0 for none.
type Activated struct {
	Weight, First, Rows int
	Activation          Activation
}

// Tunings returns the variants worth measuring on a machine, the default first. Only tiles take more than 8 vectors.
func (v MatVecMany) Tunings(m Machine) []Tuning {
	if v.M > vectorsTiled {
		return v.byTiles(m)
	}
	return append(v.byTiles(m), v.variants(m, 1, v.N, true)...)
}

// Launch is the dispatch. It takes MatVecManyArguments: X f32 [M, K], Norm [K], of weight i the results Yi f32 [M,
// N[i]]; with a Conv its ConvW, Reset, State, ConvY f32 [Channels] and Next, the state after it, which may be State
// itself; with Slots State and Next are the pool, and there are Entries i32 [Slots, 3] and Writes i32 [1] as of a
// SlotConv; Activated f32 [M, Rows].
func (v MatVecMany) Launch(t Tuning) (Launch, error) {
	if len(v.N) < 1 || len(v.N) > maxWeights || v.Sum != nil {
		return Launch{}, fmt.Errorf("products with %d weights at once, want 1 to %d, and a vector that is no sum",
			len(v.N), maxWeights)
	}
	if t.Tiles != 0 {
		return v.launchTiles(t)
	}
	var more []Define
	if v.Conv != nil {
		if err := v.Conv.check(); err != nil {
			return Launch{}, err
		}
		if v.M != 1 || v.Conv.Channels > v.N[0] {
			return Launch{}, fmt.Errorf(
				"convolution of %d channels behind products of %d vectors with %d rows, want one vector and a row "+
					"for every channel", v.Conv.Channels, v.M, v.N[0])
		}
		more = append(define("MATVEC_CONV", true, "MATVEC_CONV_EARLY", v.Early), v.Conv.defines()...)
	}
	if v.Slots != 0 {
		if v.Conv == nil || v.Conv.Reset != NoReset || v.Slots < 0 {
			return Launch{}, fmt.Errorf("a table of %d sequences, want 1 at least with a convolution that is never reset, "+
				"none without", v.Slots)
		}
		more = append(more, define("CONV_SLOTS", v.Slots)...)
	}
	if a := v.Activated; a.Rows > 0 {
		if a.Weight < 0 || a.Weight >= len(v.N) || a.First < 0 || a.First+a.Rows > v.N[a.Weight] {
			return Launch{}, fmt.Errorf("activations of results %d to %d of weight %d, there are %v", a.First,
				a.First+a.Rows, a.Weight, v.N)
		}
		more = append(more, define("MATVEC_ACTIVATED", a.Rows, "MATVEC_ACTIVATED_OF", a.Weight,
			"MATVEC_ACTIVATED_FIRST", a.First, "MATVEC_ACTIVATION", int(a.Activation))...)
	}
	return v.launch(t, "_many", 1, v.N, more, v.newCase)
}

// Reference computes what the kernel computes for one of the weights. Conv.Reference does the rest.
func (v MatVecMany) Reference(w *Weight, x, norm, y []float32) {
	v.products(w, x, norm, func(m, n int, sum float64) { y[m*w.N+n] = float32(sum) })
}

// ReferenceActivated computes the activated results from y, the results of their weight.
func (v MatVecMany) ReferenceActivated(y, activated []float32) {
	a := v.Activated
	for m := range len(activated) / max(a.Rows, 1) {
		for i := range a.Rows {
			activated[m*a.Rows+i] = float32(a.Activation.of(float64(y[m*v.N[a.Weight]+a.First+i])))
		}
	}
}

// MatVecGLU is y = activation(x·Gateᵀ) ⊙ x·Upᵀ.
type MatVecGLU struct {
	Vectors
	N          int
	Activation Activation
}

// Tunings returns the variants worth measuring on a machine, the default first.
func (v MatVecGLU) Tunings(m Machine) []Tuning { return v.variants(m, 2, []int{v.N}, true) }

// Launch is the dispatch. It takes MatVecGLUArguments: gate W0 and up W1, X f32 [M, K], Norm [K], Y f32 [M, N]; with a
// Sum StreamSumGLUArguments, of which MatVec tells the rest.
func (v MatVecGLU) Launch(t Tuning) (Launch, error) {
	return v.launch(t, "_glu", 2, []int{v.N}, define("MATVEC_ACTIVATION", int(v.Activation)), v.newCase)
}

// Reference computes what the kernel does.
func (v MatVecGLU) Reference(gate, up *Weight, x, norm, y []float32) {
	g := make([]float64, len(y))
	v.products(gate, x, norm, func(m, n int, sum float64) { g[m*v.N+n] = v.Activation.of(sum) })
	v.products(up, x, norm, func(m, n int, sum float64) { y[m*v.N+n] = float32(g[m*v.N+n] * sum) })
}

// products calls f with the product of each normalized vector of x and each row of w.
func (v Vectors) products(w *Weight, x, norm []float32, f func(m, n int, sum float64)) {
	for m := range len(x) / v.K {
		row := v.normed(x[m*v.K:(m+1)*v.K], norm)
		for n := range w.N {
			sum := 0.0
			for k, e := range row {
				sum += e * w.At(n, k)
			}
			f(m, n, sum)
		}
	}
}

// normed returns a vector after the norm.
func (v Vectors) normed(x, norm []float32) []float64 {
	out := make([]float64, len(x))
	squares := 0.0
	for k, e := range x {
		out[k] = float64(e)
		squares += float64(e) * float64(e)
	}
	if v.Norm == NoNorm {
		return out
	}
	factor := 1 / math.Sqrt(squares/float64(len(x))+float64(v.Eps))
	for k := range out {
		out[k] *= factor
		if v.Norm != NormPlain {
			out[k] *= float64(norm[k])
		}
	}
	return out
}

// variants returns the variants worth measuring for a product with weights of these numbers of rows (planes is 2 for
// pairs of weights). The defaults of both forms come first, streamed (or resident, for a product too small for a ring)
// and not streamed, so that one that fails on a device leaves the other. With direct, variants without staging follow.
func (v Vectors) variants(m Machine, planes int, rows []int, direct bool) []Tuning {
	key := variantsKey{vectors: v, machine: m, planes: planes, direct: direct}
	copy(key.rows[:], rows)
	if key.vectors.Sum = nil; v.Sum != nil {
		key.summed, key.sum = true, *v.Sum
	}
	return productVariants.of(key, func() []Tuning { return slices.Clip(v.makeVariants(m, planes, rows, direct)) })
}

// variantsKey has everything that the variants of a product depend on.
type variantsKey struct {
	vectors Vectors // without the sum
	summed  bool
	sum     VectorSum
	machine Machine
	planes  int
	rows    [maxWeights]int
	direct  bool
}

var productVariants remembered[variantsKey, []Tuning]

func (v Vectors) makeVariants(m Machine, planes int, rows []int, direct bool) []Tuning {
	s := streamed{Vectors: v, planes: planes, rows: rows}
	streams, others := s.streams(m), v.tunings(m.Target, rows[0], 1)
	if v.Sum != nil {
		return streams
	}
	if len(streams) == 0 {
		streams = s.residentTunings(m)
	}
	all := among(streams, others)
	if direct {
		all = append(all, v.directs(m.Target, planes, s.all())...)
	}
	return all
}

// among joins two lists of variants, the defaults of both first.
func among(first, second []Tuning) []Tuning {
	if len(first) == 0 || len(second) == 0 {
		return append(first, second...)
	}
	return slices.Concat(first[:1], second[:1], first[1:], second[1:])
}

// launch returns the dispatch of a kernel of matvec.metal, or of stream.metal for a streamed tuning. kernel is the part
// of the kernel's name that follows the name of the file.
func (v Vectors) launch(t Tuning, kernel string, planes int, rows []int, more []Define,
	of func(l Launch, block int, s Sizes) *Case) (Launch, error) {
	var l Launch
	var block int
	var err error
	if t.Stream != (Stream{}) {
		l, block, err = streamed{Vectors: v, Stream: t.Stream, planes: planes, rows: rows}.launch()
		if v.Sum != nil {
			l.Kernel += "_sum"
			kernel = cmp.Or(kernel, "_one")
		}
	} else {
		l, block, err = v.divided(t, planes, rows)
	}
	l.Kernel += kernel
	if err != nil {
		return Launch{}, fmt.Errorf("%s %v×%d: %w", l.Kernel, rows, v.K, err)
	}
	for i, n := range rows {
		l.Defines = append(l.Defines, Define{"MATVEC_N" + strconv.Itoa(i), strconv.Itoa(n)})
	}
	l.Defines = append(l.Defines, more...)
	l.Case = func(s Sizes) *Case { return of(l, block, s) }
	return l, nil
}

// divided returns the dispatch of a product that is not streamed, and the number of rows of a threadgroup.
func (v Vectors) divided(t Tuning, planes int, rows []int) (l Launch, block int, err error) {
	l = Launch{File: "matvec", Kernel: "matvec"}
	if v.Sum != nil {
		return l, 0, errors.New("a vector that is a sum, want the product to be streamed")
	}
	if err := v.check(v.K); err != nil {
		return l, 0, err
	}
	if t, err = v.tune(t, planes, 1); err != nil {
		return l, 0, err
	}
	groups := 0
	for _, n := range rows {
		groups += ceil(n, t.block())
	}
	l.Defines, l.Groups, l.Threads = v.matvecDefines(t, rows...), [3]int{groups, 1, 1}, [3]int{t.threads(), 1, 1}
	return l, t.block(), nil
}

// defines returns the definitions of all kernels for products of vectors.
func (v Vectors) defines() []Define {
	const more = 36 // capacity for the definitions that kernels append
	return append(slices.Grow(v.Format.defines(), more),
		define("MATVEC_K", v.K, "MATVEC_M", v.M, "MATVEC_NORM", int(v.Norm), "MATVEC_EPS", v.Eps)...)
}

func (v Vectors) matvecDefines(t Tuning, rows ...int) []Define {
	aligned := !slices.ContainsFunc(rows, func(n int) bool { return n%t.block() != 0 })
	out := append(v.defines(), define("MATVEC_ROWS", t.Rows, "MATVEC_LANES", t.Lanes, "MATVEC_SPLIT",
		t.Split, "MATVEC_SETS", t.Sets,
		"MATVEC_BYTES", t.Bytes, "MATVEC_CHUNK", t.Chunk, "MATVEC_PERMUTE", t.Permute, "MATVEC_ALIGNED", aligned)...)
	if t.Direct { // defined only then, so that the keys of other kernels do not change
		out = append(out, define("MATVEC_DIRECT", true)...)
	}
	return out
}
