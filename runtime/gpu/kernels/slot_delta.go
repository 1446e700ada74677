package kernels

import (
	"errors"
	"fmt"
	"math"
)

// SlotDelta is a Delta in a call of several sequences. Each sequence has its state in a slot of a pool. It is the
// operation slot_delta_rule. A state in bf16 is rounded after every row. The caller leaves Reset at NoReset: a sequence
// whose entry reads no slot (-1) starts from zeros.
type SlotDelta struct {
	Delta
	// Entries is the number of sequences that the table has room for.
	Entries int
	// Most is the largest number of rows of a sequence that StepLaunch takes. Launches takes longer sequences. 0 stands
	// for no limit.
	Most int
}

// scanGroups is the number of threadgroups of the scan of chunks that its grid does not exceed, unless one sequence
// alone needs more. On an H100 a multiprocessor has registers for one of them at a time. If no sequence has chunks,
// more threadgroups only take longer to find that out.
const scanGroups = 256

// slotSeveral and slotMany are the numbers of sequences from which on a group of lanes has two and four rows of a
// state. Then fewer groups of lanes read q, k and the gates. There are still enough threadgroups for an H100.
const (
	slotSeveral = 6
	slotMany    = 12
)

// slotRows is the number of rows in which a threadgroup of slot_delta looks for rows of no sequence.
const slotRows = 32

// filledFor returns d with defaults in place of zero fields, for calls of up to rows rows.
func (d SlotDelta) filledFor(rows int) SlotDelta {
	if sequences := min(rows, d.Entries); d.Rows == 0 && sequences >= slotMany {
		d.Rows = 4
	} else if d.Rows == 0 && sequences >= slotSeveral {
		d.Rows = 2
	}
	d.Delta = d.filled()
	return d
}

func (d SlotDelta) slotDefines() []Define {
	most := d.Most
	if most == 0 {
		most = math.MaxInt32
	}
	return define("SLOT_ENTRIES", d.Entries, "SLOT_MOST", most)
}

// StepLaunch is the dispatch for up to rows rows that takes those of a sequence one by one. It takes
// SlotDeltaArguments: those of Delta.StepLaunch, Entries i32 [Entries, 3], Writes i32 [rows], and State, the pool. No
// sequence may read a slot that another one writes.
func (d SlotDelta) StepLaunch(rows int) (Launch, error) {
	d = d.filledFor(rows)
	l, err := d.Delta.StepLaunch()
	if err == nil {
		err = slotEntriesError(d.Entries)
	}
	l.File, l.Kernel, l.Defines = "slot_delta", "slot_delta", append(l.Defines, d.slotDefines()...)
	l.Groups[2], l.Case = slotGroups(d.Entries, rows)+ceil(rows, slotRows), d.stepCase
	if rows == 1 {
		// As many threadgroups more, which only look for rows of no sequence, would wait beside these.
		l.Defines, l.Groups[2], l.Case = append(l.Defines, define("SLOT_ONE", 1)...), 1, d.oneCase
	}
	return l, err
}

// Launches are the dispatches for up to rows rows that take the sequences of more than Most rows in chunks, with q
// and k normalized and with g and β themselves: a solve of the chunks, and a scan over them, as those of Delta. They
// take SlotDeltaSolveArguments and SlotDeltaScanArguments. The first makes what the second reads: Sums f32 [rows,
// Heads], W f32 [rows, Heads, DK], U f32 [rows, Heads, DV], M f32 [rows, Heads, Length]. A state in bf16 is not for
// them, since it is rounded after every row.
func (d SlotDelta) Launches(rows int) (solve, scan Launch, err error) {
	d = d.filledFor(rows)
	if err = errors.Join(d.checkChunks(), slotEntriesError(d.Entries)); err == nil && d.State != F32 {
		err = fmt.Errorf("delta rule in chunks with a state in %s in slots, want f32", d.State)
	}
	if err != nil {
		return solve, scan, err
	}
	scans := max(1, min(scanGroups/(d.DV/d.Columns*d.Heads), d.Entries))
	defines := append(d.chunkDefines(), append(define("CHUNK_SLOTS", 1, "SLOT_SCANS", scans), d.slotDefines()...)...)
	windows := ceil(rows, d.Length)
	solve = Launch{File: "slot_delta_chunk", Kernel: "slot_delta_solve", Defines: defines, Groups: [3]int{windows,
		d.Heads, 1}, Threads: [3]int{256, 1, 1}}
	scan = Launch{File: "slot_delta_chunk", Kernel: "slot_delta_scan", Defines: defines, Case: d.chunksCase,
		Groups: [3]int{d.DV / d.Columns, d.Heads, scans}, Threads: [3]int{d.scanThreads(), 1, 1}}
	return solve, scan, nil
}

// Reference computes what the launches do to the rows of all sequences, token by token. Rows of no sequence are zeros.
func (d SlotDelta) Reference(q, k, v, g, beta, qWeight, kWeight, bias, rate []float32, entries, writes []int32, state,
	y []float32) {
	d.Delta = d.filled()
	eachSlot(entries, writes, state, d.Heads*d.DV*d.DK, func(r int, state []float32) {
		d.Delta.Reference(1, 0, q[r*d.QToken:], k[r*d.KToken:], v[r*d.VToken:], g[r*d.GToken:], beta[r*d.BetaToken:],
			qWeight, kWeight, bias, rate,
			false, state, y[r*d.Heads*d.DV:])
	})
}
