package command

import (
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A command is cut short when the grace time is over, which begins with the signal, or with the release of signals that
// were held. So a server that took long to close may still return and end with its own exit code.
func TestGraceTime(t *testing.T) {
	for _, test := range []struct {
		name  string
		held  time.Duration // how long after the signal they are held; 0: not at all
		again time.Duration // when the second signal comes; 0: none
		want  time.Duration // when the command is cut short
	}{
		{name: "not held", want: grace},
		{name: "held less than the grace time", held: grace - 1, want: 2*grace - 1},
		{name: "held longer", held: 5*grace + grace/3, want: 6*grace + grace/3},
		{name: "second signal", again: grace / 3, want: grace / 3},
		{name: "second signal while held", held: 5 * grace, again: 2 * grace, want: 2 * grace},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer signalsReleased.Store(nil)
				release := func() {}
				if test.held > 0 {
					release = holdSignals()
				}
				signals, cut := make(chan os.Signal, 4), make(chan time.Duration, 1)
				start, ended := time.Now(), false
				abort := func() {
					cut <- time.Since(start)
					runtime.Goexit() // where abort ends the process
				}
				go endAfterSignals(signals, nil, func() { ended = true }, abort)
				signals <- os.Interrupt
				synctest.Wait()
				require.True(t, ended, "the context ends with the first signal")
				time.AfterFunc(test.held, release)
				if test.again > 0 {
					time.AfterFunc(test.again, func() { signals <- os.Interrupt })
				}
				require.Equal(t, test.want, <-cut)
				time.Sleep(test.held) // the release of a command that was cut short
			})
		})
	}
}
