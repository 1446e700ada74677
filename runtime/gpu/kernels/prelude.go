package kernels

// SharedPrelude is the line with which prelude/common.h begins, the part of every prelude that all targets share.
const SharedPrelude = "// Code that all targets share. It follows the prelude of the target.\n"

// Prelude returns the source that precedes every kernel of a target. Tests of hosts append kernels of their own.
func Prelude(t Target) string {
	return string(mustRead(preludes[t])) + string(mustRead("prelude/common.h"))
}
