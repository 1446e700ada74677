package gguf

import "fmt"

// Type is the element type of a tensor, with ggml's number.
type Type uint32

// The element types that are read.
const (
	F32  Type = 0
	F16  Type = 1
	Q4_0 Type = 2
	Q4_1 Type = 3
	Q8_0 Type = 8
	Q4_K Type = 12
	Q5_K Type = 13
	Q6_K Type = 14
	BF16 Type = 30
	// MXFP4 is the format of the OCP Microscaling Specification: codes e2m1, a power of two for 32 of them.
	MXFP4 Type = 39
)

// layouts gives elements and bytes of a block by type.
var layouts = map[Type]struct {
	name            string
	elements, bytes int
}{
	F32: {"F32", 1, 4}, F16: {"F16", 1, 2}, BF16: {"BF16", 1, 2},
	Q4_0: {"Q4_0", 32, 18}, Q4_1: {"Q4_1", 32, 20}, Q8_0: {"Q8_0", 32, 34},
	MXFP4: {"MXFP4", 32, 17},
	Q4_K:  {"Q4_K", 256, 144}, Q5_K: {"Q5_K", 256, 176}, Q6_K: {"Q6_K", 256, 210},
}

// unread are names of types that files may have and etc does not read, for messages.
var unread = map[Type]string{
	6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS",
	19: "IQ1_S", 20: "IQ4_NL",
	21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
	34: "TQ1_0", 35: "TQ2_0", 40: "NVFP4",
}

// String returns ggml's name: "Q4_K".
func (t Type) String() string {
	if l, ok := layouts[t]; ok {
		return l.name
	}
	if name, ok := unread[t]; ok {
		return name
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// Block returns the elements and bytes of a block; 0, 0 for a type that is not read.
func (t Type) Block() (elements, bytes int) {
	l := layouts[t]
	return l.elements, l.bytes
}
