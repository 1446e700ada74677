//go:build !amd64 && !arm64

package kernel

// native has no levels besides generic here.
func native() []*implementation { return nil }
