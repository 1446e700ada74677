package ir

import (
	"strconv"
	"strings"
)

// SplitLayer takes apart the name of what belongs to a layer: "model.layers.3.mlp.gate.weight" is "model.layers", 3 and
// "mlp.gate.weight". The layer is the first component that is a number, with something before and after it; ok is
// false where there is none.
func SplitLayer(name string) (before string, layer int, rest string, ok bool) {
	for at := strings.IndexByte(name, '.'); at >= 0; {
		component, behind, more := strings.Cut(name[at+1:], ".")
		if !more {
			break
		}
		if n, err := strconv.ParseUint(component, 10, 31); err == nil && at > 0 && behind != "" {
			return name[:at], int(n), behind, true
		}
		at += 1 + len(component)
	}
	return name, 0, "", false
}
