package kernels

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Define is a preprocessor definition that stands before a kernel's text.
type Define struct{ Name, Value string }

// Launch is one dispatch of a kernel, less the buffers, which Signature names.
// Two launches of equal File, Kernel and Defines share a compiled kernel.
type Launch struct {
	// File is the name of the source, without .metal.
	File string
	// Kernel is a kernel in it.
	Kernel string
	// Defines are the compile-time shape and the tuning.
	Defines []Define
	// Params is the constant struct, which follows the last buffer; nil where the kernel has none.
	Params []byte
	// covers is the number of rows that so many threadgroups make, where it is no multiple of that of one.
	covers func(groups int) int
	// Groups is the grid in threadgroups, Threads one threadgroup.
	Groups, Threads [3]int
	// Memory is the bytes of TG_MEMORY of the kernel; 0 where it has none.
	Memory int
	// Case makes a use of the compiled kernel with a self-test, and of those that run before it; nil where another
	// launch's case has this kernel in it, or where there is none.
	Case func(Sizes) *Case
}

// Key tells compiled kernels apart.
func (l Launch) Key() string {
	size := len(l.File) + 1 + len(l.Kernel)
	for _, d := range l.Defines {
		size += len(d.Name) + len(d.Value) + 2
	}
	var b strings.Builder
	b.Grow(size)
	add := func(parts ...string) {
		for _, p := range parts {
			b.WriteString(p)
		}
	}
	add(l.File, "/", l.Kernel)
	for _, d := range l.Defines {
		add(" ", d.Name, "=", d.Value)
	}
	return b.String()
}

// define makes definitions of name-value pairs; values are ints, bools (1 or 0), strings (as they are) and
// float32 (exactly, as a bit pattern that every target reads).
func define(pairs ...any) []Define {
	out := make([]Define, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		var value string
		switch v := pairs[i+1].(type) {
		case int:
			value = strconv.Itoa(v)
		case bool:
			value = "0"
			if v {
				value = "1"
			}
		case float32:
			value = exactly(v)
		case string:
			value = v
		default:
			panic(fmt.Sprintf("kernels: definition %v of type %T", pairs[i], v))
		}
		out = append(out, Define{pairs[i].(string), value})
	}
	return out
}

// exactly is a number as the bit pattern that it is, which every target reads.
func exactly(v float32) string {
	nine := strconv.FormatUint(1<<32|uint64(math.Float32bits(v)), 16) // digits, the first of which is 1
	return "as_type<float>(0x" + nine[1:] + "u)"
}

// ceil is the least number of parts of a size that cover n.
func ceil(n, size int) int { return (n + size - 1) / size }
