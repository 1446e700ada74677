package kernel

import "syscall"

// requestAMX asks Linux for the state of the matrix unit, which a process does not have until it does
// (arch_prctl(2), ARCH_REQ_XCOMP_PERM of XFEATURE_XTILE_DATA).
func requestAMX() bool {
	const requestPermission, tileData = 0x1023, 18
	_, _, errno := syscall.RawSyscall(syscall.SYS_ARCH_PRCTL, requestPermission, tileData, 0)
	return errno == 0
}
