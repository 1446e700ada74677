package kernels

import (
	"fmt"
	"slices"
)

// Argument is a buffer that a kernel takes, as its text declares it.
type Argument struct {
	// Name in the text.
	Name string
	// Type of the elements in the text; one in capitals is a definition.
	Type string
	// Written says that the kernel may write it: it is no pointer to const.
	Written bool
	// Optional says that a definition may turn it off, so that the kernel does not touch it. The device gets argument
	// number Instead in its place.
	Optional bool
	Instead  int
}

// Signature is what a kernel takes, or several that take the same.
type Signature struct {
	// Kernels are their names.
	Kernels []string
	// Arguments in the order of [[buffer(n)]].
	Arguments []Argument
}

// Signature is that of the launch's kernel; nil where there is no such kernel.
func (l Launch) Signature() *Signature { return signatures[l.Kernel] }

// Arguments are the buffers of a kernel by name, as a struct of arguments_generated.go holds them. T is what stands for
// a buffer; its zero value is none.
type Arguments[T comparable] interface {
	// Signature is what the kernel's text declares.
	Signature() *Signature
	// values are the fields in the order of the signature.
	values() []T
}

// WeightArguments are the buffers of a weight: its codes, or numbers, with their scales and biases. Of a weight that
// has no scales, or no biases, these may be any buffer.
type WeightArguments[T comparable] struct{ Data, Scales, Biases T }

// List gives the arguments of a launch in the order in which its kernel takes them, and which of them it may write.
// What is absent is what the kernel's text says instead of it, which is written where both of them are. It panics where
// an argument is missing that the kernel must have, or the arguments are those of another kernel.
func List[T comparable](l Launch, a Arguments[T]) (list []T, written []bool) {
	s := a.Signature()
	if !slices.Contains(s.Kernels, l.Kernel) {
		panic(fmt.Sprintf("kernels: arguments of %v for the kernel %s", s.Kernels, l.Kernel))
	}
	var none T
	given := a.values()
	list, written = make([]T, len(given)), make([]bool, len(given))
	for i := range given {
		at, write := i, true
		for write = s.Arguments[at].Written; given[at] == none; write = write && s.Arguments[at].Written {
			if !s.Arguments[at].Optional {
				panic(fmt.Sprintf("kernels: the kernel %s lacks its argument %s", l.Kernel, s.Arguments[at].Name))
			}
			at = s.Arguments[at].Instead
		}
		list[i], written[i] = given[at], write
	}
	return list, written
}
