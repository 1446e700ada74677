package command

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/etc-ml/etc/internal/fault"
)

// forEach calls f with each number from 0 on below n, on as many goroutines as there are processors. The first error,
// or the end of ctx, ends the context that f gets; no further call begins then, and that is the error.
func forEach(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wait fault.Group
	for range min(runtime.GOMAXPROCS(0), n) {
		wait.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wait.Wait()
	return context.Cause(ctx)
}
