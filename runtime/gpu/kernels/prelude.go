package kernels

// Prelude is the text that stands before every kernel of a target. Tests of hosts put kernels of their own
// behind it.
func Prelude(t Target) string {
	return string(mustRead(preludes[t])) + string(mustRead("prelude/common.h"))
}
