//go:build unix

package command

import (
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// makeFIFO makes a FIFO: fifo NAME.
func makeFIFO(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, neg, len(args) == 1, "fifo NAME")
	ts.Check(syscall.Mkfifo(ts.MkAbs(args[0]), 0o644))
}
