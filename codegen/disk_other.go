//go:build !linux

package codegen

import "os"

// dropsPages tells whether dropPages does something.
const dropsPages = false

// dropPages does nothing: this system takes no such advice.
func dropPages(interface{ Fd() uintptr }, int64, int64) {}

// cached is not known on this system.
func cached(*os.File) float64 { return 0 }
