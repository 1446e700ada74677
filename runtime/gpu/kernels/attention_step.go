package kernels

import (
	"fmt"
	"slices"
)

// AttentionStep is the attention of one token together with what comes before it: queries and key are normalized and
// rotated, and key and value are written to their caches.
type AttentionStep struct {
	// Attention describes the attention. Its Tuning is not used here.
	Attention
	// Rope describes the heads: how queries and keys are normalized and rotated, and where keys and values are
	// written. Its head counts, head width, cache dtype and Slots must equal those of Attention. Its Ring must be
	// chosen so that a position is written to the slot that Attention reads it from. With its Blocks the token is a row
	// of a call of several sequences, and the caches are blocks in pools; Slots is the number of positions of a
	// sequence's blocks. That form needs a tuning with Last.
	Rope Rope
	// Rows is the largest number of rows of a call, at most StepRows; 0 stands for one. More than one need Rope.Blocks.
	// Rows of a sequence lie one after another, and their positions follow one another.
	Rows int
	// Alike says that a row must give the same bits as if it were the only row of a call. Then its positions are divided
	// into as many blocks as those of an only row. Several rows may have more threadgroups then than run at a time.
	Alike bool
	// Half says that the output is bf16 and not f32. Lanes says that the elements of a row are in the order InLanes; it
	// needs Half. Only calls of several sequences have them.
	Half, Lanes bool
	// Early says that no other kernel of the recorded sequence writes the caches. Then the kernel may read earlier
	// positions before the kernels before it are done.
	Early bool
	// Step says how the work is divided. Zero fields are filled in.
	Step StepTuning
}

// StepRows is the largest number of rows for which AttentionStep has a launch. Rows with many or wide heads may have
// none below that: see fitsRows.
const StepRows = 8

// stepCores is about the number of multiprocessors of a large GPU.
const stepCores = 128

// fitsRows reports whether as many threadgroups can run at the same time as all rows of a call have query heads: with
// few positions each threadgroup serves one head of one row. One row always fits. Five rows of Gemma4-31B's full
// attention do not fit with the default tuning. Tunings for which they fit, with one head to a threadgroup, were slower
// on an H100 than BlockAttention when there were 3,000 earlier positions.
func (t StepTuning) fitsRows(a AttentionStep) bool {
	return a.rows() == 1 || a.rows()*a.Heads <= stepCores*t.Room
}

// rows returns the largest number of rows of a call.
func (a AttentionStep) rows() int { return max(a.Rows, 1) }

// StepTuning says how AttentionStep divides the work.
type StepTuning struct {
	// A threadgroup serves Heads heads of one key-value head. A simdgroup reads Keys keys at a time: powers of two
	// whose product is 2 to 32. Buffers is how many such groups of keys are read in advance: with one, the next keys
	// are read while the scores of the current ones are computed, and the next values while the current ones are added.
	// Short contexts have a number of their own.
	Heads, Keys, Buffers int
	// Simdgroups is the number of simdgroups of a threadgroup. Room is, on CUDA, the number of threadgroups for which a
	// multiprocessor must have registers.
	Simdgroups, Room int
	// The positions are divided into at most Blocks blocks of at least Least positions.
	Blocks, Least int
	// Short is the largest number of positions at which one threadgroup serves one head over all positions, so that
	// nothing has to be merged. It is 0 without Last, or where there are fewer Blocks than Heads.
	Short int
	// Last says that the last threadgroup to finish merges the blocks, so that there is no second launch. Metal cannot
	// do that.
	Last bool
}

// Near returns true: there are few variants, and most differ from the default alone.
func (t StepTuning) Near(StepTuning) bool { return true }

// StepTunings returns the variants worth measuring on a target, the default first. There are none for more rows than
// the default has room for.
func (a AttentionStep) StepTunings(target Target) []StepTuning {
	const short = 128 // positions; with more, one threadgroup per head reads too much
	a.Step = StepTuning{Last: target != Metal}
	full, _ := a.tuning()
	if !full.fitsRows(a) {
		return nil // variants with fewer heads have room, but read keys several times
	}
	var out []StepTuning
	for _, t := range []StepTuning{
		{Short: short},
		{}, // without the code for short contexts
		// More reads in advance, or registers for more threadgroups.
		{Short: short, Buffers: 2}, {Short: short, Buffers: 1},
		// More threadgroups; several of them read the same keys.
		{Short: short, Heads: 1}, {Short: short, Heads: 2}, {Short: short, Blocks: 2 * full.Blocks},
		// Fewer partial sums to merge.
		{Short: short, Simdgroups: 4}, {Short: short, Simdgroups: 16}, {Short: short, Least: 128},
	} {
		t.Last = target != Metal
		a.Step = t
		if full, err := a.tuning(); err == nil && !slices.Contains(out, full) {
			out = append(out, full)
		}
	}
	return out
}

// tuning returns the tuning with zero fields filled in, or an error where no kernel has it.
func (a AttentionStep) tuning() (StepTuning, error) {
	t := a.filled()
	return t, t.check(a)
}

// filled returns the tuning with zero fields filled in.
func (a AttentionStep) filled() StepTuning {
	t, group := a.Step, a.Heads/a.KVHeads
	if t.Heads == 0 {
		// A simdgroup keeps the queries and sums of its heads in registers.
		for t.Heads = 1; t.Heads < 4 && group%(2*t.Heads) == 0 && 2*t.Heads*a.D <= 2048; t.Heads *= 2 {
		}
	}
	if t.Keys == 0 {
		for t.Keys = 2; t.Keys < 8 && t.Heads*t.Keys < 32 && 2*t.Keys*a.D <= 1024; t.Keys *= 2 {
		}
	}
	if t.Simdgroups == 0 {
		for t.Simdgroups = 8; t.Simdgroups > 1 && t.Simdgroups*a.D > 4096; t.Simdgroups /= 2 {
		}
	}
	if t.Buffers == 0 {
		t.Buffers = t.buffers(a, t.Heads)
	}
	if t.Room == 0 {
		if t.Room = 1; t.fits(a, t.Buffers) {
			t.Room = max(1, 16/t.Simdgroups)
		}
	}
	if t.Least == 0 {
		t.Least = t.Simdgroups * t.Keys // what a threadgroup reads at a time
	}
	if t.Blocks == 0 {
		seen := a.Slots
		if a.Window > 0 {
			seen = min(seen, a.Window)
		}
		// About as many threadgroups as there are multiprocessors.
		t.Blocks = min(ceil(stepCores*t.Heads, a.Heads), ceil(seen, t.Least))
		if !a.Alike { // several rows share the multiprocessors
			t.Blocks = min(t.Blocks, max(1, stepCores*t.Room*t.Heads/(a.Heads*a.rows())))
		}
	}
	if !t.Last || t.Blocks < t.Heads {
		t.Short = 0
	}
	return t
}

// check returns an error for a complete tuning that no kernel can have.
func (t StepTuning) check(a AttentionStep) error {
	group, scores := a.Heads/a.KVHeads, t.Heads*t.Keys
	switch {
	case group%t.Heads != 0 || scores < 2 || scores > 32 || scores&(scores-1) != 0 || t.Keys&(t.Keys-1) != 0:
		return fmt.Errorf("attention step tuned to %d heads and %d keys of a simdgroup, want powers of two, 2 to 32 "+
			"in product, heads that divide %d", t.Heads, t.Keys, group)
	case t.Buffers < 1 || t.Buffers > 2 || t.Simdgroups < 1 || t.Simdgroups > 32 || t.Room < 1 || t.Room > 32 ||
		t.Least < 1 || t.Blocks < 1 || t.Short < 0:
		return fmt.Errorf("attention step tuned to %d buffers, %d simdgroups and %d blocks of %d positions, want 1 "+
			"or 2, 1 to 32, and at least one of each", t.Buffers, t.Simdgroups, t.Blocks, t.Least)
	case !t.fitsRows(a):
		return fmt.Errorf("attention step of %d rows of %d heads with room for %d threadgroups, want room for as many as "+
			"there are heads", a.rows(), a.Heads, stepCores*t.Room)
	}
	if bytes := t.memory(a.D, a.rows()); bytes > metalMemory {
		return fmt.Errorf("attention step tuned to %d simdgroups needs %d bytes of threadgroup memory, there are %d",
			t.Simdgroups, bytes, metalMemory)
	}
	return nil
}

// fits reports whether a lane has enough registers for queries, sums, keys, values and scores. The limit is below the
// 128 registers that a lane has where a multiprocessor with 64K registers runs 16 simdgroups, because the kernels
// before and after this one run beside it.
func (t StepTuning) fits(a AttentionStep, buffers int) bool {
	each := a.D / 32
	return 2*t.Heads*each+2*buffers*t.Keys*each*a.Cache.Size()/4+t.Heads*t.Keys <= 112
}

// buffers returns how many groups of keys are read in advance where a threadgroup serves heads heads: two if a lane has
// enough registers, else one. Without Last it is one: nothing else was measured.
func (t StepTuning) buffers(a AttentionStep, heads int) int {
	if t.Heads = heads; !t.Last || t.fits(a, 2) {
		return 2
	}
	return 1
}

// memory returns the threadgroup memory in bytes for calls of up to rows rows.
func (t StepTuning) memory(d, rows int) int {
	shared := max((t.Heads+2*rows)*d, min(t.Heads, max(1, 4096/(t.Simdgroups*d)))*t.Simdgroups*d)
	return 4*(shared+2*t.Simdgroups*t.Heads+1) + 64
}

// Launches returns the dispatch and, unless the tuning says Last, a second one that merges blocks. blocks is the number
// of blocks of a head. Recorded once, they serve any position.
//
// They take AttentionStepArguments and AttentionMergeArguments: QWeight and KWeight [D], which no kernel may write,
// Angles of RopeAngles, Keys and Values [KVHeads, Slots, D], Part f32 [Heads, Blocks, D], ML f32 [Heads, Blocks, 2],
// Out f32 [Heads, D], Arrivals u32 [Heads], zeros before and after. Without Last the first needs no Gate, Out and
// Arrivals. With Rope.Blocks there are the tables of BlockAttention, and Q, K, V, Gate, Angles, Part, ML, Out and
// Arrivals have Rows rows; Out is bf16 with Half.
func (a AttentionStep) Launches() (one, merge Launch, blocks int, err error) {
	if err := a.check(); err != nil {
		return one, merge, 0, err
	}
	if err := a.Rope.check(); err != nil {
		return one, merge, 0, fmt.Errorf("attention step: %w", err)
	}
	r := a.Rope
	if r.D != a.D || r.QHeads != a.Heads || r.KVHeads != a.KVHeads || r.Slots != a.Slots || r.Cache != a.Cache {
		return one, merge, 0, fmt.Errorf(
			"attention step: %d+%d heads of %d elements of %s in %d slots are rotated, %d+%d of %d of %s in %d are "+
				"attended to",
			r.QHeads, r.KVHeads, r.D, r.Cache, r.Slots, a.Heads, a.KVHeads, a.D, a.Cache, a.Slots)
	}
	t, err := a.tuning()
	if err != nil {
		return one, merge, 0, err
	}
	b := a.Attention
	b.Tuning = AttentionTuning{Heads: t.Heads, Tokens: 1, Keys: t.Keys, Blocks: t.Blocks, Least: t.Least,
		Simdgroups: t.Simdgroups}
	_, merge, blocks, err = b.Launches(1)
	if err != nil {
		return one, merge, 0, err
	}
	q, k, v := r.Q.or(r.QHeads, r.D), r.K.or(r.KVHeads, r.D), r.V.or(r.KVHeads, r.D)
	one = Launch{File: "attention_step", Kernel: "attention_step",
		Defines: append(merge.Defines[:len(merge.Defines):len(merge.Defines)],
			define("ATT_DIMS", r.Dims, "ATT_TRADITIONAL", r.Traditional, "ATT_RING", r.Ring,
				"ATT_Q_HEAD", q.Row, "ATT_K_HEAD", k.Row, "ATT_V_HEAD", v.Row, "ATT_Q_NORM", int(r.QNorm), "ATT_K_NORM",
				int(r.KNorm), "ATT_V_NORM", int(r.VNorm),
				"ATT_EPS", r.Eps, "ATT_WEIGHT_T", r.Weight.text(), "ATT_EARLY", a.Early, "ATT_BUFFERS", t.Buffers,
				"ATT_ROOM", t.Room, "ATT_SHORT", t.Short, "ATT_SHORT_BUFFERS", t.buffers(a, 1), "ATT_LAST", t.Last)...),
		Groups: [3]int{a.Heads / t.Heads, t.Blocks, 1}, Threads: [3]int{t.Simdgroups * 32, 1, 1}}
	if r.Blocks.Rows > 0 {
		if err := a.overBlocks(&one, t); err != nil {
			return one, merge, 0, err
		}
	} else if a.rows() > 1 || a.Half {
		return one, merge, 0, fmt.Errorf("attention step of %d rows (bf16 %t), want one in f32, or blocks", a.rows(), a.Half)
	}
	if merge.Case = nil; t.Last {
		one.Case = a.newCase
	} else {
		merge.Case = a.newCase
	}
	return one, merge, blocks, nil
}

// overBlocks makes a launch one over the blocks of Rope.
func (a AttentionStep) overBlocks(one *Launch, t StepTuning) error {
	r := a.Rope
	if !t.Last || a.Slots != r.Blocks.Rows*r.Blocks.Columns {
		return fmt.Errorf("attention step over %d blocks of %d positions, want %d slots, not %d, and no second launch",
			r.Blocks.Columns, r.Blocks.Rows, r.Blocks.Columns*r.Blocks.Rows, a.Slots)
	}
	if a.rows() > StepRows || a.Lanes && (!a.Half || a.Heads*a.D%packedColumns != 0) {
		return fmt.Errorf("attention step of %d rows of %d elements (bf16 %t, in the order of lanes %t), want at most %d "+
			"rows, and for that order bf16 and a multiple of %d elements", a.rows(), a.Heads*a.D, a.Half, a.Lanes,
			StepRows, packedColumns)
	}
	one.Defines = append(one.Defines, define("ATT_TABLE", true, "BLOCK_ROWS", r.Blocks.Rows, "BLOCK_COLUMNS",
		r.Blocks.Columns)...)
	if a.rows() > 1 {
		q, k, v := r.Q.or(r.QHeads, r.D), r.K.or(r.KVHeads, r.D), r.V.or(r.KVHeads, r.D)
		one.Defines = append(one.Defines, define("ATT_ROWS", a.rows(), "ATT_Q_TOKEN", q.Token, "ATT_K_TOKEN", k.Token,
			"ATT_V_TOKEN", v.Token)...)
		one.Groups[2] = a.rows()
	}
	if a.Half {
		one.Defines = append(one.Defines, define("ATT_OUT_T", BF16.text(), "ATT_LANES", a.Lanes)...)
	}
	return nil
}

// Reference computes what the launches compute, for a token at position.
func (a AttentionStep) Reference(position int, q, k, v, qWeight, kWeight, angles, keys, values, gate, out []float32) {
	rotated := make([]float32, a.Heads*a.D)
	a.Rope.Reference(1, position, q, k, v, qWeight, kWeight, angles, rotated, keys, values)
	a.Attention.Reference(1, position, rotated, keys, values, gate, out)
}

// ReferenceInBlocks computes what the launch computes with Rope.Blocks, in caches of units units.
func (a AttentionStep) ReferenceInBlocks(units int, positions, sequences, blocks []int32, q, k, v, qWeight, kWeight,
	angles, keys, values, gate, out []float32) {
	rotated := make([]float32, len(positions)*a.Heads*a.D)
	a.Rope.ReferenceInBlocks(units, positions, sequences, blocks, q, k, v, qWeight, kWeight, angles, rotated, keys,
		values)
	of := BlockAttention{Blocks: a.Rope.Blocks, D: a.D, Heads: a.Heads, KVHeads: a.KVHeads, Window: a.Window,
		Scale: a.Scale, Gated: a.Gated, Gates: a.Gates, Half: a.Half, Lanes: a.Lanes}
	of.Reference(units, rotated, keys, values, positions, sequences, blocks, gate, out)
}
