package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// TestPlans: the plans used last are kept; ints do not tell calls apart, shapes do.
func TestPlans(t *testing.T) {
	call := func(rows int) []eval.Value {
		return []eval.Value{{Tensor: eval.Ints(ir.I64, []int{1, rows}, make([]int64, rows))}, {Int: int64(rows)}}
	}
	require.Equal(t, [][]int{{1, 3}, nil}, ShapesOf(call(3)))
	var plans Plans[string]
	_, ok := plans.Find(call(1))
	require.False(t, ok)
	for i, name := range []string{"one", "two", "three", "four"} {
		require.Empty(t, plans.Add(ShapesOf(call(i+1)), name))
	}
	p, ok := plans.Find(call(1))
	require.True(t, ok)
	require.Equal(t, "one", p)
	require.Equal(t, []string{"one", "four", "three", "two"}, plans.All())
	require.Equal(t, []string{"two"}, plans.Add(ShapesOf(call(5)), "five"))
	_, ok = plans.Find(call(2))
	require.False(t, ok)
	plans.DropLast()
	require.Equal(t, []string{"one", "four", "three"}, plans.All())
}

// TestNewPlans: an entry for calls of many sequences keeps more plans.
func TestNewPlans(t *testing.T) {
	for text, want := range map[string]int{
		"    %0 = neg(x=%x) : f32[1,2,n,4]\n":                                              4,
		"    block_write @pool(update=%x, positions=%at, sequences=%of, blocks=%blocks)\n": 48,
	} {
		m, err := ir.Parse("module {\n  symbol n [1, 64]\n  buffer @pool : f32[2,3,4,4]\n  entry forward(%x: f32[1,2,n,4], %at: i64[n], %of: i32[n], %blocks: i32[1,1]) {\n" +
			text + "    return %x: f32[1,2,n,4]\n  }\n}\n")
		require.NoError(t, err)
		plans, dropped := NewPlans[int](m), 0
		for i := range 60 {
			dropped += len(plans.Add([][]int{{i}}, i))
		}
		require.Equal(t, 60-want, dropped)
	}
}

// TestWeightKey: a weight has the same key in every plan, and another one than what else is made of its numbers.
func TestWeightKey(t *testing.T) {
	m, err := ir.Parse(`module {
  constant @codes : u32[4,4]
  constant @scales : f32[4,1]
  constant @w : f32[2,4,8]
  entry forward() {
    %0 = quantized(packed=@codes, scales=@scales) {group_size=32, bits=4} : quantized<4,32,f32>[4,32]
    %2 = transpose(x=@w) {perm=[0, 2, 1]} : f32[2,8,4]
    return %2: f32[2,8,4]
  }
}
`)
	require.NoError(t, err)
	seen := map[WeightKey]bool{}
	for _, copied := range []*ir.Module{m, m.Clone()} {
		for _, op := range copied.Entry.Body.Ops {
			seen[WeightKeyOf(op.Result())] = true
		}
		seen[WeightKeyOf(m.Constants[2].Value)] = true
	}
	require.Len(t, seen, 3)
}
