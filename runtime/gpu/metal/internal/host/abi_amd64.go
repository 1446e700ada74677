//go:build darwin || linux

package host

import "github.com/ebitengine/purego"

// sendSizes sends a message with two MTLSize. System V puts a struct of more than 16 bytes on the stack: the
// four zeros fill the registers that are left, so that what follows goes there.
func sendSizes(to id, s *selector, a, b *[3]uintptr) {
	purego.SyscallN(objc.send, uintptr(to), s.get(), 0, 0, 0, 0, a[0], a[1], a[2], b[0], b[1], b[2])
}
