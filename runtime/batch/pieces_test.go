package batch

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/schedule"
)

// TestPiecesOfCalls: the pieces of a call have its rows in their order, at their positions, each piece as many as may
// be; what is wanted of them is wanted once; and a state goes from piece to piece.
func TestPiecesOfCalls(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 4))
	for range 500 {
		call, most := &schedule.Call{}, 1+r.IntN(9)
		states := map[int32]int{} // of each slot: the positions that it is behind
		for id := range 1 + r.IntN(5) {
			n := 1 + r.IntN(20)
			e := schedule.Entry{ID: schedule.ID(id), First: len(call.Tokens), Rows: n, Start: r.IntN(30),
				Wanted: r.IntN(min(n, 4) + 1),
				Reads:  int32(100 * id)}
			states[e.Reads] = e.Start
			for at := 1; at < n; at++ {
				if r.IntN(4) == 0 {
					e.Writes = append(e.Writes, cache.State{Pos: e.Start + at, Slot: int32(100*id + at)})
				}
			}
			e.Writes = append(e.Writes, cache.State{Pos: e.Start + n, Slot: int32(100*id + n)})
			for at := range n {
				call.Tokens = append(call.Tokens, int32(1000*id+e.Start+at))
			}
			call.Entries = append(call.Entries, e)
		}
		pieces := inPieces(call, most)
		var tokens []int32
		wanted := map[schedule.ID][]int{}
		for i, p := range pieces {
			if i < len(pieces)-1 {
				require.Len(t, p.Tokens, most)
			}
			require.LessOrEqual(t, len(p.Tokens), most)
			tokens = append(tokens, p.Tokens...)
			for _, e := range p.Entries {
				require.Equal(t, states[e.Reads], e.Start, "the state that an entry begins with")
				for at := range e.Rows {
					require.Equal(t, int32(1000*int(e.ID)+e.Start+at), p.Tokens[e.First+at])
				}
				for at := e.Rows - e.Wanted; at < e.Rows; at++ {
					wanted[e.ID] = append(wanted[e.ID], e.Start+at)
				}
				for _, w := range e.Writes {
					require.Greater(t, w.Pos, e.Start)
					require.LessOrEqual(t, w.Pos, e.Start+e.Rows)
					states[w.Slot] = w.Pos
				}
			}
		}
		require.Equal(t, call.Tokens, tokens)
		for _, e := range call.Entries {
			var want []int
			for at := e.Rows - e.Wanted; at < e.Rows; at++ {
				want = append(want, e.Start+at)
			}
			require.Equal(t, want, wanted[e.ID])
			for _, w := range e.Writes {
				require.Equal(t, w.Pos, states[w.Slot], "what is kept")
			}
		}
	}
}
