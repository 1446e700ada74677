//go:build linux || darwin

package kernel

import (
	"os"
	"syscall"
	"unsafe"
)

// guarded gives n zero elements with a page after them that cannot be read.
func guarded[T byte | int8 | float32](n int) []T {
	var zero T
	page, size := os.Getpagesize(), n*int(unsafe.Sizeof(zero))
	if size == 0 {
		return []T{}
	}
	whole := (size + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, whole+page, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		panic(err)
	}
	if err := syscall.Mprotect(m[whole:], syscall.PROT_NONE); err != nil {
		panic(err)
	}
	allocated = append(allocated, m)
	return unsafe.Slice((*T)(unsafe.Pointer(&m[whole-size])), n)
}

// allocated is what guarded gave out; release gives it back.
var allocated [][]byte

func release() {
	for _, m := range allocated {
		syscall.Munmap(m)
	}
	allocated = nil
}
