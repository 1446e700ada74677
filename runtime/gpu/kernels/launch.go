package kernels

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Define is a preprocessor definition that is put before a kernel's source.
type Define struct{ Name, Value string }

// Launch is one dispatch of a kernel without its buffers, which Signature names. Launches with equal File, Kernel and
// Defines share a compiled kernel.
type Launch struct {
	// File is the name of the source file, without .metal.
	File string
	// Kernel is the name of the kernel in it.
	Kernel string
	// Defines are the shape and the tuning, as definitions.
	Defines []Define
	// Params is the constant struct behind the last buffer; nil where the kernel has none.
	Params []byte
	// covers returns the number of rows that groups threadgroups compute. It is nil where that is a multiple of the
	// rows of one threadgroup.
	covers func(groups int) int
	// Groups is the grid in threadgroups. Threads is the size of a threadgroup.
	Groups, Threads [3]int
	// Memory is the number of bytes of the kernel's TG_MEMORY; 0 where it has none.
	Memory int
	// Case returns a test case of the compiled kernel and of the kernels that run before it. It is nil where the case
	// of another launch contains this kernel, or where there is none.
	Case func(Sizes) *Case
}

// Key identifies the compiled kernel.
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

// exactly returns a number as its bit pattern, in a form that every target reads.
func exactly(v float32) string {
	// nine hexadecimal digits; the first is 1 and is dropped
	nine := strconv.FormatUint(1<<32|uint64(math.Float32bits(v)), 16)
	return "as_type<float>(0x" + nine[1:] + "u)"
}

// ceil returns the number of parts of the given size that cover n.
func ceil(n, size int) int { return (n + size - 1) / size }
