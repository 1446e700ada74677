//go:build !amd64 && !arm64

package kernel

// native returns no levels: here there is only generic.
func native() []*implementation { return nil }
