package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

// Kept is the state behind some tokens, taken out of a runner, to be put back into one of the same program, precision and
// form, in another process too. Going on from it gives the same bits as never having stopped.
type Kept struct {
	// Tokens that the state is behind.
	Tokens []int32
	// Form tells what kind of executor the state is of, and how it lays it out; others cannot take it.
	Form string
	// States are the parts of the executor's buffers that the state lies in, exactly as the executor holds them.
	States []engine.State
}

// ErrUnkept says that the executor's state cannot be taken out or put back.
var ErrUnkept = errors.New("the state of this program on this device cannot be kept")

// Keeper is an executor whose units can be taken out and put back.
type Keeper interface {
	// Form is [Kept.Form].
	Form() string
	// Take copies what units hold.
	Take(units []cache.Unit) ([]engine.State, error)
	// Give fills units with what Take gave of as many of the same pools in the same order; those that are cache.None
	// are left out. It checks names, dtypes and shapes before it writes anything.
	Give(tokens []int32, units []cache.Unit, states []engine.State) error
}

// Keep takes out what the prefix cache has of a prompt. A prefix ends where the cache has a checkpoint; how many tokens that
// are is to be seen in the result. It is nil where the cache has nothing. The copy is made between two calls.
func (r *Runner) Keep(ctx context.Context, tokens []int) (*Kept, error) {
	var out *Kept
	var err error
	ran := r.Do(ctx, func(x Executor) {
		k, ok := x.(Keeper)
		if !ok || r.limits.NoCopies {
			err = ErrUnkept
			return
		}
		table, hit := r.prefix.Open(int32s(tokens))
		defer table.Close()
		if hit.Pos == 0 {
			return
		}
		out = &Kept{Tokens: int32s(tokens[:hit.Pos]), Form: k.Form()}
		out.States, err = k.Take(table.Units())
	})
	if err = errors.Join(ran, err); err != nil {
		return nil, err
	}
	return out, nil
}

// Put gives the prefix cache a state that Keep took out. The error is cache.ErrNoRoom where it does not fit, and
// cache.ErrOff where no prefixes are kept. After an error the cache has nothing of it.
func (r *Runner) Put(ctx context.Context, kept *Kept) error {
	if n := len(kept.Tokens); n == 0 || n > r.limits.Positions {
		return fmt.Errorf("a state behind %d tokens, want 1 to %d", n, r.limits.Positions)
	}
	for i, t := range kept.Tokens {
		if t < 0 || r.limits.Vocab > 0 && int(t) >= r.limits.Vocab {
			return fmt.Errorf("token %d of the state is %d, which is not in the vocabulary of %d tokens", i, t, r.limits.Vocab)
		}
	}
	var err error
	ran := r.Do(ctx, func(x Executor) {
		k, ok := x.(Keeper)
		switch {
		case !ok || r.limits.NoCopies:
			err = ErrUnkept
		case kept.Form != k.Form():
			err = fmt.Errorf("the state has the form %q, that of this server is %q", kept.Form, k.Form())
		default:
			err = r.prefix.Put(kept.Tokens, func(units []cache.Unit) error {
				return k.Give(kept.Tokens, units, kept.States)
			})
		}
	})
	return errors.Join(ran, err)
}

func int32s(tokens []int) []int32 {
	out := make([]int32, len(tokens))
	for i, t := range tokens {
		out[i] = int32(t)
	}
	return out
}

// Form implements Keeper.
func (x *raggedExecutor) Form() string {
	return fmt.Sprintf("blocks of %d positions", x.layout.BlockRows)
}

// poolOf gives the pool that a buffer of the ragged module is of, and the axis of its units.
func (x *raggedExecutor) poolOf(name string) (cache.Pool, int) {
	is := func(b *ir.Buffer) bool { return b.Name == name }
	if slices.ContainsFunc(x.model.Slots, is) {
		return x.layout.SlotPool(), 0
	}
	for i, r := range x.model.Rings {
		if slices.ContainsFunc(r.Buffers, is) {
			return x.layout.RingPool(i), 1
		}
	}
	return cache.BlockPool, 1
}

// Take implements Keeper.
func (x *raggedExecutor) Take(units []cache.Unit) ([]engine.State, error) {
	u, ok := x.instance.(engine.Units)
	if !ok {
		return nil, ErrUnkept
	}
	var out []engine.State
	for _, b := range x.module.Buffers {
		pool, axis := x.poolOf(b.Name)
		t, err := u.ReadUnits(b.Name, axis, idsOf(units, pool))
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, ErrUnkept
		}
		if err != nil {
			return nil, err
		}
		out = append(out, engine.State{Buffer: b.Name, Tensor: t})
	}
	return out, nil
}

// Give implements Keeper.
func (x *raggedExecutor) Give(_ []int32, units []cache.Unit, states []engine.State) error {
	u, ok := x.instance.(engine.Units)
	if !ok {
		return ErrUnkept
	}
	if len(states) != len(x.module.Buffers) {
		return fmt.Errorf("the state has %d buffers, the program %d", len(states), len(x.module.Buffers))
	}
	for i, b := range x.module.Buffers {
		pool, axis := x.poolOf(b.Name)
		if states[i].Buffer != b.Name {
			return fmt.Errorf("buffer %d of the state is %q, want %q", i, states[i].Buffer, b.Name)
		}
		runs, err := engine.RunsOfUnits(b, axis, idsOf(units, pool), true)
		if err == nil {
			err = runs.CheckUnits(b, states[i].Tensor)
		}
		if err != nil {
			return err
		}
	}
	for i, b := range x.module.Buffers {
		pool, axis := x.poolOf(b.Name)
		if err := u.WriteUnits(b.Name, axis, idsOf(units, pool), states[i].Tensor); err != nil {
			return err
		}
	}
	return nil
}

func idsOf(units []cache.Unit, pool cache.Pool) []int32 {
	var ids []int32
	for _, u := range units {
		if u.Pool == pool {
			ids = append(ids, u.ID)
		}
	}
	return ids
}

// Form implements Keeper.
func (x *oneByOne) Form() string { return "a session" }

// Take implements Keeper: the only unit is a slot, a session.
func (x *oneByOne) Take(units []cache.Unit) ([]engine.State, error) {
	if len(units) != 1 {
		return nil, fmt.Errorf("%d units of a sequence, want its slot", len(units))
	}
	s, err := x.session(units[0].ID)
	if err != nil {
		return nil, err
	}
	snapshot, err := s.Snapshot()
	if err != nil {
		return nil, x.failed(units[0].ID, err)
	}
	return snapshot.States, nil
}

// Give implements Keeper.
func (x *oneByOne) Give(tokens []int32, units []cache.Unit, states []engine.State) error {
	if len(units) != 1 {
		return fmt.Errorf("%d units of a sequence, want its slot", len(units))
	}
	slot := units[0].ID
	if slot == cache.None {
		return nil
	}
	s, err := x.session(slot)
	if err != nil {
		return err
	}
	p := &session.Snapshot{States: states}
	for _, t := range tokens {
		p.Tokens = append(p.Tokens, int(t))
	}
	if err := x.model.CheckSnapshot(p); err != nil {
		return err
	}
	return x.failed(slot, s.Restore(p))
}
