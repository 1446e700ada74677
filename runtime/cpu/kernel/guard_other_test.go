//go:build !linux && !darwin

package kernel

func guarded[T byte | int8 | float32](n int) []T { return make([]T, n) }

func release() {}
