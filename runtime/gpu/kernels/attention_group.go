package kernels

import (
	"fmt"
	"math"
	"slices"
)

// Attention of a chunk by products of four simdgroups is for devices that have them (Machine.Groups): the kernel
// attention_group. A threadgroup has 128 rows, or 64 where heads are wider than 256. The rows are the heads of its
// tokens that share keys and values.

const (
	// groupThreads is the number of threads of a threadgroup.
	groupThreads = 256
	// groupSplit is the width of heads whose columns two groups of four simdgroups share.
	groupSplit = 512
	// panelsRoom is the threadgroup memory that aligning panels may take: PORT_PANELS_ROOM.
	panelsRoom = 1024
)

// groupTunings are the variants of attention_group worth measuring on a machine, the default first.
func (a Attention) groupTunings(machine Machine) (out []ChunkTuning) {
	if !machine.Groups {
		return nil
	}
	heads := 1
	for heads < 64 && a.Heads/a.KVHeads%(2*heads) == 0 {
		heads *= 2
	}
	t := ChunkTuning{Heads: heads, Rows: 8, Keys: 64, Columns: a.D, Together: true}
	if a.D == groupSplit {
		t.Rows, t.Keys = 4, 32
	}
	if a.checkGroup(t) == nil && a.groupMemory(t) <= machine.TransferMemory {
		out = append(out, t)
	}
	return out
}

// checkGroup reports whether attention can be divided as t says, by products of four simdgroups.
func (a Attention) checkGroup(t ChunkTuning) error {
	rows, keys := 8, 64
	if a.D == groupSplit {
		rows, keys = 4, 32
	}
	switch {
	case !slices.Contains([]int{64, 128, 256, groupSplit}, a.D):
		return fmt.Errorf("attention by four simdgroups together of heads of %d elements, want 64, 128, 256 or 512", a.D)
	case t.Heads <= 0 || t.Heads&(t.Heads-1) != 0 || t.Heads > 64 || a.Heads/a.KVHeads%t.Heads != 0:
		return fmt.Errorf("attention by four simdgroups together tuned to %d heads, want a power of two up to 64 that "+
			"divides %d", t.Heads, a.Heads/a.KVHeads)
	case t.Rows != rows || t.Keys != keys || t.Columns != a.D || t.QueriesInRegisters:
		return fmt.Errorf("attention by four simdgroups together tuned to %+v, want %d blocks of rows, %d keys and %d "+
			"columns", t, rows, keys, a.D)
	}
	return nil
}

// groupMemory is Launch.Memory of attention_group: queries, two tiles of keys and two of values, and the parts of two
// tiles' scores that simdgroups exchange.
func (a Attention) groupMemory(t ChunkTuning) int {
	exchange := 0
	if a.D == groupSplit {
		exchange = 2 * groupThreads * t.Keys / 2 * 4
	}
	return panelsRoom + t.Rows*16*a.D*2 + 4*t.Keys*a.D*2 + exchange
}

// groupLaunch is ChunkLaunch for a tuning with Together.
func (a Attention) groupLaunch(tokens int, t ChunkTuning) (Launch, error) {
	if err := a.checkGroup(t); err != nil {
		return Launch{}, err
	}
	gates := a.Gates.or(a.Heads, a.D)
	return Launch{
		File: "attention_group", Kernel: "attention_group", Case: func(s Sizes) *Case { return a.chunkCase(s, t) },
		Defines: define("GROUP_D", a.D, "GROUP_HEADS", a.Heads, "GROUP_KV_HEADS", a.KVHeads, "GROUP_H", t.Heads,
			"GROUP_SPLIT", a.D == groupSplit, "GROUP_KEYS", t.Keys, "GROUP_SLACK", 8,
			"GROUP_Q_TOKEN", a.Heads*a.D, "GROUP_Q_HEAD", a.D, "GROUP_SLOTS", a.Slots, "GROUP_BLOCK_ROWS", 0,
			"GROUP_COLUMNS", 1, "GROUP_WINDOW", a.Window, "GROUP_SCALE", float32(float64(a.Scale)*math.Log2E),
			"GROUP_GATED", a.Gated, "GROUP_GATE_TOKEN", gates.Token, "GROUP_GATE_HEAD", gates.Row),
		Groups:  [3]int{ceil(tokens, t.Rows*16/t.Heads), a.Heads / t.Heads, 1},
		Threads: [3]int{groupThreads, 1, 1},
		Memory:  a.groupMemory(t),
	}, nil
}
