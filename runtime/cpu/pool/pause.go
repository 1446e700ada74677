//go:build amd64 || arm64

package pool

// pause waits for about n·10 ns without using the core more than it must:
//
//	for range n { /* the CPU's hint that this is a spin loop */ }
//
//go:noescape
func pause(n int)
