package kernels

import (
	"fmt"
	"math"
	"slices"
)

// Attention is attention over a cache [KVHeads, Slots, D] of keys and values; position p lies in slot p mod Slots. The
// keys of the call's tokens are in the cache already. A token attends to its own position and those before it; with a
// Window, to the last Window of them. Query head h reads key-value head h/(Heads/KVHeads).
type Attention struct {
	// D is the width of a head: a multiple of 32 up to 1024.
	D              int
	Heads, KVHeads int
	Slots          int
	// Window is the number of positions that a token attends to; 0 for no limit.
	Window int
	// Scale multiplies the scores.
	Scale float32
	// Cache is the dtype of keys and values.
	Cache DType
	// Gated says that the output is multiplied by sigmoid(gate). Gates is the layout of gate.
	Gated bool
	Gates Rows
	// Tuning is for the launches in fp32. Zero fields are filled in.
	Tuning AttentionTuning
}

// AttentionTuning says how the launches in fp32 divide the work.
type AttentionTuning struct {
	// A simdgroup serves Heads heads of one key-value head for Tokens tokens, and reads Keys keys at a time. These are
	// powers of two whose product is 2 to 32.
	Heads, Tokens, Keys int
	// The positions of a token are divided into at most Blocks blocks of at least Least positions.
	Blocks, Least int
	// Simdgroups is the number of simdgroups of a threadgroup.
	Simdgroups int
}

// Near reports whether t and o differ in one respect: the heads of a simdgroup (with its tokens), the keys that it
// reads at a time, or the simdgroups of a threadgroup.
func (t AttentionTuning) Near(o AttentionTuning) bool {
	n := 0
	for _, differ := range []bool{t.Heads != o.Heads || t.Tokens != o.Tokens, t.Keys != o.Keys,
		t.Simdgroups != o.Simdgroups} {
		if differ {
			n++
		}
	}
	return n == 1 && t.Blocks == o.Blocks && t.Least == o.Least
}

func (a Attention) check() error {
	switch {
	case a.D <= 0 || a.D%32 != 0 || a.D > 1024:
		return fmt.Errorf("attention of heads of %d elements, want a multiple of 32 up to 1024", a.D)
	case a.KVHeads <= 0 || a.Heads <= 0 || a.Heads%a.KVHeads != 0:
		return fmt.Errorf("attention of %d query heads, want a multiple of the %d key heads", a.Heads, a.KVHeads)
	case a.Slots <= 0 || a.Window < 0:
		return fmt.Errorf("attention over %d slots with a window of %d", a.Slots, a.Window)
	}
	if err := needFloat("the cache", a.Cache); err != nil {
		return fmt.Errorf("attention: %w", err)
	}
	return nil
}

// Tunings returns the variants of the launches in fp32 worth measuring on a target, for one token or (many) for
// several. The default comes first.
func (a Attention) Tunings(target Target, many bool) []AttentionTuning {
	var out []AttentionTuning
	seen := map[AttentionTuning]bool{}
	add := func(t AttentionTuning) {
		b := a
		b.Tuning = t
		if full, err := b.tuning(many); err == nil && !seen[full] && full.Heads*full.Tokens*a.D <= 2048 &&
			full.Keys*a.D <= 2048 {
			seen[full] = true
			out = append(out, full)
		}
	}
	if target == CUDA {
		// First all heads that share keys in one simdgroup, so that keys are read once.
		for heads := 8; heads > 0; heads /= 2 {
			if heads*a.D <= 2048 && len(out) == 0 {
				add(AttentionTuning{Heads: heads})
			}
		}
	}
	add(AttentionTuning{})
	for _, heads := range []int{1, 2, 4, 8} {
		for _, keys := range []int{2, 4, 8} {
			for _, simdgroups := range []int{4, 8} {
				add(AttentionTuning{Heads: heads, Keys: keys, Simdgroups: simdgroups})
			}
		}
	}
	return out
}

// tuning returns the tuning with zero fields filled in, for launches of one token or of many.
func (a Attention) tuning(many bool) (AttentionTuning, error) {
	t, group := a.Tuning, a.Heads/a.KVHeads
	if t.Heads == 0 {
		// A simdgroup keeps the queries and sums of its heads in registers.
		for t.Heads = 1; t.Heads < 8 && group%(2*t.Heads) == 0 && 2*t.Heads*a.D <= 1024; t.Heads *= 2 {
		}
	}
	if t.Tokens == 0 {
		for t.Tokens = 1; many && t.Tokens*t.Heads < 8 && 2*t.Tokens*t.Heads*a.D <= 1024; t.Tokens *= 2 {
		}
	}
	if t.Keys == 0 {
		for t.Keys = 2; t.Keys < 8 && t.Heads*t.Tokens*t.Keys < 32 && t.Keys*a.D < 1024; t.Keys *= 2 {
		}
	}
	if t.Simdgroups == 0 {
		t.Simdgroups = 4
	}
	if t.Least == 0 {
		t.Least = 64
	}
	if t.Blocks == 0 {
		t.Blocks = 1
		if !many {
			seen := a.Slots
			if a.Window > 0 {
				seen = min(seen, a.Window)
			}
			t.Blocks = min(256, ceil(seen, t.Least))
		}
	}
	scores := t.Heads * t.Tokens * t.Keys
	if group%t.Heads != 0 || scores < 2 || scores > 32 || scores&(scores-1) != 0 || t.Keys&(t.Keys-1) != 0 {
		return t, fmt.Errorf("attention tuned to %d heads, %d tokens and %d keys of a simdgroup, want powers of two, "+
			"2 to 32 in product, heads that divide %d", t.Heads, t.Tokens, t.Keys, group)
	}
	return t, nil
}

// slices returns the number of threads that share one element when so many blocks are merged.
func (a Attention) slices(blocks int) int {
	n := 1
	for 2*n*a.D <= 1024 && 4*n < blocks {
		n *= 2
	}
	return n
}

// Launches returns the dispatches for up to tokens tokens in fp32: part computes partial results of blocks of
// positions, merge combines them. Recorded once, they serve any position: blocks behind the context do nothing.
//
// They take AttentionPartArguments and AttentionMergeArguments: Q, Out f32 [T, Heads, D], Keys and Values [KVHeads,
// Slots, D], Part f32 [T, Heads, Blocks, D], ML f32 [T, Heads, Blocks, 2], where Blocks is the third result.
func (a Attention) Launches(tokens int) (part, merge Launch, blocks int, err error) {
	if err := a.check(); err != nil {
		return part, merge, 0, err
	}
	t, err := a.tuning(tokens > 1)
	if err != nil {
		return part, merge, 0, err
	}
	gates := a.Gates.or(a.Heads, a.D)
	defines := define("ATT_D", a.D, "ATT_HEADS", a.Heads, "ATT_KV_HEADS", a.KVHeads, "ATT_H", t.Heads, "ATT_Q",
		t.Tokens, "ATT_TOKENS", t.Keys,
		"ATT_SIMDGROUPS", t.Simdgroups, "ATT_BLOCKS", t.Blocks, "ATT_LEAST", t.Least, "ATT_SLICES", a.slices(t.Blocks),
		"ATT_SLOTS", a.Slots, "ATT_WINDOW", a.Window,
		"ATT_SCALE", float32(float64(a.Scale)*math.Log2E), "ATT_BF16", a.Cache == BF16)
	part = Launch{File: "attention", Kernel: "attention_part", Defines: defines,
		Groups: [3]int{a.Heads / t.Heads, t.Blocks, ceil(tokens, t.Tokens)}, Threads: [3]int{t.Simdgroups * 32, 1, 1}}
	merge = Launch{File: "attention", Kernel: "attention_merge",
		Defines: append(slices.Clip(defines),
			define("ATT_GATED", a.Gated, "ATT_GATE_TOKEN", gates.Token, "ATT_GATE_HEAD",
				gates.Row)...), Case: func(s Sizes) *Case { return a.newCase(s, tokens > 1) },
		Groups: [3]int{a.Heads, tokens, 1}, Threads: [3]int{a.slices(t.Blocks) * a.D, 1, 1}}
	return part, merge, t.Blocks, nil
}

// ChunkTuning says how the tiled launch divides the work. Zero fields are filled in to fit Metal's threadgroup memory.
type ChunkTuning struct {
	// A threadgroup serves Heads heads of one key-value head for Rows blocks of 16 tokens, with a simdgroup for each of
	// them.
	Heads, Rows int
	// Keys are read Keys at a time, a multiple of 16. A threadgroup computes Columns columns of the output, a multiple
	// of 16 that divides D.
	Keys, Columns int
	// QueriesInRegisters keeps the queries in registers. Else they are read again for every tile.
	QueriesInRegisters bool
	// Together says that four simdgroups multiply together (Machine.Groups). The other fields are then as the width of
	// heads requires.
	Together bool
}

// Near reports whether t and o differ in one respect, such as whether four simdgroups multiply together.
func (t ChunkTuning) Near(o ChunkTuning) bool {
	if t.Together != o.Together {
		return true
	}
	n := 0
	for _, differ := range []bool{t.Heads != o.Heads, t.Rows != o.Rows, t.Keys != o.Keys,
		t.Columns != o.Columns, t.QueriesInRegisters != o.QueriesInRegisters} {
		if differ {
			n++
		}
	}
	return n == 1
}

// metalMemory is the threadgroup memory that every Metal device has, in bytes.
const metalMemory = 32 << 10

// cudaMemory is the threadgroup memory that a CUDA kernel may declare statically, in bytes.
const cudaMemory = 48 << 10

// ChunkTunings returns the variants of the tiled launch worth measuring on a machine, the default first. Those for CUDA
// may need more threadgroup memory than Metal has.
func (a Attention) ChunkTunings(machine Machine) []ChunkTuning {
	out := a.groupTunings(machine)
	alone := a.simdgroupTunings(machine.Target)
	if len(out) > 0 {
		alone = alone[:min(len(alone), 1)] // should the first kernel not pass its self-test
	}
	return append(out, alone...)
}

// simdgroupTunings are the variants of attention_chunk, in which every simdgroup multiplies for itself.
func (a Attention) simdgroupTunings(target Target) []ChunkTuning {
	memory, columns := metalMemory, min(a.D, 128)
	if target == CUDA {
		memory, columns = cudaMemory, min(a.D, 256)
		if a.D == 256 && a.Window > 0 {
			columns = 128 // with queries in registers: prompts of 4096 tokens of Gemma4-31B were 8 % faster on an H100
		}
	}
	first := ChunkTuning{Heads: 1, Rows: 4, Keys: 32, Columns: columns,
		QueriesInRegisters: a.D <= 256 && a.D+columns <= 384}
	for first.Heads < 4 && a.Heads/a.KVHeads%(2*first.Heads) == 0 {
		first.Heads, first.Rows = 2*first.Heads, first.Rows/2
	}
	var out []ChunkTuning
	seen := map[ChunkTuning]bool{}
	add := func(t ChunkTuning) {
		if !seen[t] && a.D%t.Columns == 0 && t.Columns <= 256 && 2*t.Keys*(a.D+t.Columns+16) <= memory {
			seen[t] = true
			out = append(out, t)
		}
	}
	// Many columns first, since every threadgroup computes all scores for its columns.
	for _, keys := range []int{32, 16} {
		t := first
		t.Keys = keys
		add(t)
	}
	for _, keys := range []int{32, 16, 64} {
		for _, columns := range []int{a.D, 256, 128, 64} {
			for _, held := range []bool{first.QueriesInRegisters, !first.QueriesInRegisters} {
				for _, more := range []int{1, 2} {
					add(ChunkTuning{Heads: first.Heads, Rows: first.Rows * more, Keys: keys, Columns: columns,
						QueriesInRegisters: held && a.D <= 256})
				}
			}
		}
	}
	return out
}

// ChunkLaunch returns the tiled dispatch for up to tokens tokens, for caches in bf16. It rounds queries and attention
// weights to bf16 and adds in fp32. It takes AttentionChunkArguments: Q, Out f32 [T, Heads, D].
func (a Attention) ChunkLaunch(tokens int, t ChunkTuning) (Launch, error) {
	if err := a.check(); err != nil {
		return Launch{}, err
	}
	if a.Cache != BF16 {
		return Launch{}, fmt.Errorf("attention by tiles over a cache of %s, want bf16", a.Cache)
	}
	if t.Together {
		return a.groupLaunch(tokens, t)
	}
	group := a.Heads / a.KVHeads
	if t == (ChunkTuning{}) {
		tunings := a.simdgroupTunings(Metal)
		if len(tunings) == 0 {
			return Launch{}, fmt.Errorf(
				"attention by tiles of heads of %d elements does not fit %d bytes of threadgroup memory", a.D,
				metalMemory)
		}
		t = tunings[0]
	}
	switch {
	case t.Heads <= 0 || t.Rows <= 0 || group%t.Heads != 0 || t.Heads*t.Rows > 16:
		return Launch{}, fmt.Errorf("attention by tiles tuned to %d heads and %d rows, want at most 16 in product "+
			"and heads that divide %d", t.Heads, t.Rows, group)
	case t.Keys <= 0 || t.Keys%16 != 0 || t.Columns <= 0 || t.Columns%16 != 0 || a.D%t.Columns != 0:
		return Launch{}, fmt.Errorf("attention by tiles tuned to %d keys and %d columns, want multiples of 16 and "+
			"columns that divide %d", t.Keys, t.Columns, a.D)
	}
	gates := a.Gates.or(a.Heads, a.D)
	return Launch{
		File: "attention_chunk", Kernel: "attention_chunk", Case: func(s Sizes) *Case { return a.chunkCase(s, t) },
		Defines: define("CHUNK_D", a.D, "CHUNK_HEADS", a.Heads, "CHUNK_KV_HEADS", a.KVHeads, "CHUNK_H",
			t.Heads, "CHUNK_ROWS", t.Rows,
			"CHUNK_KEYS", t.Keys, "CHUNK_DV", t.Columns, "CHUNK_Q_REGISTERS", t.QueriesInRegisters, "CHUNK_Q_TOKEN",
			a.Heads*a.D, "CHUNK_Q_HEAD", a.D,
			"CHUNK_SLOTS", a.Slots, "CHUNK_BLOCK_ROWS", 0, "CHUNK_COLUMNS", 1, "CHUNK_WINDOW", a.Window,
			"CHUNK_SCALE", float32(float64(a.Scale)*math.Log2E), "CHUNK_GATED", a.Gated, "CHUNK_GATE_TOKEN",
			gates.Token, "CHUNK_GATE_HEAD", gates.Row),
		Groups:  [3]int{ceil(tokens, 16*t.Rows), a.Heads / t.Heads, a.D / t.Columns},
		Threads: [3]int{t.Heads * t.Rows * 32, 1, 1},
	}, nil
}

// Reference computes what the launches compute, for tokens whose first is at position.
func (a Attention) Reference(tokens, position int, q, keys, values, gate, out []float32) {
	gates, last := a.Gates.or(a.Heads, a.D), position+tokens-1
	for t := range tokens {
		at := position + t
		low := max(0, last-a.Slots+1)
		if a.Window > 0 {
			low = max(low, at-a.Window+1)
		}
		for h := range a.Heads {
			kv := h / (a.Heads / a.KVHeads) * a.Slots
			query := q[(t*a.Heads+h)*a.D:][:a.D]
			scores := make([]float64, at+1-low)
			high := math.Inf(-1)
			for i := range scores {
				for d, x := range query {
					scores[i] += float64(x) * float64(keys[(kv+(low+i)%a.Slots)*a.D+d])
				}
				scores[i] *= float64(a.Scale)
				high = max(high, scores[i])
			}
			var sum float64
			result := make([]float64, a.D)
			for i, s := range scores {
				w := math.Exp(s - high)
				sum += w
				for d := range result {
					result[d] += w * float64(values[(kv+(low+i)%a.Slots)*a.D+d])
				}
			}
			for d, x := range result {
				if x /= sum; a.Gated {
					x *= Sigmoid.of(float64(gate[gates.at(t, h)+d]))
				}
				out[(t*a.Heads+h)*a.D+d] = float32(x)
			}
		}
	}
}
