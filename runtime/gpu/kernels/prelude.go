package kernels

// Prelude returns the source that precedes every kernel of a target. Tests of hosts append kernels of their own.
func Prelude(t Target) string {
	return string(mustRead(preludes[t])) + string(mustRead("prelude/common.h"))
}
