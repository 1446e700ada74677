package pool

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/etc-ml/etc/internal/fault"
)

// Pool is a fixed number of threads. Its methods may be called by any goroutine; loops of different callers
// do not run at the same time in it.
type Pool struct {
	caller sync.Mutex // held by the goroutine whose loop runs

	// state is the number of the loop (from bit 32), whether it may be joined (bit 31), whether its caller
	// sleeps (bit 30), and how many workers are in it.
	state atomic.Uint64
	_     [56]byte // next is written by all threads; keep the rest out of its cache line
	next  atomic.Int64
	_     [56]byte

	// The loop. Written before it opens, read by those who joined.
	n, grain int64
	body     func(lo, hi int)
	until    <-chan struct{} // no piece begins after it is closed
	failure  atomic.Pointer[failure]

	finished chan struct{}
	workers  []worker
	stopped  atomic.Bool
	done     sync.WaitGroup
}

// worker is what others need to know of a worker to wake it.
type worker struct {
	asleep atomic.Bool
	wake   chan struct{}
	_      [48]byte
}

// failure is what a body panicked with.
type failure struct{ value any }

const (
	open     = 1 << 31
	waiting  = 1 << 30
	joined   = waiting - 1
	loopUnit = 1 << 32
)

// New starts a pool of threads threads, of which the caller of Run is one; at least one. Close stops them.
func New(threads int) *Pool {
	p := &Pool{finished: make(chan struct{}, 1), workers: make([]worker, max(threads, 1)-1)}
	p.done.Add(len(p.workers))
	for i := range p.workers {
		p.workers[i].wake = make(chan struct{}, 1)
		go p.work(&p.workers[i])
	}
	return p
}

// Threads returns the number of threads, that of the caller among them.
func (p *Pool) Threads() int { return len(p.workers) + 1 }

// Close stops the threads and waits for them. No Run may follow.
func (p *Pool) Close() {
	p.caller.Lock()
	defer p.caller.Unlock()
	p.stopped.Store(true)
	for i := range p.workers {
		p.rouse(&p.workers[i])
	}
	p.done.Wait()
}

// Run calls body for ranges that cover [0, n) once each: [0, grain), [grain, 2·grain), …; the last may be
// shorter. Calls come from the caller and from other threads, in no order, and Run returns after the last
// one. What body writes is visible then. A panic of body is passed on to the caller, after which parts of
// the loop may not have run. In a body, or while the loop of another caller runs, Run makes all calls itself.
func (p *Pool) Run(n, grain int, body func(lo, hi int)) { p.RunUntil(nil, n, grain, body) }

// RunUntil is Run that begins no piece after done is closed: pieces that run end, those that are left do not run.
// nil is never closed.
func (p *Pool) RunUntil(done <-chan struct{}, n, grain int, body func(lo, hi int)) {
	if grain <= 0 {
		panic(fmt.Sprintf("pool: pieces of %d", grain))
	}
	if n <= grain || len(p.workers) == 0 || !p.caller.TryLock() {
		for lo := 0; lo < n && !closed(done); lo += grain {
			body(lo, min(lo+grain, n))
		}
		return
	}
	defer p.caller.Unlock()
	if p.stopped.Load() {
		panic("pool: Run after Close")
	}
	p.n, p.grain, p.body, p.until = int64(n), int64(grain), body, done
	p.next.Store(0)
	p.state.Store(p.state.Load()&^(loopUnit-1) + loopUnit | open)
	p.wakeTwo()
	p.share()
	p.close()
	p.body, p.until = nil, nil
	if f := p.failure.Swap(nil); f != nil {
		panic(f.value)
	}
}

// share runs pieces until none is left.
func (p *Pool) share() {
	defer p.keepFailure()
	n, grain, body, done := p.n, p.grain, p.body, p.until
	for {
		lo := p.next.Add(grain) - grain
		if lo >= n || closed(done) {
			return
		}
		body(int(lo), int(min(lo+grain, n)))
	}
}

// closed reports whether done was closed. It costs a few nanoseconds, without a lock.
func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// keepFailure ends a loop whose body panicked, and keeps the first value for the caller.
func (p *Pool) keepFailure() {
	if v := recover(); v != nil {
		p.next.Store(p.n)
		p.failure.CompareAndSwap(nil, &failure{v})
	}
}

// close keeps further workers from joining and waits for those who did.
func (p *Pool) close() {
	state := p.state.And(^uint64(open)) &^ open
	for spins := 0; state&joined != 0; spins++ {
		if spins < callerSpins {
			pause(pauseLength)
			state = p.state.Load()
			continue
		}
		// Sleep. The last worker to leave sees that and says so.
		if p.state.CompareAndSwap(state, state|waiting) {
			<-p.finished
			return
		}
		state = p.state.Load()
	}
}

// leave counts a worker out of the loop.
func (p *Pool) leave() {
	if state := p.state.Add(^uint64(0)); state&joined == 0 && state&waiting != 0 {
		p.finished <- struct{}{}
	}
}

// join counts a worker into the loop that is open, if it is not the one it was in last.
func (p *Pool) join(last uint64) (loop uint64, ok bool) {
	for {
		state := p.state.Load()
		if loop := state / loopUnit; state&open == 0 || loop == last {
			return 0, false
		} else if p.state.CompareAndSwap(state, state+1) {
			return loop, true
		}
	}
}

// Spinning. A pause takes some tens of nanoseconds.
const (
	pauseLength = 8
	minSpins    = 8
	maxSpins    = 256
	callerSpins = 128
)

// work is the life of a worker.
func (p *Pool) work(w *worker) {
	defer p.done.Done()
	fault.Readable() // weights are read where the file is mapped
	var last uint64
	limit := maxSpins
	for spins := 0; ; {
		if loop, ok := p.join(last); ok {
			last = loop
			if p.next.Load() < p.n {
				p.wakeTwo()
				p.share()
			}
			p.leave()
			limit, spins = min(2*limit, maxSpins), 0
			continue
		}
		if p.stopped.Load() {
			return
		}
		if spins++; spins < limit {
			pause(pauseLength)
			if spins%64 == 0 {
				runtime.Gosched()
			}
			continue
		}
		limit, spins = max(limit/2, minSpins), 0
		w.asleep.Store(true)
		// A loop that opened before this store did not see a sleeper.
		if p.pending(last) || p.stopped.Load() {
			if !w.asleep.CompareAndSwap(true, false) {
				<-w.wake
			}
			continue
		}
		<-w.wake
	}
}

// pending says that there is a loop to join.
func (p *Pool) pending(last uint64) bool {
	state := p.state.Load()
	return state&open != 0 && state/loopUnit != last
}

// wakeTwo wakes two workers that sleep, if there is work for them.
func (p *Pool) wakeTwo() {
	for i, woken := 0, 0; i < len(p.workers) && woken < 2 && p.next.Load() < p.n; i++ {
		if p.rouse(&p.workers[i]) {
			woken++
		}
	}
}

// rouse wakes w if it sleeps.
func (p *Pool) rouse(w *worker) bool {
	if !w.asleep.Load() || !w.asleep.CompareAndSwap(true, false) {
		return false
	}
	w.wake <- struct{}{}
	return true
}
