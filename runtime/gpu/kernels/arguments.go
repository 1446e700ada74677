package kernels

import (
	"fmt"
	"slices"
)

// Argument is a buffer parameter of a kernel, as the kernel's source declares it.
type Argument struct {
	// Name in the text.
	Name string
	// Type is the element type in the source. A type in capitals is a preprocessor definition.
	Type string
	// Written says that the kernel may write the buffer: the parameter is not a pointer to const.
	Written bool
	// Optional says that a definition may turn the parameter off. The kernel then does not touch the buffer, and the
	// device gets argument number Instead for it.
	Optional bool
	Instead  int
}

// Signature is the parameter list of a kernel, or of several kernels with the same list.
type Signature struct {
	// Kernels are their names.
	Kernels []string
	// Arguments in the order of [[buffer(n)]].
	Arguments []Argument
}

// Signature returns the parameter list of the launch's kernel, or nil where there is no such kernel.
func (l Launch) Signature() *Signature { return signatures[l.Kernel] }

// Arguments are the buffers of a kernel by name, as a struct of arguments_generated.go. T is the type that stands for a
// buffer; its zero value stands for an absent one.
type Arguments[T comparable] interface {
	// Signature returns the parameter list that the kernel's source declares.
	Signature() *Signature
	// values returns the fields in the order of the signature.
	values() []T
}

// WeightArguments are the buffers of a weight: its codes or numbers, its scales and its biases. If the weight has no
// scales or no biases, any buffer may stand for them.
type WeightArguments[T comparable] struct{ Data, Scales, Biases T }

// List returns the arguments of a launch in the order of the kernel's parameters, and which of them the kernel may
// write. An absent optional argument is replaced by the one that the kernel's source names; that one counts as written
// if the kernel writes either. List panics if a mandatory argument is missing, or if the arguments are those of another
// kernel.
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
