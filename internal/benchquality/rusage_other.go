//go:build !unix

package main

import "os"

// peakMemory is 0: this system does not tell.
func peakMemory(*os.ProcessState) int64 { return 0 }
