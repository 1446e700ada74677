package kernels

import (
	"errors"
	"fmt"
	"math"
)

// RMSNorm is the RMS norm of rows with the operations around it in a transformer block:
//
//	v = x;  v = v/rms(v)·pre;  v = v + residual;  v = v·scale;  sum = v;  out = v/rms(v)·weight·activation(gate)
//
// Each part can be left out; rms(v) = √(mean(v²) + eps).
type RMSNorm struct {
	// N is the length of a row, Heads the number of rows of a token.
	N, Heads int
	// X is the layout of x. The other operands, except for gate, are dense.
	X Rows
	// Pre is the dtype of the weight of the first norm; None: there is no first norm.
	Pre    DType
	PreEps float32
	// Add says that residual is added.
	Add bool
	// Scale is the dtype of scale [1]; None: there is none.
	Scale DType
	// Sum says that v is written before the second norm. SumOnly says that there is no out.
	Sum, SumOnly bool
	// Weight is the dtype of the second norm's weight; None: it has no weight.
	Weight DType
	Eps    float32
	// Gated says that the result is multiplied by Activation of gate, whose layout is Gates.
	Gated      bool
	Activation Activation
	Gates      Rows
	// Half says that Out is written in bf16, not in f32. Packed is then its order, as in Prepare: 0 is the order of X;
	// InLanes is the order of lanes, with all elements of a token as one row; 4, 8 or 16 is the number of eights of
	// tokens that are packed together, where a token has one row.
	Half   bool
	Packed int
	// Unaligned says that x, residual or gate starts at an offset that is not a multiple of 16 bytes.
	Unaligned bool
	// Simdgroups is the number of simdgroups that share a row, up to 32; 0 stands for a choice by N.
	Simdgroups int
}

// vec returns the number of elements that a thread reads at once.
func (n RMSNorm) vec() int {
	x, gates := n.X.or(n.Heads, n.N), n.Gates.or(n.Heads, n.N)
	if n.Unaligned || (n.N|x.Token|x.Row|gates.Token|gates.Row)%4 != 0 {
		return 1
	}
	return 4
}

// packed reports whether tokens are packed together.
func (n RMSNorm) packed() bool { return n.Packed > InLanes }

// Launch is the dispatch for up to tokens tokens. It takes NormArguments: Pre and Weight [N], Scale [1], Residual, Sum
// and Out f32 (bf16 with Half) [T, Heads, N]. Sum may be Residual. No kernel may write the weights and Scale: they are
// read before it is this kernel's turn.
func (n RMSNorm) Launch(tokens int) (Launch, error) {
	simdgroups := n.Simdgroups
	if simdgroups == 0 {
		// As few reads of a thread as possible, so that all of them are in flight together.
		simdgroups = 1
		if n.packed() {
			simdgroups = min(32, ceil(n.N, 32*32)) // a thread takes 32 elements, an item, at a time
		} else if units := n.N / n.vec(); n.N > 512 {
			simdgroups = ceil(ceil(units, ceil(units, 1024)), 32)
		}
	}
	rows := 1
	if simdgroups == 1 {
		rows = 4
	}
	switch {
	case n.N <= 0 || n.Heads <= 0:
		return Launch{}, fmt.Errorf("norm of %d rows of %d elements, want at least one of each", n.Heads, n.N)
	case simdgroups < 1 || simdgroups > 32:
		return Launch{}, fmt.Errorf("norm by %d simdgroups, want 1 to 32", simdgroups)
	case ceil(n.N, simdgroups*32) > 64:
		return Launch{}, fmt.Errorf("norm of rows of %d elements: %d for each of %d threads, more than the 64 that "+
			"registers hold", n.N, ceil(n.N, simdgroups*32), simdgroups*32)
	case n.Packed == InLanes && (!n.Half || n.Heads*n.N%packedColumns != 0):
		return Launch{}, fmt.Errorf("norm of %d rows of %d elements in the order of lanes: want bf16, and a multiple of "+
			"%d elements in all", n.Heads, n.N, packedColumns)
	case n.packed() && (!n.Half || n.Heads != 1 || n.N%packedColumns != 0 || n.vec() != 4):
		return Launch{}, fmt.Errorf("norm of %d rows of %d elements, packed: want bf16, and one aligned row of a multiple "+
			"of %d elements", n.Heads, n.N, packedColumns)
	case n.SumOnly && !n.Sum:
		return Launch{}, errors.New("norm that writes neither the sum nor the normalized rows")
	}
	x, gates := n.X.or(n.Heads, n.N), n.Gates.or(n.Heads, n.N)
	l := Launch{
		File: "norm", Kernel: "norm", Case: n.newCase,
		Defines: define("NORM_N", n.N, "NORM_HEADS", n.Heads, "NORM_SIMDGROUPS", simdgroups, "NORM_ROWS",
			rows, "NORM_VEC", n.vec(),
			"NORM_X_TOKEN", x.Token, "NORM_X_HEAD", x.Row, "NORM_GATE_TOKEN", gates.Token, "NORM_GATE_HEAD", gates.Row,
			"NORM_EPS", n.Eps, "NORM_PRE_EPS", n.PreEps, "NORM_PRE", n.Pre != None, "NORM_ADD", n.Add,
			"NORM_SCALE", n.Scale != None,
			"NORM_SUM", n.Sum, "NORM_OUT", !n.SumOnly, "NORM_WEIGHT", n.Weight != None, "NORM_GATED", n.Gated,
			"NORM_ACTIVATION", int(n.Activation),
			"NORM_PRE_T", n.Pre.text(), "NORM_SCALE_T", n.Scale.text(), "NORM_WEIGHT_T", n.Weight.text()),
		Groups: [3]int{ceil(tokens*n.Heads, rows), 1, 1}, Threads: [3]int{simdgroups * rows * 32, 1, 1},
	}
	if n.Half { // defined only then, so that the keys of other kernels do not change
		l.Defines = append(l.Defines, define("NORM_OUT_T", BF16.text(), "NORM_LANES", n.Packed == InLanes)...)
	}
	if n.packed() {
		l.Defines = append(l.Defines, define("NORM_EIGHTS", n.Packed)...)
	}
	return l, nil
}

// Reference computes what the kernel computes. Operands that it does not have are nil.
func (n RMSNorm) Reference(tokens int, x, pre, residual []float32, scale float32, weight, gate, sum, out []float32) {
	xs, gates := n.X.or(n.Heads, n.N), n.Gates.or(n.Heads, n.N)
	v := make([]float64, n.N)
	for row := range tokens * n.Heads {
		for i := range v {
			v[i] = float64(x[xs.at(row/n.Heads, row%n.Heads)+i])
		}
		if n.Pre != None {
			f := inverseRMS(v, n.PreEps)
			for i := range v {
				v[i] *= f * float64(pre[i])
			}
		}
		for i := range v {
			if n.Add {
				v[i] += float64(residual[row*n.N+i])
			}
			if n.Scale != None {
				v[i] *= float64(scale)
			}
			if n.Sum {
				sum[row*n.N+i] = float32(v[i])
			}
		}
		if n.SumOnly {
			continue
		}
		f := inverseRMS(v, n.Eps)
		for i := range v {
			o := v[i] * f
			if n.Weight != None {
				o *= float64(weight[i])
			}
			if n.Gated {
				o *= n.Activation.of(float64(gate[gates.at(row/n.Heads, row%n.Heads)+i]))
			}
			out[n.at(row*n.N+i)] = float32(o)
		}
	}
}

// at is the place of element i of all tokens in Out.
func (n RMSNorm) at(i int) int {
	k := n.Heads * n.N
	return Prepare{K: k, Packed: n.Packed}.at(i/k, i%k)
}

// inverseRMS returns 1/√(mean(v²) + eps).
func inverseRMS(v []float64, eps float32) float64 {
	var squares float64
	for _, x := range v {
		squares += x * x
	}
	return 1 / math.Sqrt(squares/float64(len(v))+float64(eps))
}
