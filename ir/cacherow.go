package ir

import (
	"fmt"
	"slices"
)

// A cache of attention may hold rows of codes of 8 bits. Its buffer is u32[..., words]: the last dim has, for a row of
// some width, the codes, four to a word, the first in the lowest bits, and after them the scales of groups, bf16, two
// to a word. A code is a signed number from −127 to 127 and stands for code·scale. Operations on blocks (ragged.go)
// take such buffers as they take those of floats.

// Q8Group returns the number of neighbours of a row that share a scale: 32, or the width where that is less.
func Q8Group(width int) int { return min(width, 32) }

// Q8Words returns the number of words that a row of a width takes; 0 where there is no such row: the width must be a
// multiple of 32, or 4, 8 or 16.
func Q8Words(width int) int {
	if width%32 != 0 && width != 4 && width != 8 && width != 16 || width <= 0 {
		return 0
	}
	return width/4 + (width/Q8Group(width)+1)/2
}

// Q8Width returns the width of rows that take this number of words, or 0 where there is none.
func Q8Width(words int) int {
	for _, width := range []int{4, 8, 16} {
		if Q8Words(width) == words {
			return width
		}
	}
	width := words * 64 / 17 &^ 31 // 8.5 bits each, or a little more
	if width > 0 && Q8Words(width) == words {
		return width
	}
	return 0
}

// Q8Rows returns the type of a cache of floats [..., width] in rows of codes of 8 bits.
func Q8Rows(t Type) (Type, error) {
	last := t.Rank() - 1
	if last < 0 || !t.DType.IsFloat() {
		return t, fmt.Errorf("%s has no rows of floats", t)
	}
	width, _ := t.Shape[last].Const()
	words := Q8Words(int(width))
	if words == 0 {
		return t, fmt.Errorf("rows of %d numbers cannot be codes of 8 bits: want a multiple of 32, or 4, 8 or 16",
			width)
	}
	shape := slices.Clone(t.Shape)
	shape[last] = Const(int64(words))
	return TensorType(U32, shape...), nil
}

// floatRows returns the type of the floats in a cache. For a coded cache it is f32, the type of the decoded numbers.
func floatRows(operand string, t Type) (Type, error) {
	if t.DType != U32 || t.Rank() == 0 {
		return t, needFloat(operand, t.DType)
	}
	words, _ := t.Shape[t.Rank()-1].Const()
	width := Q8Width(int(words))
	if width == 0 {
		return t, fmt.Errorf("%s %s has rows of %d words, which are no codes of 8 bits", operand, t, words)
	}
	shape := slices.Clone(t.Shape)
	shape[len(shape)-1] = Const(int64(width))
	return TensorType(F32, shape...), nil
}
