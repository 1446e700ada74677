package fault

import (
	"sync"
	"sync/atomic"
)

// Group is a set of goroutines whose panics are passed on to the goroutine that waits for them. (A panic that nothing
// recovers ends the process.) The goroutines may read mapped files (see [Readable]). The zero value is ready for use.
type Group struct {
	wait    sync.WaitGroup
	failure atomic.Pointer[Error]
}

// Go calls f in a goroutine.
func (g *Group) Go(f func()) {
	g.wait.Go(func() {
		Readable()
		defer func() {
			if r := recover(); r != nil {
				g.failure.CompareAndSwap(nil, Of("", r))
			}
		}()
		f()
	})
}

// Wait waits for all goroutines. It panics with the [*Error] of the first one that panicked.
func (g *Group) Wait() {
	g.wait.Wait()
	if e := g.failure.Load(); e != nil {
		panic(e)
	}
}

// Run calls f and returns its error, or a panic of f as an [*Error]. It is for goroutines that live longer than one
// task.
func Run(during string, f func() error) (err error) {
	defer Recover(during, &err)
	return f()
}
