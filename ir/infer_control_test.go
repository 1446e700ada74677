package ir

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// regionOf is a region with arguments and results of the given types; the results are plain values,
// or, for "undef TYPE", results of undef.
func (x testTypes) regionOf(t *testing.T, args, results []string) *Region {
	r := &Region{}
	for _, a := range args {
		r.NewArg(x.typ(a))
	}
	for _, text := range results {
		if len(text) > 6 && text[:6] == "undef " {
			op := &Op{Def: LookupOp("undef"), Results: []*Value{x.value(text[6:])}}
			op.Results[0].Def = op
			require.NoError(t, Infer(op))
			r.Ops, r.Results = append(r.Ops, op), append(r.Results, op.Results[0])
			continue
		}
		r.Results = append(r.Results, x.value(text))
	}
	return r
}

func TestInferIf(t *testing.T) {
	for _, c := range []struct {
		then, otherwise []string
		want, err       string
	}{
		{then: []string{}, otherwise: []string{}},
		{then: []string{"f32[2,T]", "int(T)"}, otherwise: []string{"f32[2,T]", "int(T)"}, want: "f32[2,T] int(T)"},
		{then: []string{"f32[2,T]", "int(1)"}, otherwise: []string{"f32[3,S]", "int(P)"}, want: "f32[?,?] int(?)"},
		{then: []string{"undef f32[9]"}, otherwise: []string{"bf16[2,T]"}, want: "bf16[2,T]"},
		{then: []string{"int(T)"}, otherwise: []string{"undef f32[9]"}, want: "int(T)"},
		{then: []string{"undef f32[8]"}, otherwise: []string{"undef f32[9]"}, want: "f32[9]"},
		{then: []string{"quantized<4,64,bf16>[2,64]"}, otherwise: []string{"quantized<4,64,bf16>[2,64]"},
			want: "quantized<4,64,bf16>[2,64]"},
		{then: []string{"quantized<4,64,bf16>[2,64]"}, otherwise: []string{"quantized<8,64,bf16>[2,64]"},
			err: "result 0: the arms give quantized<4,64,bf16>[2,64] and quantized<8,64,bf16>[2,64]"},
		{then: []string{"f32[2]"}, otherwise: []string{"bf16[2]"}, err: "result 0: the arms give f32[2] and bf16[2]"},
		{then: []string{"i32[]"}, otherwise: []string{"int(T)"}, err: "the arms give i32[] and int(T)"},
		{then: []string{"f32[2]"}, otherwise: []string{"f32[2,1]"}, err: "the arms give f32[2] and f32[2,1]"},
		{then: []string{"f32[2]"}, otherwise: []string{}, err: "the arms must have as many results, found 1 and 0"},
	} {
		x := newTestTypes()
		op := &Op{Def: LookupOp("if"), Args: [][]Arg{toArgs(x.value("int(P)"))},
			Regions: []*Region{x.regionOf(t, nil, c.then), x.regionOf(t, nil, c.otherwise)}}
		checkInferCase(t, op, Infer(op), inferCase{op: "if", want: c.want, err: c.err})
	}
	x := newTestTypes()
	op := &Op{Def: LookupOp("if"), Args: [][]Arg{{Int(1)}},
		Regions: []*Region{x.regionOf(t, []string{"f32[]"}, nil), {}}}
	require.ErrorContains(t, Infer(op), "the arms must have no arguments, found 1 and 0")
	op.Regions = op.Regions[:1]
	require.ErrorContains(t, Infer(op), "if: has 1 regions, want 2")
}

// TestIfJoinBounds: a joined dim can be what either arm gives, and is the same symbol when derived again.
func TestIfJoinBounds(t *testing.T) {
	x := newTestTypes()
	op := &Op{Def: LookupOp("if"), Args: [][]Arg{{Int(1)}},
		Regions: []*Region{x.regionOf(t, nil, []string{"f32[2,M]"}), x.regionOf(t, nil, []string{"f32[2,N+1]"})}}
	require.NoError(t, Infer(op))
	first := op.Results[0].Type
	s, ok := first.Shape[1].Symbol()
	require.True(t, ok)
	require.Equal(t, []int64{2, 201}, []int64{s.Lo, s.Hi})
	require.NoError(t, Infer(op))
	require.True(t, first.Equal(op.Results[0].Type))
}

func TestInferScan(t *testing.T) {
	for _, c := range []struct {
		axis             int
		originals, carry []string
		args, results    []string
		want, err        string
	}{
		{axis: 1, originals: []string{"f32[B,T,8]", "bf16[2,T]"}, carry: []string{"f32[3]"},
			args: []string{"f32[B,8]", "bf16[2]", "f32[3]"}, results: []string{"i8[B,4]", "f32[3]"},
			want: "i8[B,T,4] f32[3]"},
		{axis: 0, originals: []string{"f32[5]"}, args: []string{"f32[]"}, results: []string{"f32[]", "f32[2]"},
			want: "f32[5] f32[5,2]"},
		{axis: -1, originals: []string{"f32[2,T]"}, args: []string{"f32[2]"}, results: []string{"f32[7,8]"},
			want: "f32[7,8,T]"},
		{axis: 0, originals: []string{"f32[5]", "f32[9]"}, args: []string{"f32[]", "f32[]"},
			results: []string{"f32[]"}, want: "f32[5]"},
		{axis: 0, originals: []string{"f32[5]"}, carry: []string{"f32[S]"}, args: []string{"f32[]", "f32[S]"},
			results: []string{"f32[T]"}, want: "f32[S]"},
		{axis: 0, originals: []string{"f32[9]", "f32[5]"}, args: []string{"f32[]", "f32[]"},
			err: "original 1 has 5 steps, the first has 9"},
		{axis: 1, originals: []string{"f32[5]"}, args: []string{"f32[]"},
			err: "original 0: axis 1 is out of range for 1 dims"},
		{axis: 0, originals: nil, err: "needs at least one original"},
		{axis: 0, originals: []string{"f32[5]"}, args: nil,
			err: "an argument for each of 1 originals and 0 carries, found 0"},
		{axis: 0, originals: []string{"f32[5]"}, carry: []string{"f32[2]"}, args: []string{"f32[]", "f32[2]"},
			err: "a result for each of 1 carries, found 0"},
		{axis: 0, originals: []string{"f32[5]"}, args: []string{"f32[5]"},
			err: "argument 0 of the region must be f32[], found f32[5]"},
		{axis: 0, originals: []string{"f32[5]"}, args: []string{"bf16[]"},
			err: "argument 0 of the region must be f32[], found bf16[]"},
		{axis: 0, originals: []string{"f32[5]"}, carry: []string{"f32[2]"}, args: []string{"f32[]", "f32[3]"},
			results: []string{"f32[2]"}, err: "argument 1 of the region must be f32[2], found f32[3]"},
		{axis: 0, originals: []string{"f32[5]"}, carry: []string{"f32[2]"}, args: []string{"f32[]", "f32[2]"},
			results: []string{"bf16[2]"}, err: "result 0 of the region must be f32[2], found bf16[2]"},
		{axis: 0, originals: []string{"f32[5]"}, carry: []string{"f32[T]"}, args: []string{"f32[]", "f32[T]"},
			results: []string{"f32[T+1]"}, err: "result 0 of the region must be f32[T], found f32[T+1]"},
		{axis: 0, originals: []string{"f32[5]"}, args: []string{"f32[]"}, results: []string{"int(T)"},
			err: "result 0 of the region must be a tensor, found int(T)"},
		{axis: 1, originals: []string{"f32[5,6]"}, args: []string{"f32[5]"}, results: []string{"f32[]"},
			err: "result 0 of the region: axis 1 is out of range for 1 dims"},
	} {
		x := newTestTypes()
		op := &Op{Def: LookupOp("scan"), Attrs: &ScanAttrs{c.axis},
			Regions: []*Region{x.regionOf(t, c.args, c.results)},
			Args:    [][]Arg{toArgs(x.operand(c.originals)), toArgs(x.operand(c.carry))}}
		checkInferCase(t, op, Infer(op), inferCase{op: "scan", want: c.want, err: c.err})
	}
}

// TestInferRefusesMalformedOps: what a builder or a parser never makes gives an error, not a panic.
func TestInferRefusesMalformedOps(t *testing.T) {
	add := LookupOp("add")
	require.ErrorContains(t, Infer(&Op{Def: add}), "add: has arguments for 0 operands, want 2")
	require.ErrorContains(t, Infer(&Op{Def: add, Args: [][]Arg{{{}}, {}}}), "add: operand a is nothing, want tensor")
	x := newTestTypes()
	op := &Op{Def: LookupOp("take"), Args: [][]Arg{toArgs(x.value("f32[2]")), {Int(0)}}}
	require.ErrorContains(t, Infer(op), "take: has attributes <nil>, want *ir.AxisAttrs")
	op.Attrs, op.Results = &AxisAttrs{}, []*Value{{}, {}}
	require.ErrorContains(t, Infer(op), "take: has 2 results, its arguments make it 1")
}
