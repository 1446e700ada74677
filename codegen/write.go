package codegen

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/internal/outfile"
)

// Write writes a file under path. It writes to path.partial and renames that when it is whole, so that a file
// that exists is never half of one. Where writing ends early, by an error or by the end of the context, nothing
// is left beside path, unless [File.Resume] is set: then the next call that has it set goes on from there, as
// it does from what a killed process has left. A [ChangedError] says that what is there is of something else,
// a [SpaceError] that the disk is too small; nothing is written then.
func Write(ctx context.Context, path string, f File) error {
	l, err := Plan(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return write(ctx, path, f, image{size: l.Size, key: l.hash(), tasks: l.tasks()})
}

// image is a file to write: the whole program, or a part of it.
type image struct {
	size  int64
	key   string // with the identity of the file it determines what the tasks write: see --resume
	tasks []task
	// at is where in the image a byte of the program lies; nil: at the same place.
	at func(offset int64) int64
	// finish is called when all tasks are done; nil: nothing is to be done then.
	finish func(out outfile.File) error
}

func write(ctx context.Context, path string, f File, i image) (err error) {
	out, err := openOutput(path, f, i)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.abandon())
		}
	}()
	if err := out.run(ctx, i.tasks, f.Workers()); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
			return &InterruptedError{Path: path, Kept: f.Resume, err: err}
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	if i.finish != nil {
		if err := i.finish(out.file); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return out.commit()
}

// InterruptedError says that writing ended early because its context did, as by Ctrl-C.
type InterruptedError struct {
	Path string
	Kept bool // what was written is kept, and a call with File.Resume goes on from it
	err  error
}

func (e *InterruptedError) Error() string {
	if e.Kept {
		return e.Path + ": interrupted; --resume goes on from what has been written"
	}
	return e.Path + ": interrupted; nothing has been left of it"
}
func (e *InterruptedError) Unwrap() error { return e.err }

// run runs a task. A panic is an error.
func (w *worker) run(ctx context.Context, t task) (err error) {
	defer fault.Recover("computing what is written", &err)
	return t.run(ctx, w)
}

// run runs the tasks that are not done on a number of workers and gives the first error, after which no task starts.
func (o *output) run(ctx context.Context, tasks []task, jobs int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan task)
	waiting := newWaiting(tasks, o.done)
	var wait sync.WaitGroup
	for range min(jobs, len(tasks)) {
		wait.Go(func() {
			fault.Readable() // sources may be mapped
			w := &worker{out: o}
			for t := range queue {
				for next := []task{t}; len(next) > 0; next = next[1:] {
					t := next[0]
					err := fault.Run("writing", func() error { return w.run(ctx, t) })
					if err == nil {
						err = o.completed(t)
					}
					if err != nil {
						cancel(err) // the first one counts
						return
					}
					next = append(next, waiting.completed(t)...)
				}
			}
		})
	}
feed:
	for _, t := range tasks {
		if o.done.has(t.id) {
			if t.skip != nil {
				t.skip()
			}
			continue
		}
		if waiting.waits(t) {
			continue
		}
		select {
		case queue <- t:
		case <-ctx.Done():
			break feed
		}
	}
	close(queue)
	wait.Wait()
	err := errors.Join(context.Cause(ctx), o.settle())
	if err == nil && o.progress != nil && o.written < o.total {
		o.progress(o.total, o.total) // what an earlier export has written counts by shares
	}
	return err
}
