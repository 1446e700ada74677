package ir

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func allDTypes() []DType {
	return []DType{Bool, U8, U16, U32, U64, I8, I16, I32, I64, F16, BF16, F32, F64}
}

func TestDTypeNames(t *testing.T) {
	sizes := map[DType]int{Bool: 1, U8: 1, U16: 2, U32: 4, U64: 8, I8: 1, I16: 2, I32: 4, I64: 8, F16: 2,
		BF16: 2, F32: 4, F64: 8}
	for _, d := range allDTypes() {
		got, err := ParseDType(d.String())
		require.NoError(t, err)
		require.Equal(t, d, got)
		require.Equal(t, sizes[d], d.Size(), d)
		require.True(t, d.Valid())
		kinds := 0
		for _, is := range []bool{d == Bool, d.IsFloat(), d.IsInteger()} {
			if is {
				kinds++
			}
		}
		require.Equal(t, 1, kinds, "%s is one of bool, float and integer", d)
	}
	_, err := ParseDType("f8")
	require.ErrorContains(t, err, `unknown dtype "f8"`)
	require.False(t, DType(8).Valid())
	require.Equal(t, "dtype(8)", DType(8).String())
}

// TestPromoteTable compares with the table of mlx/dtype.cpp, which follows JAX.
func TestPromoteTable(t *testing.T) {
	// Rows and columns in the order of allDTypes.
	table := [][]DType{
		{Bool, U8, U16, U32, U64, I8, I16, I32, I64, F16, BF16, F32, F64},
		{U8, U8, U16, U32, U64, I16, I16, I32, I64, F16, BF16, F32, F64},
		{U16, U16, U16, U32, U64, I32, I32, I32, I64, F16, BF16, F32, F64},
		{U32, U32, U32, U32, U64, I64, I64, I64, I64, F16, BF16, F32, F64},
		{U64, U64, U64, U64, U64, F32, F32, F32, F32, F16, BF16, F32, F64},
		{I8, I16, I32, I64, F32, I8, I16, I32, I64, F16, BF16, F32, F64},
		{I16, I16, I32, I64, F32, I16, I16, I32, I64, F16, BF16, F32, F64},
		{I32, I32, I32, I64, F32, I32, I32, I32, I64, F16, BF16, F32, F64},
		{I64, I64, I64, I64, F32, I64, I64, I64, I64, F16, BF16, F32, F64},
		{F16, F16, F16, F16, F16, F16, F16, F16, F16, F16, F32, F32, F64},
		{BF16, BF16, BF16, BF16, BF16, BF16, BF16, BF16, BF16, F32, BF16, F32, F64},
		{F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F32, F64},
		{F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64, F64},
	}
	for i, a := range allDTypes() {
		for j, b := range allDTypes() {
			require.Equal(t, table[i][j], Promote(a, b), "%s with %s", a, b)
		}
	}
}

var promotionKey = regexp.MustCompile(`^(?:(\w+)\((\w+)\)|(\w+)([+/])(\w+))$`)

// TestPromotionGoldens compares the result dtype of every case that MLX was asked for
// (testdata/promotion.json: "op(dtype)" and "dtype+dtype" to a dtype or "error").
//
// The one difference is meant: floor_divide of integers is MLX's own operation in the goldens, but the
// delegate's node divides in floating point (MLXInterpreter.h, exec_floor_divide).
func TestPromotionGoldens(t *testing.T) {
	text, err := os.ReadFile("testdata/promotion.json")
	require.NoError(t, err)
	var goldens map[string]string
	require.NoError(t, json.Unmarshal(text, &goldens))
	require.Len(t, goldens, 450)
	types := newTestTypes()
	for key, want := range goldens {
		m := promotionKey.FindStringSubmatch(key)
		require.NotNil(t, m, key)
		name, a, b := m[1], m[2], m[2]
		if name == "" {
			name, a, b = map[string]string{"+": "add", "/": "divide"}[m[4]], m[3], m[5]
		}
		var operands []any
		switch name {
		case "matmul":
			name, operands = "addmm", []any{a + "[2,2]", b + "[2,2]"}
		case "where":
			operands = []any{"bool[2]", a + "[2]", b + "[2]"}
		case "add", "divide", "less", "logaddexp", "power", "remainder", "floor_divide":
			operands = []any{a + "[2]", b + "[2]"}
		default:
			operands = []any{a + "[2]"}
		}
		op, err := types.apply(nil, name, nil, operands...)
		if want == "error" {
			require.Error(t, err, key)
			continue
		}
		require.NoError(t, err, key)
		if d, _ := ParseDType(a); name == "floor_divide" && !d.IsFloat() {
			want = "f32"
		}
		require.Equal(t, want, op.Result().Type.DType.String(), key)
	}
}
