package ir

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// fromOne is a computation on one data.
type fromOne struct{ from Data }

func (f fromOne) Provenance() string                           { return "one(" + f.from.Provenance() + ")" }
func (f fromOne) Produce(func(int, int64, []byte) error) error { return nil }
func (f fromOne) From() []Data                                 { return []Data{f.from} }

// fromPart is an output of it.
type fromPart struct {
	Data
	c fromOne
}

func (p fromPart) Group() (Computation, int) { return p.c, 0 }

func TestLeaves(t *testing.T) {
	a, b := newSource("a", BF16, 4, 3, 2), newSource("b", BF16, 4, 3, 2)
	flip := Map(a, BF16, "flip", func(dst, src []byte) {})
	one := Float32s(nil, 1)
	for _, test := range []struct {
		name string
		data Data
		want []Data
	}{
		{"leaf", a, []Data{a}},
		{"bytes", one, []Data{one}},
		{"views", Rows(Axis1Rows(Reshape(a, 4, 6), 1, 2), 1, 2), []Data{a}},
		{"exact", Exact(a), []Data{a}},
		{"concat", Concat(b, flip, b), []Data{b, a}},
		{"stack", Stack(a, b), []Data{a, b}},
		{"computation", Reshape(fromPart{a, fromOne{Concat(b, a)}}, 24), []Data{b, a}},
	} {
		require.Equal(t, test.want, Leaves(test.data), test.name)
	}
}
