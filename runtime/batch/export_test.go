package batch

import (
	"math"

	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
)

// Choose is the host's draw.
func Choose(d Draw, logits []float32) int { return d.choose(logits) }

// ChooseAbove is the host's draw with min-p.
func ChooseAbove(d Draw, logits []float32, minP float32) int { return d.chooseAbove(logits, minP) }

// RowsFor is the number of rows that a call of n is run as, of at most so many.
func RowsFor(n, most int, onDevice bool) int {
	x := &raggedExecutor{anyRows: !onDevice}
	x.options.Rows = most
	return x.rowsFor(n)
}

// RowsOfCall is the number of rows that a ragged executor runs a call of n as.
func RowsOfCall(x Executor, n int) int { return x.(*raggedExecutor).rowsFor(n) }

// Poison overwrites all units of a ragged executor that nobody holds with NaN.
func Poison(x Executor, m *cache.Memory) error {
	r := x.(*raggedExecutor)
	state := r.instance.(engine.Stateful)
	content, err := state.Snapshot()
	if err != nil {
		return err
	}
	pools := map[string]cache.Pool{}
	for _, b := range r.model.Slots {
		pools[b.Name] = r.layout.SlotPool()
	}
	for i, ring := range r.model.Rings {
		for _, b := range ring.Buffers {
			pools[b.Name] = r.layout.RingPool(i)
		}
	}
	for _, s := range content {
		pool, axis, inner := pools[s.Buffer], 0, 1
		if pool != r.layout.SlotPool() {
			axis = 1
		}
		for _, n := range s.Tensor.Shape[axis+1:] {
			inner *= n
		}
		units := s.Tensor.Shape[axis]
		for id := range units {
			if m.Holders(cache.Unit{Pool: pool, ID: int32(id)}) > 0 {
				continue
			}
			for at := id * inner; at < s.Tensor.Len(); at += units * inner {
				for i := range inner {
					if s.Tensor.F == nil {
						s.Tensor.I[at+i] = math.MaxUint32 // scales of codes that are NaN
						continue
					}
					s.Tensor.F[at+i] = float32(math.NaN())
				}
			}
		}
	}
	return state.Restore(content)
}

// PoisonPool is Poison of the units of a pool.
func PoisonPool(p *Pool) error { return Poison(p.exec, p.memory) }
