//go:build !unix

package command

import "github.com/rogpeppe/go-internal/testscript"

// makeFIFO is for systems with FIFOs.
func makeFIFO(ts *testscript.TestScript, _ bool, _ []string) { ts.Fatalf("this system has no FIFOs") }
