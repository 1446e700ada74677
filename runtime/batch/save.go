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

// Part describes a part of a saved state: some units of one buffer, exactly as the executor stores them.
type Part struct {
	Buffer string
	// DType is the declared dtype of the buffer.
	DType ir.DType
	// Stored is the dtype of the content: DType, or float32 where the precision keeps state in float32.
	Stored ir.DType
	Shape  []int
}

// Size returns the size of the content in bytes.
func (p Part) Size() int {
	n := p.Stored.Size()
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// Saved is the state after some tokens, copied out of a runner. A runner of the same program, precision and form can
// restore it, in another process too, and then gives the same bits as if it had never stopped.
//
// The state that a runner saves stays in its cache while it is read, a part at a time; calls run between two parts.
type Saved struct {
	// Tokens are the tokens that led to the state.
	Tokens []int32
	// Form names the kind of executor that the state comes from, and how that lays its state out. An executor of
	// another form cannot restore it.
	Form string
	// Parts describe the parts that Read returns.
	Parts []Part
	// Read returns the content of a part: its elements, row-major and little-endian. Several goroutines may call it,
	// until Close.
	Read func(ctx context.Context, part int) ([]byte, error)
	// Reuse, if not nil, takes back a content that Read returned and that its reader is done with; Read may use the
	// memory for another part.
	Reuse func(content []byte)
	// Release, if not nil, frees what is held for reading. Close calls it once.
	Release func() error

	once sync.Once
	err  error
}

// Close ends the reading of the state. It may be called more than once.
func (s *Saved) Close() error {
	s.once.Do(func() {
		if s.Release != nil {
			s.err = s.Release()
		}
	})
	return s.err
}

// NewSaved returns a state whose parts are in memory.
func NewSaved(tokens []int32, form string, parts []Part, contents [][]byte) *Saved {
	return &Saved{Tokens: tokens, Form: form, Parts: parts,
		Read: func(_ context.Context, part int) ([]byte, error) { return contents[part], nil }}
}

// Contents reads and returns all parts.
func (s *Saved) Contents(ctx context.Context) ([][]byte, error) {
	out := make([][]byte, len(s.Parts))
	for i := range s.Parts {
		var err error
		if out[i], err = s.Read(ctx, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ErrNotSavable says that the executor can neither save nor restore states.
var ErrNotSavable = errors.New("the state of this program on this device cannot be saved")

// FormError says that a state has another form than the executor's.
type FormError struct{ Form, Want string }

func (e *FormError) Error() string {
	return fmt.Sprintf("the state has the form %q, that of this server is %q", e.Form, e.Want)
}

// Saver is an executor that saves and restores the units of a sequence all at once.
type Saver interface {
	// Form returns the [Saved.Form] of its states.
	Form() string
	// Save copies the contents of units.
	Save(units []cache.Unit) ([]Part, [][]byte, error)
	// Restore writes contents that Save returned to as many units, of the same pools in the same order. It leaves
	// units cache.None out. It checks names, dtypes, shapes and sizes before it writes anything.
	Restore(tokens []int32, units []cache.Unit, parts []Part, contents [][]byte) error
}

// UnitPart is a part together with the units that it lies in.
type UnitPart struct {
	Part
	// Axis is the axis of the buffer that IDs index; cache.None stands for a unit that is left out.
	Axis int
	IDs  []int32
}

// PartSaver is an executor that saves and restores units part by part, so that calls can run in between.
type PartSaver interface {
	// Form returns the [Saved.Form] of its states.
	Form() string
	// Parts divides units into parts. Units of the same pools in the same order have the same parts, apart from IDs.
	Parts(units []cache.Unit) ([]UnitPart, error)
	// SavePart copies the content of a part.
	SavePart(p UnitPart) ([]byte, error)
	// RestorePart writes a content that SavePart returned to a part.
	RestorePart(p UnitPart, content []byte) error
}

// Save returns the state after the longest beginning of tokens that the prefix cache can resume at: that of its last
// checkpoint. Saved.Tokens says how long it is; the result is nil if there is none. The cache does not evict the
// state before the result is closed. The executor copies it between calls, part by part if it is a [PartSaver].
func (r *Runner) Save(ctx context.Context, tokens []int) (*Saved, error) {
	var out *Saved
	var err error
	ran := r.Do(ctx, func(x Executor) { out, err = r.save(x, tokens) })
	return out, errors.Join(ran, err)
}

// save is Save on the runner's goroutine.
func (r *Runner) save(x Executor, tokens []int) (*Saved, error) {
	whole, isWhole := x.(Saver)
	parted, isParted := x.(PartSaver)
	if !isWhole && !isParted || r.limits.NoCopies {
		return nil, ErrNotSavable
	}
	table, hit := r.prefix.Open(int32s(tokens))
	if hit.Pos == 0 {
		table.Close()
		return nil, nil
	}
	known := int32s(tokens[:hit.Pos])
	if !isParted {
		defer table.Close()
		parts, contents, err := whole.Save(table.Units())
		if err != nil {
			return nil, err
		}
		return NewSaved(known, whole.Form(), parts, contents), nil
	}
	parts, err := parted.Parts(table.Units())
	if err != nil {
		table.Close()
		return nil, err
	}
	k := &Saved{Tokens: known, Form: parted.Form()}
	for _, p := range parts {
		k.Parts = append(k.Parts, p.Part)
	}
	k.Read = func(ctx context.Context, part int) (content []byte, err error) {
		ran := r.Do(ctx, func(Executor) { content, err = parted.SavePart(parts[part]) })
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

// Restore puts a state that Save returned into the prefix cache. The error is cache.ErrNoRoom if it does not fit, and
// cache.ErrOff if the runner caches no prefixes; after an error the cache is as before. The state is read while calls
// run.
func (r *Runner) Restore(ctx context.Context, saved *Saved) error {
	if n := len(saved.Tokens); n == 0 || n > r.limits.Positions {
		return fmt.Errorf("a state after %d tokens, want 1 to %d", n, r.limits.Positions)
	}
	for i, t := range saved.Tokens {
		if t < 0 || r.limits.Vocab > 0 && int(t) >= r.limits.Vocab {
			return fmt.Errorf("token %d of the state is %d, which is not in the vocabulary of %d tokens", i, t,
				r.limits.Vocab)
		}
	}
	form := ""
	switch k := r.exec.(type) {
	case PartSaver:
		form = k.Form()
	case Saver:
		form = k.Form()
	}
	switch {
	case form == "" || r.limits.NoCopies:
		return ErrNotSavable
	case saved.Form != form:
		return &FormError{saved.Form, form}
	}
	if k, ok := r.exec.(PartSaver); ok {
		return r.restoreParts(ctx, k, saved)
	}
	contents, err := saved.Contents(ctx)
	if err != nil {
		return err
	}
	ran := r.Do(ctx, func(x Executor) {
		err = r.prefix.Put(saved.Tokens, func(units []cache.Unit) error {
			return x.(Saver).Restore(saved.Tokens, units, saved.Parts, contents)
		})
	})
	return errors.Join(ran, err)
}

// restoreParts is Restore for an executor that restores part by part.
func (r *Runner) restoreParts(ctx context.Context, k PartSaver, saved *Saved) error {
	var f *cache.Filling
	var parts []UnitPart
	var err error
	ran := r.Do(ctx, func(Executor) {
		if f, err = r.prefix.Fill(saved.Tokens); err != nil {
			return
		}
		if parts, err = k.Parts(f.Units()); err == nil {
			err = sameParts(parts, saved.Parts)
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
			content, err := saved.Read(fill, i) // what is there already too: a damaged state is told, whoever has it
			if saved.Reuse != nil {
				defer saved.Reuse(content)
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
			ran := r.Do(fill, func(Executor) { err = k.RestorePart(p, content) })
			return errors.Join(ran, err)
		})
	}
	filled := group.Wait()
	ran = r.Do(context.WithoutCancel(ctx), func(Executor) {
		if filled == nil {
			err = f.Commit()
		}
		f.Close()
		r.prefix.Trim()
	})
	return errors.Join(filled, ran, err)
}

// sameParts returns an error if the parts of a state are not those that the executor wants.
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
