//go:build darwin || linux

package host

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// sendSizes sends a message with two MTLSize. AAPCS64 passes a struct of more than 16 bytes as the address of
// a copy, which the callee may write to.
func sendSizes(to id, s *selector, a, b *[3]uintptr) {
	copies := [2][3]uintptr{*a, *b}
	purego.SyscallN(objc.send, uintptr(to), s.get(), uintptr(unsafe.Pointer(&copies[0])),
		uintptr(unsafe.Pointer(&copies[1])))
}
