package kernels

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Delta is the gated delta rule (Yang, Kautz and Hatamizadeh, Gated Delta Networks, 2025),
//
//	S = g·S;  S = S + β·(v − S·k)·kᵀ;  y = S·q
//
// for the states [Heads, DV, DK]; value head h reads key head h/(Heads/KHeads).
type Delta struct {
	// DK and DV are the widths of keys and values; DK is a multiple of 32 up to 256.
	DK, DV        int
	KHeads, Heads int
	// QToken, KToken and VToken are the distances in elements from one token to the next of q, k and v, whose heads are
	// contiguous. GToken and BetaToken are those of g and β. 0 stands for dense.
	QToken, KToken, VToken, GToken, BetaToken int
	// State is the dtype of the state.
	State DType
	Reset Reset

	// Norm is for StepLaunch: q and k are RMS-normalized first, with weights of this dtype. None: they are not.
	Norm DType
	Eps  float32
	// Gates is for StepLaunch: g and β are computed from the inputs that GatesLaunch takes, with bias and rate of this
	// dtype. None: they are given.
	Gates DType
	// Early is for StepLaunch: no kernel of the sequence writes the state and reset before this one, so it can read
	// them while the kernels before it still run.
	Early bool
	// Rows is the number of rows of a head's state in each group of lanes of StepLaunch. Columns is the number of
	// columns of the transposed state in a threadgroup of Launches. Length is the number of tokens of its chunks, 32 or
	// 64. 0 stands for the default.
	Rows, Columns, Length int
	// Parts is the number of lanes that share a tile of the sums in the scan of Launches. Buffers is the number of
	// stages of its input in memory at once, 1 or 2. 0 stands for the default, which was measured on an H100.
	Parts, Buffers int
}

// lanes returns the number of lanes that share a row of the state in delta_step.
func (d Delta) lanes() int {
	if d.DK > 128 && d.DK%64 == 0 {
		return 16
	}
	return 8
}

// deltaSimdgroups is the number of simdgroups of a threadgroup of delta_step.
const deltaSimdgroups = 4

// filled replaces zero fields by their defaults.
func (d Delta) filled() Delta {
	for _, f := range []struct {
		field *int
		value int
	}{
		{&d.QToken, d.KHeads * d.DK}, {&d.KToken, d.KHeads * d.DK}, {&d.VToken, d.Heads * d.DV}, {&d.GToken, d.Heads},
		{&d.BetaToken, d.Heads},
		{&d.Rows, 1}, {&d.Length, 32}, {&d.Columns, 16}, {&d.Buffers, 1},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	if d.Parts == 0 {
		d.Parts = min(256/max(d.Length, 1), 128/max(d.Columns, 1))
	}
	return d
}

// scanMemory returns the threadgroup memory of the scan in bytes, as delta_chunk.metal declares it.
func (d Delta) scanMemory() int {
	row := d.Columns
	if row < 32 {
		row += 4
	}
	return 4 * ((d.DK+d.Length)*row + d.Buffers*2*d.Length*(1024/max(d.Length, 1)+4) + 4*d.Length)
}

// scanThreads is the number of threads of a threadgroup of the scan.
func (d Delta) scanThreads() int { return d.Length / 4 * d.Columns / 4 * d.Parts }

func (d Delta) check() error {
	switch {
	case d.DK <= 0 || d.DK%32 != 0 || d.DK > 256:
		return fmt.Errorf("delta rule with keys of %d elements, want a multiple of 32 up to 256", d.DK)
	case d.KHeads <= 0 || d.Heads <= 0 || d.Heads%d.KHeads != 0 || d.DV <= 0:
		return fmt.Errorf("delta rule with %d heads of %d elements, want a multiple of the %d key heads",
			d.Heads, d.DV, d.KHeads)
	}
	if err := needFloat("the state", d.State); err != nil {
		return fmt.Errorf("delta rule: %w", err)
	}
	return nil
}

func (d Delta) tokensError() error {
	return fmt.Errorf("delta rule with q and k %d and %d elements from token to token, want multiples of 4", d.QToken,
		d.KToken)
}

func (d Delta) defines() []Define {
	return define("DELTA_DK", d.DK, "DELTA_DV", d.DV, "DELTA_K_HEADS", d.KHeads, "DELTA_HEADS", d.Heads,
		"DELTA_Q_TOKEN", d.QToken, "DELTA_K_TOKEN", d.KToken, "DELTA_V_TOKEN", d.VToken, "DELTA_G_TOKEN", d.GToken,
		"DELTA_BETA_TOKEN", d.BetaToken,
		"DELTA_QK_NORM", d.Norm != None, "DELTA_EPS", d.Eps, "DELTA_GATES", d.Gates != None,
		"DELTA_RESET", int(d.Reset),
		"DELTA_EARLY", d.Early, "DELTA_LANES", d.lanes(), "DELTA_ROWS", d.Rows, "DELTA_SIMDGROUPS", deltaSimdgroups,
		"DELTA_STATE_T", d.State.text(), "DELTA_WEIGHT_T", d.Norm.text(), "DELTA_GATE_T", d.Gates.text())
}

// GatesLaunch is the dispatch, for up to tokens tokens, that makes g = exp(rate·log(1 + exp(x + bias))) and
// β = sigmoid(b). It takes DeltaGatesArguments: X and B f32 at the strides of g and β, Bias and Rate [Heads] of dtype
// Gates, Decay, which is g, and Beta f32 [T, Heads].
func (d Delta) GatesLaunch(tokens int) (Launch, error) {
	d = d.filled()
	if err := errors.Join(d.check(), needFloat("gates", d.Gates)); err != nil {
		return Launch{}, err
	}
	return Launch{File: "delta", Kernel: "delta_gates", Defines: d.defines(), Case: d.gatesCase,
		Groups: [3]int{ceil(tokens*d.Heads, 64), 1, 1}, Threads: [3]int{64, 1, 1}}, nil
}

// StepLaunch is the dispatch for few tokens: it takes them one by one. It takes DeltaStepArguments: QWeight and KWeight
// [DK], Bias, Rate [Heads], Reset bool [1], Y f32 [T, Heads, DV], and Next, the state after the last token, which may
// be State itself.
func (d Delta) StepLaunch() (Launch, error) {
	d = d.filled()
	if err := d.check(); err != nil {
		return Launch{}, err
	}
	if d.QToken%4 != 0 || d.KToken%4 != 0 {
		return Launch{}, d.tokensError()
	}
	l := Launch{File: "delta", Kernel: "delta_step", Defines: d.defines(),
		Groups:  [3]int{ceil(d.DV, d.Rows*32/d.lanes()*deltaSimdgroups), d.Heads, 1},
		Threads: [3]int{deltaSimdgroups * 32, 1, 1}}
	l.Case = d.stepCase
	return l, nil
}

// Launches are the dispatches for up to tokens tokens in chunks, with q and k normalized and with g and β
// themselves: a solve of the chunks, and a scan over them. DV is a multiple of Columns. They take DeltaSolveArguments
// and DeltaScanArguments. The first makes what the second reads: Sums f32 [T, Heads], W f32 [T, Heads, DK],
// U f32 [T, Heads, DV], M f32 [⌈T/Length⌉, Heads, Length, Length].
func (d Delta) Launches(tokens int) (solve, scan Launch, err error) {
	d = d.filled()
	if err := d.checkChunks(); err != nil {
		return solve, scan, err
	}
	defines := d.chunkDefines()
	solve = Launch{File: "delta_chunk", Kernel: "delta_solve", Defines: defines,
		Groups: [3]int{ceil(tokens, d.Length), d.Heads, 1}, Threads: [3]int{256, 1, 1}}
	scan = Launch{File: "delta_chunk", Kernel: "delta_scan", Defines: defines, Case: d.chunksCase,
		Groups: [3]int{d.DV / d.Columns, d.Heads, 1}, Threads: [3]int{d.scanThreads(), 1, 1}}
	return solve, scan, nil
}

// checkChunks returns an error for shapes that the kernels of chunks do not compute.
func (d Delta) checkChunks() (err error) {
	if err := d.check(); err != nil {
		return err
	}
	switch {
	case d.Norm != None || d.Gates != None:
		err = errors.New("delta rule in chunks: q, k, g and β are made by launches of their own")
	case d.Length != 32 && d.Length != 64:
		err = fmt.Errorf("delta rule in chunks of %d tokens, want 32 or 64", d.Length)
	case !slices.Contains([]int{4, 8, 16, 32}, d.Columns) || d.DV%d.Columns != 0:
		err = fmt.Errorf("delta rule with %d columns in a threadgroup, want 4, 8, 16 or 32 that divide %d", d.Columns,
			d.DV)
	case !slices.Contains([]int{1, 2, 4, 8}, d.Parts) || d.Columns*d.Parts < 16 || d.Columns*d.Parts > 128 ||
		d.Length*d.Parts > 256:
		err = fmt.Errorf("delta rule with %d parts of %d columns, want 1, 2, 4 or 8 with a product from 16 to 128, "+
			"and at most %d", d.Parts, d.Columns, 256/d.Length)
	case d.Buffers != 1 && d.Buffers != 2 || d.scanMemory() > cudaMemory:
		err = fmt.Errorf("delta rule with %d buffers of %d bytes of threadgroup memory, want 1 or 2 and at "+
			"most %d bytes", d.Buffers, d.scanMemory(), cudaMemory)
	case d.QToken%4 != 0 || d.KToken%4 != 0:
		err = d.tokensError()
	}
	return err
}

// chunkDefines returns the definitions of delta_chunk.
func (d Delta) chunkDefines() []Define {
	return define("CHUNK_LENGTH", d.Length, "CHUNK_DK", d.DK, "CHUNK_DV", d.DV, "CHUNK_K_HEADS", d.KHeads,
		"CHUNK_HEADS", d.Heads,
		"CHUNK_Q_TOKEN", d.QToken, "CHUNK_K_TOKEN", d.KToken, "CHUNK_V_TOKEN", d.VToken, "CHUNK_G_TOKEN", d.GToken,
		"CHUNK_BETA_TOKEN", d.BetaToken,
		"CHUNK_COLUMNS", d.Columns, "CHUNK_PARTS", d.Parts, "CHUNK_BUFFERS", d.Buffers, "CHUNK_RESET", int(d.Reset),
		"CHUNK_STATE_T", d.State.text())
}

// ReferenceDecay computes g for one input of GatesLaunch.
func (d Delta) ReferenceDecay(x, bias, rate float32) float32 {
	s := float64(x) + float64(bias)
	return float32(math.Exp(float64(rate) * (max(s, 0) + math.Log1p(math.Exp(-math.Abs(s))))))
}

// Reference computes what the launches do, token by token in float64. qWeight and kWeight are nil without Norm, bias
// and rate without Gates.
func (d Delta) Reference(tokens, position int, q, k, v, g, beta, qWeight, kWeight, bias, rate []float32,
	reset bool, state, y []float32) {
	d = d.filled()
	keys, queries := make([]float64, d.DK), make([]float64, d.DK)
	read := func(dst []float64, x, weight []float32) {
		for i := range dst {
			dst[i] = float64(x[i])
		}
		if d.Norm != None {
			f := inverseRMS(dst, d.Eps)
			for i := range dst {
				dst[i] *= f * float64(weight[i])
			}
		}
	}
	s := make([]float64, d.DK)
	for h := range d.Heads {
		key := h / (d.Heads / d.KHeads) * d.DK
		for r := range d.DV {
			row := state[(h*d.DV+r)*d.DK:][:d.DK]
			for i, x := range row {
				if s[i] = float64(x); d.Reset.set(reset, position) {
					s[i] = 0
				}
			}
			for t := range tokens {
				read(queries, q[t*d.QToken+key:][:d.DK], qWeight)
				read(keys, k[t*d.KToken+key:][:d.DK], kWeight)
				decay, b := float64(g[t*d.GToken+h]), float64(beta[t*d.BetaToken+h])
				if d.Gates != None {
					decay, b = float64(d.ReferenceDecay(float32(decay), bias[h], rate[h])), Sigmoid.of(b)
				}
				var memory, sum float64
				for i := range s {
					s[i] *= decay
					memory += s[i] * keys[i]
				}
				delta := (float64(v[t*d.VToken+h*d.DV+r]) - memory) * b
				for i := range s {
					s[i] += keys[i] * delta
					sum += s[i] * queries[i]
				}
				y[(t*d.Heads+h)*d.DV+r] = float32(sum)
			}
			for i := range row {
				row[i] = d.State.store(float32(s[i]))
			}
		}
	}
}
