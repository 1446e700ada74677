package ir

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUnifyAndBroadcastDims(t *testing.T) {
	for _, c := range []struct {
		a, b             string
		unify, broadcast string // "" for none
	}{
		{"2", "2", "2", "2"},
		{"1", "2", "", "2"},
		{"0", "1", "", "0"},
		{"2", "3", "", ""},
		{"T", "T", "T", "T"},
		{"T", "1", "1", "T"},
		{"1", "T", "1", "T"},
		{"T", "7", "7", "7"},
		{"T", "300", "", "300"}, // T <= 255, but T may be 1
		{"M", "300", "", ""},    // 2 <= M <= 64
		{"M", "N", "", ""},
		{"T", "S", "T", "T"},
		{"S", "T", "S", "S"},
		{"T+1", "T", "", "T+1"}, // only T = 1 is left
		{"M", "M+1", "", ""},
		{"S", "S+1", "", ""},
		{"2*T", "7", "7", "7"}, // bounds do not tell that this is odd
	} {
		x := newTestTypes()
		dim := func(text string) *Expr { return x.typ("f32[" + text + "]").Shape[0] }
		show := func(e *Expr, ok bool) string {
			if !ok {
				return ""
			}
			return e.String()
		}
		require.Equal(t, c.unify, show(unify(dim(c.a), dim(c.b))), "unify %s %s", c.a, c.b)
		require.Equal(t, c.broadcast, show(broadcastDim(dim(c.a), dim(c.b))), "broadcast %s %s", c.a, c.b)
	}
}

func TestBroadcastShapesDoesNotChangeItsArguments(t *testing.T) {
	a, b := Dims(1, 3), Dims(4, 2, 1)
	got, err := broadcastShapes(a, b, nil)
	require.NoError(t, err)
	require.True(t, equalShapes(Dims(4, 2, 3), got))
	require.True(t, equalShapes(Dims(1, 3), a))
	require.True(t, equalShapes(Dims(4, 2, 1), b))
	got[0] = Const(9)
	require.True(t, equalShapes(Dims(4, 2, 1), b))
	same, err := broadcastShapes(a)
	require.NoError(t, err)
	same[0] = Const(9)
	require.True(t, equalShapes(Dims(1, 3), a))
}

// TestLargeShapes: the number of elements of a shape whose dims are long sums is not multiplied out.
func TestLargeShapes(t *testing.T) {
	long := func() *Expr {
		sum := Const(0)
		for range 20 {
			sum = sum.Add(Sym(&Symbol{"s", 1, 9}))
		}
		return sum
	}
	x := &Value{Type: TensorType(F32, long(), long(), long())}
	_, ok := product(x.Type.Shape)
	require.False(t, ok)
	for _, c := range []struct {
		shape []any
		want  string
	}{{[]any{-1}, "f32[?]"}, {[]any{2, 3}, "f32[2,3]"}} {
		op, err := newTestTypes().apply(nil, "reshape", nil, x, c.shape)
		require.NoError(t, err)
		require.Equal(t, c.want, typeList(op))
	}
	op, err := newTestTypes().apply(nil, "tile", nil, x, []any{&Value{Type: IntType(long())}})
	require.NoError(t, err)
	require.Equal(t, "?", op.Result().Type.Shape[2].String())
	require.True(t, op.Result().Type.Shape[1].Equal(x.Type.Shape[1]))
}
