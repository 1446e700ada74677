//go:build !amd64 && !arm64

package pool

import "runtime"

// pause lets others run.
func pause(n int) { runtime.Gosched() }
