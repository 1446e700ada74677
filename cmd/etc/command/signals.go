package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/etc-ml/etc/internal/outfile"
)

// grace is how long a command may take to end after the first signal, before the process ends without it. What holds
// signals may take longer.
const grace = 800 * time.Millisecond

// interruptsOwned is set by what handles Ctrl-C by itself, as a chat, whose answers it stops.
var interruptsOwned atomic.Bool

// signalsHeld counts what ends by its context and must not be cut short: writing a program, which keeps what is there
// or removes it.
var signalsHeld atomic.Int32

// signalsReleased is when signals were last released; nil: never.
var signalsReleased atomic.Pointer[time.Time]

// holdSignals keeps the end of the grace time from ending the process, until release is called: a signal only ends the
// context, and the command may take as long as it needs. If there was a signal, a new grace time begins with release. A
// second signal ends the process at once nevertheless.
func holdSignals() (release func()) {
	signalsHeld.Add(1)
	return func() {
		now := time.Now()
		signalsReleased.Store(&now)
		signalsHeld.Add(-1)
	}
}

// watchSignals returns a context that ends with the first Ctrl-C or SIGTERM. A command that has not ended soon after
// that, because it waits for input or computes without looking, is ended; so it is by the second signal, at once.
func watchSignals() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go endAfterSignals(signals, done, cancel, abort)
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel()
	}
}

// endAfterSignals returns when done is closed. Until then it calls cancel at the first signal, and abort, which ends the
// process, at the second one or when the grace time is over. The grace time begins with the first signal, or with the
// last release of holdSignals, whichever is later.
func endAfterSignals(signals <-chan os.Signal, done <-chan struct{}, cancel, abort func()) {
	var late <-chan time.Time
	for {
		select {
		case s := <-signals:
			if s == os.Interrupt && interruptsOwned.Load() {
				continue
			}
			if late != nil {
				abort()
			}
			cancel()
			late = time.After(grace)
		case <-late:
			left := time.Duration(0)
			if signalsHeld.Load() > 0 {
				left = grace / 8
			} else if released := signalsReleased.Load(); released != nil {
				left = grace - time.Since(*released)
			}
			if left <= 0 {
				abort()
			}
			late = time.After(left)
		case <-done:
			return
		}
	}
}

// abort ends the process, without files that are not whole.
func abort() {
	outfile.RemoveUnfinished()
	fmt.Fprintln(os.Stderr, "etc: interrupted")
	os.Exit(exitFailed)
}
