package ir

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLastUses: which values end with which operation.
func TestLastUses(t *testing.T) {
	m := parse(t, `module {
  symbol s0 [-2147483648, 2147483647]
  entry forward(%x: f32[2], %n: int(s0)) {
    %0 = neg(x=%x) : f32[2]
    %1 = exp(x=%0) : f32[2]
    %2 = add(a=%0, b=%1) : f32[2]
    %3, %4 = split(x=%2, sizes=[1, 1]) : f32[1], f32[1]
    %5 = if(cond=%n) : f32[2] {
      %6 = neg(x=%1) : f32[2]
      yield %6
    } else {
      %7 = exp(x=%x) : f32[2]
      yield %2
    }
    %8 = neg(x=%3) : f32[1]
    return %8: f32[1], %5: f32[2]
  }
}
`)
	body := m.Entry.Body
	value := func(op, result int) *Value { return body.Ops[op].Results[result] }
	want := [][]*Value{
		nil,                        // neg
		nil,                        // exp
		{value(0, 0)},              // add is the last to use %0
		{value(3, 1)},              // %4 is never used
		{value(1, 0), value(2, 0)}, // the arms use %1 and yield %2
		{value(3, 0)},              // neg
	}
	require.Equal(t, want, LastUses(body, body.Results))
	// Without keep a result ends where it is used or defined last.
	got := LastUses(body, nil)
	require.Equal(t, []*Value{value(3, 0), value(5, 0)}, got[5])
	require.Equal(t, []*Value{value(1, 0), value(2, 0), value(4, 0)}, got[4])
	then := body.Ops[4].Regions[0]
	require.Equal(t, [][]*Value{nil}, LastUses(then, then.Results), "values from outside do not end inside")
	otherwise := body.Ops[4].Regions[1]
	require.Equal(t, [][]*Value{{otherwise.Ops[0].Result()}}, LastUses(otherwise, otherwise.Results))
}

func TestLastUsesOfArguments(t *testing.T) {
	r := &Region{}
	used, unused, kept := r.NewArg(StaticType(F32)), r.NewArg(StaticType(F32)), r.NewArg(StaticType(F32))
	require.NoError(t, Build(func() {
		b := &Builder{Region: r}
		b.Value("neg", nil, used)
		b.Value("exp", nil, used)
	}))
	require.Equal(t, [][]*Value{{unused, r.Ops[0].Result()}, {used, r.Ops[1].Result()}}, LastUses(r, []*Value{kept}))
	require.Empty(t, LastUses(&Region{Args: r.Args}, nil), "no operation ends anything")
}

// TestLastUsesIsNaive compares with the definition on random programs: after the operation nothing uses
// the value, and the operation uses or defines it.
func TestLastUsesIsNaive(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		region := &Region{}
		values := []*Value{region.NewArg(StaticType(F32)), region.NewArg(StaticType(F32))}
		require.NoError(t, Build(func() {
			b := &Builder{Region: region}
			pick := func() *Value { return values[r.IntN(len(values))] }
			for range 30 {
				if r.IntN(5) == 0 {
					values = append(values, b.If(1, func(b *Builder) []*Value {
						return []*Value{b.Value("add", nil, pick(), b.Value("neg", nil, pick()))}
					}, func(*Builder) []*Value { return []*Value{pick()} })...)
					continue
				}
				values = append(values, b.Value("add", nil, pick(), pick()))
			}
		}))
		keep := []*Value{values[len(values)-1], values[r.IntN(len(values))]}
		uses := func(op *Op, v *Value) (found bool) {
			check := func(o *Op) {
				o.EachArg(func(a *Arg) { found = found || a.Value == v })
				for _, n := range o.Regions {
					for _, result := range n.Results {
						found = found || result == v
					}
				}
			}
			check(op)
			for _, n := range op.Regions {
				n.Walk(check)
			}
			return found
		}
		ends := LastUses(region, keep)
		ended := map[*Value]int{}
		for i, list := range ends {
			for _, v := range list {
				_, twice := ended[v]
				require.False(t, twice)
				ended[v] = i
			}
		}
		for i, v := range values {
			last := max(0, i-2) // an argument ends with the first operation, at the earliest
			for j, op := range region.Ops {
				if uses(op, v) {
					last = j
				}
			}
			if at, ends := ended[v]; v == keep[0] || v == keep[1] {
				require.False(t, ends)
			} else {
				require.Equal(t, last, at)
			}
		}
	}
}
