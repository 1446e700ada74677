package batch

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/cache"
)

// Part says what a part of a state is: what some units of a buffer hold, exactly as the executor holds it.
type Part struct {
	Buffer string
	// DType is that of the buffer.
	DType ir.DType
	// Stored is the dtype of the content, which is DType, or float32 where the precision keeps that.
	Stored ir.DType
	Shape  []int
}

// Size is that of the content in bytes.
func (p Part) Size() int {
	n := p.Stored.Size()
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// Kept is the state behind some tokens, taken out of a runner, to be put back into one of the same program, precision
// and form, in another process too. Going on from it gives the same bits as never having stopped.
//
// What a runner gives out is read while it is held there: calls run between two parts.
type Kept struct {
	// Tokens that the state is behind.
	Tokens []int32
	// Form tells what kind of executor the state is of, and how it lays it out; others cannot take it.
	Form string
	// Parts are what Read gives.
	Parts []Part
	// Read gives the content of a part: its elements, row-major and little-endian. Several goroutines may call it,
	// until Close.
	Read func(ctx context.Context, part int) ([]byte, error)
	// Reuse takes a content of Read that its reader needs no more, to be memory of another part; nil: nobody does.
	Reuse func(content []byte)
	// Release gives back what is held for reading; nil: nothing is. Close calls it once.
	Release func() error

	once sync.Once
	err  error
}

// Close ends reading.
func (k *Kept) Close() error {
	k.once.Do(func() {
		if k.Release != nil {
			k.err = k.Release()
		}
	})
	return k.err
}

// NewKept is a state that is in memory.
func NewKept(tokens []int32, form string, parts []Part, contents [][]byte) *Kept {
	return &Kept{Tokens: tokens, Form: form, Parts: parts,
		Read: func(_ context.Context, part int) ([]byte, error) { return contents[part], nil }}
}

// Contents reads all parts.
func (k *Kept) Contents(ctx context.Context) ([][]byte, error) {
	out := make([][]byte, len(k.Parts))
	for i := range k.Parts {
		var err error
		if out[i], err = k.Read(ctx, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ErrUnkept says that the executor's state cannot be taken out or put back.
var ErrUnkept = errors.New("the state of this program on this device cannot be kept")

// FormError says that a state has another form than those of the executor.
type FormError struct{ Form, Want string }

func (e *FormError) Error() string {
	return fmt.Sprintf("the state has the form %q, that of this server is %q", e.Form, e.Want)
}

// Keeper is an executor whose units can be taken out and put back, all at once.
type Keeper interface {
	// Form is [Kept.Form].
	Form() string
	// Take copies what units hold.
	Take(units []cache.Unit) ([]Part, [][]byte, error)
	// Give fills units with what Take gave of as many of the same pools in the same order; those that are cache.None
	// are left out. It checks names, dtypes, shapes and sizes before it writes anything.
	Give(tokens []int32, units []cache.Unit, parts []Part, contents [][]byte) error
}

// UnitPart is a part of the units of an executor.
type UnitPart struct {
	Part
	// Axis of the buffer that units are indices of, and the units; cache.None for one that is left out.
	Axis int
	IDs  []int32
}

// PartKeeper is an executor whose units can be taken out and put back part by part, so that calls run in between.
type PartKeeper interface {
	// Form is [Kept.Form].
	Form() string
	// Parts are what units hold. Units of the same pools in the same order have the same parts, but for the numbers.
	Parts(units []cache.Unit) ([]UnitPart, error)
	// TakePart copies a part.
	TakePart(p UnitPart) ([]byte, error)
	// GivePart fills a part with what TakePart gave.
	GivePart(p UnitPart, content []byte) error
}

// Keep takes out what the prefix cache has of a prompt. A prefix ends where the cache has a checkpoint; how many tokens
// that are is to be seen in the result. It is nil where the cache has nothing. Until the result is closed the cache
// does not forget it. Copies are made between two calls, of a part at a time where the executor can do that.
func (r *Runner) Keep(ctx context.Context, tokens []int) (*Kept, error) {
	var out *Kept
	var err error
	ran := r.Do(ctx, func(x Executor) { out, err = r.keep(x, tokens) })
	return out, errors.Join(ran, err)
}

// keep is Keep, on the runner's goroutine.
func (r *Runner) keep(x Executor, tokens []int) (*Kept, error) {
	whole, isWhole := x.(Keeper)
	parted, isParted := x.(PartKeeper)
	if !isWhole && !isParted || r.limits.NoCopies {
		return nil, ErrUnkept
	}
	table, hit := r.prefix.Open(int32s(tokens))
	if hit.Pos == 0 {
		table.Close()
		return nil, nil
	}
	known := int32s(tokens[:hit.Pos])
	if !isParted {
		defer table.Close()
		parts, contents, err := whole.Take(table.Units())
		if err != nil {
			return nil, err
		}
		return NewKept(known, whole.Form(), parts, contents), nil
	}
	parts, err := parted.Parts(table.Units())
	if err != nil {
		table.Close()
		return nil, err
	}
	k := &Kept{Tokens: known, Form: parted.Form()}
	for _, p := range parts {
		k.Parts = append(k.Parts, p.Part)
	}
	k.Read = func(ctx context.Context, part int) (content []byte, err error) {
		ran := r.Do(ctx, func(Executor) { content, err = parted.TakePart(parts[part]) })
		return content, errors.Join(ran, err)
	}
	k.Release = func() error {
		err := r.Do(context.Background(), func(Executor) { table.Close(); r.prefix.Trim() })
		if errors.Is(err, ErrClosed) {
			return nil // the memory is gone
		}
		return err
	}
	return k, nil
}

// Put gives the prefix cache a state that Keep took out. The error is cache.ErrNoRoom where it does not fit, and
// cache.ErrOff where no prefixes are kept. After an error the cache has nothing of it. The state is read beside the
// calls.
func (r *Runner) Put(ctx context.Context, kept *Kept) error {
	if n := len(kept.Tokens); n == 0 || n > r.limits.Positions {
		return fmt.Errorf("a state behind %d tokens, want 1 to %d", n, r.limits.Positions)
	}
	for i, t := range kept.Tokens {
		if t < 0 || r.limits.Vocab > 0 && int(t) >= r.limits.Vocab {
			return fmt.Errorf("token %d of the state is %d, which is not in the vocabulary of %d tokens", i, t,
				r.limits.Vocab)
		}
	}
	form := ""
	switch k := r.exec.(type) {
	case PartKeeper:
		form = k.Form()
	case Keeper:
		form = k.Form()
	}
	switch {
	case form == "" || r.limits.NoCopies:
		return ErrUnkept
	case kept.Form != form:
		return &FormError{kept.Form, form}
	}
	if k, ok := r.exec.(PartKeeper); ok {
		return r.putParts(ctx, k, kept)
	}
	contents, err := kept.Contents(ctx)
	if err != nil {
		return err
	}
	ran := r.Do(ctx, func(x Executor) {
		err = r.prefix.Put(kept.Tokens, func(units []cache.Unit) error {
			return x.(Keeper).Give(kept.Tokens, units, kept.Parts, contents)
		})
	})
	return errors.Join(ran, err)
}

// putParts is Put of an executor that takes a part at a time.
func (r *Runner) putParts(ctx context.Context, k PartKeeper, kept *Kept) error {
	var f *cache.Filling
	var parts []UnitPart
	var err error
	ran := r.Do(ctx, func(Executor) {
		if f, err = r.prefix.Fill(kept.Tokens); err != nil {
			return
		}
		if parts, err = k.Parts(f.Units()); err == nil {
			err = sameParts(parts, kept.Parts)
		}
		if err != nil {
			f.Close()
		}
	})
	if err := errors.Join(ran, err); err != nil {
		return err
	}
	giving := make(chan struct{}, 1) // one part between two calls, so that running answers wait for no more
	group, fill := errgroup.WithContext(ctx)
	group.SetLimit(max(2, runtime.GOMAXPROCS(0))) // one reads while another one is copied
	for i, p := range parts {
		group.Go(func() error {
			content, err := kept.Read(fill, i) // what is there already too: a damaged state is told, whoever has it
			if kept.Reuse != nil {
				defer kept.Reuse(content)
			}
			if err != nil || !slices.ContainsFunc(p.IDs, func(id int32) bool { return id != cache.None }) {
				return err
			}
			select {
			case giving <- struct{}{}:
				defer func() { <-giving }()
			case <-fill.Done():
				return fill.Err()
			}
			ran := r.Do(fill, func(Executor) { err = k.GivePart(p, content) })
			return errors.Join(ran, err)
		})
	}
	filled := group.Wait()
	ran = r.Do(context.WithoutCancel(ctx), func(Executor) {
		if filled == nil {
			err = f.Keep()
		}
		f.Close()
		r.prefix.Trim()
	})
	return errors.Join(filled, ran, err)
}

// sameParts compares the parts that an executor has with those of a state.
func sameParts(want []UnitPart, have []Part) error {
	if len(want) != len(have) {
		return fmt.Errorf("the state has %d parts, expected %d", len(have), len(want))
	}
	for i, w := range want {
		h := have[i]
		if h.Buffer != w.Buffer || h.DType != w.DType || h.Stored != w.Stored || !slices.Equal(h.Shape, w.Shape) {
			return fmt.Errorf("part %d of the state is %s%v of buffer %q in %s, expected %s%v of %q in %s", i,
				h.DType, h.Shape, h.Buffer, h.Stored, w.DType, w.Shape, w.Buffer, w.Stored)
		}
	}
	return nil
}

func int32s(tokens []int) []int32 {
	out := make([]int32, len(tokens))
	for i, t := range tokens {
		out[i] = int32(t)
	}
	return out
}
