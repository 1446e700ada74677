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
		axis, inner := 0, 1
		if pools[s.Buffer] != r.layout.SlotPool() {
			axis = 1
		}
		for _, n := range s.Tensor.Shape[axis+1:] {
			inner *= n
		}
		for i := range s.Tensor.F {
			if m.Holders(cache.Unit{Pool: pools[s.Buffer], ID: int32(i / inner % s.Tensor.Shape[axis])}) == 0 {
				s.Tensor.F[i] = float32(math.NaN())
			}
		}
	}
	return state.Restore(content)
}

// PoisonPool is Poison of the units of a pool.
func PoisonPool(p *Pool) error { return Poison(p.exec, p.memory) }
