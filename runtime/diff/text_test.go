package diff_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/diff"
	"github.com/etc-ml/etc/runtime/inspect"
)

func TestText(t *testing.T) {
	rms := 0.0912345
	lines := make([]string, 62)
	for i := range lines {
		lines[i] = fmt.Sprintf("+line %d", i)
	}
	r := &diff.Report{
		A: diff.FileSummary{File: "a.pte", Size: 4_700_000, WeightSize: 4_400_000, BitsPerWeight: 16,
			Storage: []inspect.Storage{{Format: "bf16", Tensors: 3}}},
		B: diff.FileSummary{File: "b.pte", Size: 1_600_000, WeightSize: 1_400_000, BitsPerWeight: 4.5,
			Storage: []inspect.Storage{{Format: "affine 4-bit g64", Tensors: 2}, {Format: "f32", Tensors: 1}}},
		ConstantMethods: []diff.ConstantMethod{{Name: "use_sampling", A: []any{false}, B: []any{true}},
			{Name: "get_eos_ids", B: []any{int64(1), int64(2)}}},
		Metadata: []diff.Metadata{
			{Key: "x", Change: diff.Added, SizeB: 1000}, {Key: "y", Change: diff.Removed, SizeA: 2000},
			{Key: "z", Change: diff.Changed, SizeA: 3000, SizeB: 4000},
			{Key: "j", Change: diff.Changed, Keys: []string{"options", "recipe"}}},
		Methods: []diff.Method{
			{Name: "encode", Change: diff.Added},
			{Name: "forward", Change: diff.Changed, InputsA: []string{"tokens i64[1,1..8]"},
				InputsB:  []string{"tokens i64[1,1..8]", "seed i64[]"},
				OutputsA: []string{"f32[1,6]"}, OutputsB: []string{"i64[1]"}, Added: 62, Diff: lines},
			{Name: "other", Change: diff.Changed, Problem: "is delegated to \"XNN\""}},
		Weights: []diff.Weight{
			{Name: "w", Change: diff.Retyped, A: &diff.Form{Format: "bf16", Shape: []int64{6, 64}},
				B: &diff.Form{Format: "affine 4-bit g64 bf16", Shape: []int64{6, 64}}, RelativeRMS: &rms},
			{Name: "long.name", Change: diff.Added, B: &diff.Form{Format: "f32", Shape: []int64{}}}},
		Counts: diff.Counts{Methods: 3, ConstantMethods: 2, Metadata: 4, LinesAdded: 62, WeightsRetyped: 1,
			WeightsAdded: 1, WeightsEqual: 5},
	}
	head := `--- a.pte, 4.5 MiB
+++ b.pte, 1.5 MiB
constant method use_sampling: false -> true
constant method get_eos_ids: none -> 1 2
metadata x: added, 1000 B
metadata y: removed, 2.0 KiB
metadata z: changed, 2.9 KiB -> 3.9 KiB
metadata j: changed in options, recipe
method encode: added
method forward: inputs (tokens i64[1,1..8]) -> (tokens i64[1,1..8], seed i64[])
method forward: outputs (f32[1,6]) -> (i64[1])
method forward: graph, 62 lines added, 0 removed
`
	tail := `method other: the graphs cannot be compared: is delegated to "XNN"
weights of a.pte: 4.2 MiB, 16.00 bits per weight: bf16 of 3 tensors
weights of b.pte: 1.3 MiB, 4.50 bits per weight: affine 4-bit g64 of 2 tensors, f32 of 1 tensor
WEIGHT     CHANGE   A           B                            RELATIVE RMS
w          retyped  bf16[6,64]  affine 4-bit g64 bf16[6,64]  0.0912
long.name  added    -           f32[]                        -
differences: 3 methods, 2 constant methods, 4 pieces of metadata, 1 weights retyped, 1 weights added; 5 weights equal
`
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b, false))
	require.Empty(t, cmp.Diff(head+strings.Join(lines[:60], "\n")+"\n… 2 more lines, which --full shows\n"+tail,
		b.String()))
	b.Reset()
	require.NoError(t, r.WriteText(&b, true))
	require.Empty(t, cmp.Diff(head+strings.Join(lines, "\n")+"\n"+tail, b.String()))
	r.Limit()
	require.Equal(t, lines[:60], r.Methods[1].Diff)
	require.Equal(t, 62, r.Methods[1].Added)

	for len(r.Weights) < 33 {
		r.Weights = append(r.Weights, r.Weights[0])
	}
	b.Reset()
	require.NoError(t, r.WriteText(&b, false))
	require.Contains(t, b.String(), "\n… 3 more weights, which --full shows\n")
	b.Reset()
	require.NoError(t, r.WriteText(&b, true))
	require.NotContains(t, b.String(), "more weights")
}
