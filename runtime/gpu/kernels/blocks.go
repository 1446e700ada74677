package kernels

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Blocks describes a block-wise cache of many sequences: keys or values [KVHeads, units, Rows, D] in one pool, where a
// unit holds a block. Row t of a call is at position positions[t] of sequence sequences[t]; a negative number says that
// it belongs to no sequence. Position p of a sequence lies in row p mod Rows of block blocks[sequence, p/Rows mod
// Columns]. The number of units is the second word of step, where other kernels have a position: it depends on the
// memory of a device, and self-tests use few.
type Blocks struct {
	// Rows is the number of positions of a block. Columns is the number of blocks that the table has for a sequence.
	Rows, Columns int
	// Cache is the dtype of the pool: F32, BF16, or U32 for rows of codes of 8 bits (ir/cacherow.go), which have fewer
	// words than D.
	Cache DType
}

func (b Blocks) check() error {
	if b.Rows <= 0 || b.Columns <= 0 {
		return fmt.Errorf("blocks of %d rows in tables of %d columns", b.Rows, b.Columns)
	}
	if b.Cache == U32 {
		return nil
	}
	return needFloat("the cache", b.Cache)
}

// rowBytes returns the size in bytes of a row of width numbers in the pool.
func (b Blocks) rowBytes(width int) int {
	if b.Cache == U32 {
		return 4 * codeWords(width)
	}
	return width * b.Cache.Size()
}

// row returns the row of the pool, for one head, that holds a position of a sequence.
func (b Blocks) row(blocks []int32, sequence, position int32) int {
	block := blocks[int(sequence)*b.Columns+int(position)/b.Rows%b.Columns]
	return int(block)*b.Rows + int(position)%b.Rows
}

// BlockWrite copies rows into blocks.
type BlockWrite struct {
	Blocks
	D, Heads int
	X        Rows
}

// Launch returns the dispatch for up to rows rows. It takes BlockWriteArguments: Positions and Sequences i32 [R],
// Blocks i32 [sequences, Columns], Pool [Heads, units, Rows, D].
func (w BlockWrite) Launch(rows int) (Launch, error) {
	if err := w.check(); err != nil {
		return Launch{}, fmt.Errorf("block write: %w", err)
	}
	if w.D <= 0 || w.Heads <= 0 {
		return Launch{}, fmt.Errorf("block write of %d heads of %d elements", w.Heads, w.D)
	}
	x := w.X.or(w.Heads, w.D)
	l := Launch{
		File: "blocks", Kernel: "block_write", Case: w.newCase,
		Defines: define("BLOCK_D", w.D, "BLOCK_HEADS", w.Heads, "BLOCK_ROWS", w.Rows, "BLOCK_COLUMNS", w.Columns,
			"BLOCK_X_TOKEN", x.Token, "BLOCK_X_HEAD", x.Row, "BLOCK_T", w.Cache.text(), "BLOCK_GROUP", codeGroup(w.D)),
		Groups: [3]int{ceil(rows*w.Heads*w.D, 256), 1, 1}, Threads: [3]int{256, 1, 1},
	}
	if w.Cache == U32 {
		if codeWords(w.D) == 0 {
			return Launch{}, fmt.Errorf("block write of %d elements, which cannot be codes of 8 bits", w.D)
		}
		l.Kernel, l.Groups[0] = "block_write_codes", ceil(rows*w.Heads*w.D/codeGroup(w.D), 8)
	}
	return l, nil
}

// Reference computes what the kernel computes, with a pool of units units.
func (w BlockWrite) Reference(units int, x []float32, positions, sequences, blocks []int32, pool []float32) {
	w.eachRow(units, positions, sequences, blocks, func(row, from int) {
		to := pool[row*w.D:][:w.D]
		for d := range to {
			to[d] = w.Cache.store(x[from+d])
		}
	})
}

// eachRow calls f with each row of the pool that is written and the index of the first element of x that goes there.
func (w BlockWrite) eachRow(units int, positions, sequences, blocks []int32, f func(row, from int)) {
	from := w.X.or(w.Heads, w.D)
	for t, p := range positions {
		if p < 0 {
			continue
		}
		at := w.row(blocks, sequences[t], p)
		for h := range w.Heads {
			f(h*units*w.Rows+at, from.at(t, h))
		}
	}
}

// BlockAttention is attention of rows of many sequences. Each row attends to the keys and values of its sequence up to
// its own position; with a Window, to the last Window of them. Query head h reads key-value head h/(Heads/KVHeads).
// Rows of no sequence give zeros.
//
// The result of a row depends, bit for bit, only on Tuning and its own sequence: not on the other rows of the call, nor
// on how many of them belong to the same sequence.
type BlockAttention struct {
	Blocks
	// D is the width of a head: a multiple of 32 up to 1024.
	D              int
	Heads, KVHeads int
	// Window is the number of positions that a row attends to; 0 for no limit.
	Window int
	// First is the first position that any row attends to. Rows before it give zeros.
	First int
	// Scale multiplies the scores.
	Scale float32
	// Q is the layout of the queries.
	Q Rows
	// Gated says that the output is multiplied by sigmoid(gate). Gates is the layout of gate.
	Gated bool
	Gates Rows
	// Half says that the output is written in bf16, not in f32; Lanes that a row is in the order InLanes besides. There
	// is no ChunkLaunch with them.
	Half, Lanes bool
	// Last says that the last threadgroup to finish merges the parts, so that there is no second launch. Metal cannot do
	// that.
	Last bool
	// Tuning says how the work is divided. Zero fields are filled in.
	Tuning BlockTuning
	// Short makes Launches skip the rows that ChunkLaunch takes: runs of 16 or more neighbouring rows of one sequence.
	Short bool
}

// BlockTuning says how the launches of BlockAttention divide the work.
type BlockTuning struct {
	// A simdgroup serves Heads heads of one key-value head for Tokens rows of one sequence, and reads Keys keys at a
	// time. These are powers of two whose product is 2 to 32.
	Heads, Tokens, Keys int
	// The positions of a row are divided into at most Parts parts of at least Least positions.
	Parts, Least int
	// Simdgroups is the number of simdgroups of a threadgroup.
	Simdgroups int
}

// fewAlone is the largest number of rows of a call in which each row has simdgroups of its own. For a call that has
// only a row or two of each sequence the largest number is mostAlone. In larger calls neighbouring rows of a sequence
// share simdgroups, so that they read keys once. Sharing takes registers even if no two rows are of one sequence:
// Gemma4's sliding attention of 32 sequences, a row of each, takes 33.4 µs with simdgroups for one row and 36.3 µs with
// those for two, on an H100. Of 64 sequences both take the same time.
const fewAlone, mostAlone = 16, 32

// mergers is the number of threads of a threadgroup that merges parts, of which each has four elements.
const mergers = 128

// maxBlockTokens is the largest number of rows that share reads, as in the source.
const maxBlockTokens = 16

func (a BlockAttention) check() error {
	if err := a.Blocks.check(); err != nil {
		return err
	}
	switch {
	case a.D <= 0 || a.D%32 != 0 || a.D > 1024:
		return fmt.Errorf("heads of %d elements, want a multiple of 32 up to 1024", a.D)
	case a.KVHeads <= 0 || a.Heads <= 0 || a.Heads%a.KVHeads != 0:
		return fmt.Errorf("%d query heads, want a multiple of the %d key heads", a.Heads, a.KVHeads)
	case a.Window < 0:
		return fmt.Errorf("a window of %d", a.Window)
	case a.Half && a.Short:
		return errors.New("bf16 is written by tiles, too, want f32")
	case a.Lanes && (!a.Half || a.Heads*a.D%packedColumns != 0):
		return fmt.Errorf("%d heads of %d elements in the order of lanes: want bf16, and a multiple of %d elements in all",
			a.Heads, a.D, packedColumns)
	case a.First < 0:
		return fmt.Errorf("the first position is %d, want 0 or more", a.First)
	case a.First > 0 && a.Short:
		return fmt.Errorf("the first position is %d: where tiles take part of the rows (Short), only 0 is known", a.First)
	case a.First > 0 && a.Window > 0:
		return fmt.Errorf("the first position is %d: with a window, here of %d, only 0 is known", a.First, a.Window)
	}
	return nil
}

// tuning returns the tuning with zero fields filled in, for calls of up to rows rows.
func (a BlockAttention) tuning(rows int) (BlockTuning, error) {
	t, group := a.Tuning, a.Heads/a.KVHeads
	many := rows > mostAlone || a.Short && rows > fewAlone
	whole, err := Attention{D: a.D, Heads: a.Heads, KVHeads: a.KVHeads, Slots: 1,
		Tuning: AttentionTuning{Heads: t.Heads, Tokens: t.Tokens, Keys: t.Keys}}.tuning(many)
	if err != nil {
		return t, err
	}
	t.Heads, t.Tokens, t.Keys = whole.Heads, whole.Tokens, whole.Keys
	if t.Simdgroups == 0 {
		t.Simdgroups = 4
	}
	if t.Least == 0 {
		t.Least = 64
	}
	if t.Parts == 0 {
		switch { // many rows keep the device busy without parts, and parts take memory
		case rows <= 4:
			t.Parts = 64
		case rows <= 16:
			t.Parts = 32
		case rows <= 64:
			t.Parts = 8
		default:
			t.Parts = 4
		}
	}
	if t.Least%(t.Simdgroups*t.Keys) != 0 || t.Tokens > maxBlockTokens || t.Parts == 2 && a.Window > 0 ||
		group%t.Heads != 0 {
		return t, fmt.Errorf("attention over blocks tuned to %+v, want parts of a multiple of the %d keys of a "+
			"threadgroup, at most %d rows, and other than 2 parts of a window",
			t, t.Simdgroups*t.Keys, maxBlockTokens)
	}
	return t, nil
}

// Tunings returns the variants for calls of up to rows rows worth measuring, the default first.
func (a BlockAttention) Tunings(rows int) (out []BlockTuning) {
	add := func(t BlockTuning) {
		a.Tuning = t
		if full, err := a.tuning(rows); err == nil && full.Heads*full.Tokens*a.D <= 2048 && full.Keys*a.D <= 2048 &&
			!slices.Contains(out, full) {
			out = append(out, full)
		}
	}
	add(BlockTuning{})
	for _, heads := range []int{1, 2, 4, 8} {
		for _, tokens := range []int{1, 2, 4} {
			for _, keys := range []int{2, 4, 8} {
				add(BlockTuning{Heads: heads, Tokens: tokens, Keys: keys})
				add(BlockTuning{Heads: heads, Tokens: tokens, Keys: keys, Simdgroups: 8})
			}
		}
	}
	return out
}

// Launches returns the dispatches for up to rows rows: part computes partial results of parts of positions, merge
// combines them. Recorded once, they serve any positions.
//
// They take BlockAttentionPartArguments and BlockAttentionMergeArguments: Q and Gate as Rows say, Keys and Values
// [KVHeads, units, Rows, D], Positions and Sequences i32 [R], Blocks i32 [sequences, Columns], Part f32 [R, Heads,
// parts, D], ML f32 [R, Heads, parts, 2], Out f32 (bf16 with Half) [R, Heads, D], where parts is the third result. With
// Last the first takes Gate and Out, and Arrivals u32 [R, Heads], zeros before and after; there is no second.
func (a BlockAttention) Launches(rows int) (part, merge Launch, parts int, err error) {
	if err := a.check(); err != nil {
		return part, merge, 0, fmt.Errorf("attention over blocks: %w", err)
	}
	t, err := a.tuning(rows)
	if err != nil {
		return part, merge, 0, err
	}
	q, gates := a.Q.or(a.Heads, a.D), a.Gates.or(a.Heads, a.D)
	defines := define("ATT_D", a.D, "ATT_HEADS", a.Heads, "ATT_KV_HEADS", a.KVHeads, "ATT_H",
		t.Heads, "ATT_Q", t.Tokens,
		"ATT_TOKENS", t.Keys, "ATT_SIMDGROUPS", t.Simdgroups, "ATT_BLOCKS", t.Parts, "ATT_LEAST",
		t.Least, "ATT_SLICES", 1,
		"ATT_SLOTS", 1, "ATT_WINDOW", a.Window, "ATT_SCALE", float32(float64(a.Scale)*math.Log2E),
		"ATT_BF16", a.Cache == BF16,
		"BLOCK_ROWS", a.Rows, "BLOCK_COLUMNS", a.Columns, "BLOCK_Q_TOKEN", q.Token, "BLOCK_Q_HEAD", q.Row,
		"BLOCK_SHORT", a.Short)
	if a.First > 0 {
		defines = append(defines, define("BLOCK_FIRST", a.First)...)
	}
	if a.Cache == U32 {
		defines = append(defines, define("BLOCK_CODES", 1)...)
	}
	part = Launch{File: "block_attention", Kernel: "block_attention_part", Defines: slices.Clip(defines),
		Groups: [3]int{a.Heads / t.Heads, t.Parts, rows}, Threads: [3]int{t.Simdgroups * 32, 1, 1}}
	merge = Launch{File: "block_attention", Kernel: "block_attention_merge", Defines: slices.Clip(defines),
		Groups: [3]int{ceil(a.Heads*a.D, 4*mergers), rows, 1}, Threads: [3]int{mergers, 1, 1}}
	merge.Defines = append(merge.Defines, define("BLOCK_MERGERS", mergers)...)
	last := &merge
	if a.Last {
		part.Defines, merge, last = append(part.Defines, define("BLOCK_LAST", 1)...), Launch{}, &part
	}
	last.Defines = append(last.Defines,
		define("ATT_GATED", a.Gated, "ATT_GATE_TOKEN", gates.Token, "ATT_GATE_HEAD", gates.Row)...)
	last.Case = func(s Sizes) *Case { return a.newCase(s, rows) }
	if a.Half { // defined only then, so that the keys of other kernels do not change
		last.Defines = append(last.Defines, define("BLOCK_OUT_T", BF16.text(), "BLOCK_LANES", a.Lanes)...)
	}
	return part, merge, t.Parts, nil
}

// ManyRows is the number of neighbouring rows of one sequence from which on ChunkLaunch takes them.
const ManyRows = 16

// tiles returns the Attention whose tiled launch divides the work in the same way.
func (a BlockAttention) tiles() Attention {
	return Attention{D: a.D, Heads: a.Heads, KVHeads: a.KVHeads, Slots: 1, Window: a.Window, Scale: a.Scale,
		Cache: a.Cache, Gated: a.Gated, Gates: a.Gates}
}

// ChunkTunings returns the variants of the tiled launch worth measuring on a machine, the default first.
func (a BlockAttention) ChunkTunings(machine Machine) []ChunkTuning {
	return a.tiles().ChunkTunings(machine)
}

// ChunkLaunch returns the tiled dispatch for up to rows rows, for pools in bf16. It rounds queries and attention
// weights to bf16 and adds in fp32. It takes the rows that are among ManyRows or more neighbouring rows of one
// sequence. Launches with Short takes the others; its case contains this launch too. It takes AttentionChunkArguments.
func (a BlockAttention) ChunkLaunch(rows int, t ChunkTuning) (Launch, error) {
	if err := a.check(); err != nil {
		return Launch{}, fmt.Errorf("attention over blocks: %w", err)
	}
	l, err := a.tiles().ChunkLaunch(rows, t)
	if err != nil {
		return Launch{}, err
	}
	q := a.Q.or(a.Heads, a.D)
	with := map[string]int{"Q_TOKEN": q.Token, "Q_HEAD": q.Row, "BLOCK_ROWS": a.Rows, "COLUMNS": a.Columns}
	for i, d := range l.Defines {
		_, name, _ := strings.Cut(d.Name, "_") // behind CHUNK or GROUP
		if n, ok := with[name]; ok {
			l.Defines[i] = define(d.Name, n)[0]
		}
	}
	l.Case = func(s Sizes) *Case { return a.chunkCase(s, rows, t) }
	return l, nil
}

// Reference computes what the launches compute, with pools of units units.
func (a BlockAttention) Reference(units int, q, keys, values []float32, positions, sequences,
	blocks []int32, gate, out []float32) {
	from, gates := a.Q.or(a.Heads, a.D), a.Gates.or(a.Heads, a.D)
	one := Attention{D: a.D, Heads: 1, KVHeads: 1, Scale: a.Scale, Gated: a.Gated}
	for t, p := range positions {
		if p < int32(a.First) {
			clear(out[t*a.Heads*a.D:][:a.Heads*a.D])
			continue
		}
		low := int32(a.First)
		if a.Window > 0 {
			low = max(0, p-int32(a.Window)+1)
		}
		one.Slots = int(p - low + 1)
		for h := range a.Heads {
			var k, v, g []float32
			for at := low; at <= p; at++ {
				row := (h/(a.Heads/a.KVHeads)*units*a.Rows + a.row(blocks, sequences[t], at)) * a.D
				k, v = append(k, keys[row:][:a.D]...), append(v, values[row:][:a.D]...)
			}
			if a.Gated {
				g = gate[gates.at(t, h):][:a.D]
			}
			one.Reference(1, one.Slots-1, q[from.at(t, h):][:a.D], k, v, g, out[(t*a.Heads+h)*a.D:][:a.D])
		}
		if row := out[t*a.Heads*a.D:][:a.Heads*a.D]; a.Lanes {
			for i, e := range slices.Clone(row) {
				row[laneOrder(i)] = e
			}
		}
	}
}
