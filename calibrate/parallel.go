package calibrate

import (
	"sync"
	"sync/atomic"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// eachFunc calls f for every number below n, on several workers, and returns when all calls have returned.
type eachFunc func(n int, f func(i int))

// serially is an eachFunc of one worker.
func serially(n int, f func(i int)) {
	for i := range n {
		f(i)
	}
}

// workers returns an eachFunc that runs on count goroutines.
func workers(count int) eachFunc {
	return func(n int, f func(i int)) {
		if n < 2 || count < 2 {
			serially(n, f)
			return
		}
		var next atomic.Int64
		var wait sync.WaitGroup
		for range min(n, count) {
			wait.Go(func() {
				for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
					f(i)
				}
			})
		}
		wait.Wait()
	}
}

// try is each for a function that can fail. It returns the error of the smallest number. After an error it begins no
// more calls.
func (each eachFunc) try(n int, f func(i int) error) error {
	errs := make([]error, n)
	var failed atomic.Bool
	each(n, func(i int) {
		if failed.Load() {
			return
		}
		if errs[i] = f(i); errs[i] != nil {
			failed.Store(true)
		}
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// constants decodes the constants that are no weights of linears, and keeps them. It is safe for concurrent use.
type constants struct {
	source Source // replaces constants of the module; nil: none
	ledger *ledger
	mu     sync.Mutex
	values map[*ir.Constant]*eval.Tensor
}

func (k *constants) get(c *ir.Constant) (*eval.Tensor, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t := k.values[c]; t != nil {
		return t, nil
	}
	used := c
	if k.source != nil {
		if d := k.source.Constant(c); d != nil {
			used = &ir.Constant{Name: c.Name, Value: c.Value, Data: d}
		}
	}
	t, err := eval.DecodeConstant(used)
	if err != nil {
		return nil, err
	}
	if k.values == nil {
		k.values = map[*ir.Constant]*eval.Tensor{}
	}
	k.values[c] = t
	k.ledger.take(tensorBytes(t))
	return t, nil
}

// close drops the constants.
func (k *constants) close() {
	for _, t := range k.values {
		k.ledger.give(tensorBytes(t))
	}
	k.values = nil
}
