package gpu_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/reference"
)

// TestBlocksTogether: where four simdgroups multiply together, rows that are many of one sequence go by tiles that they
// multiply; where that kernel is wrong, by tiles that every simdgroup multiplies for itself.
func TestBlocksTogether(t *testing.T) {
	t.Parallel()
	emulated(t)
	text := strings.NewReplacer("[2,9,4,32]", "[1,24,4,64]", "f32[32]", "f32[64]", "-1, 4, 32]", "-1, 2, 64]",
		"-1, 2, 32]", "-1, 1, 64]", "r,4,32]", "r,2,64]", "r,2,32]", "r,1,64]", "4,r,32]", "2,r,64]", "2,r,32]", "1,r,64]",
		"4,w,32]", "2,w,64]", "2,w,32]", "1,w,64]", "@k : f32", "@k : bf16", "@v : f32", "@v : bf16", "%6 = load @k() : f32",
		"%6 = load @k() : bf16", "%7 = load @v() : f32", "%7 = load @v() : bf16", "i32[3,3]", "i32[3,8]").Replace(inBlocks)
	text = strings.NewReplacer("bf16[2,9,4,32]", "bf16[1,24,4,64]").Replace(text)
	open := func() (device.Device, error) {
		return emulator.Open(emulator.Options{Groups: true, TransferMemory: 225 << 10})
	}
	var at, of []int64
	for i := range 23 {
		at, of = append(at, int64(i%20)), append(of, int64(i/20))
	}
	blocks := []int64{20, 3, 4, 5, 9, 8, 7, 6, 0, 1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}
	for name, fault := range map[string]func(string, string) (string, error){
		"right": refuse(),
		"wrong": replace("attention_group", "1.0f / group_four_sum(", "0.9f / group_four_sum("),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := ir.Parse(text)
			require.NoError(t, err)
			random := normals(4)
			random.fill(t, m, 0.125)
			d := &faulty{fault: fault, compiled: map[string]int{}, changed: map[string]int{}}
			var warnings []string
			o := engine.Options{Precision: eval.Mixed, Threads: 1,
				Warn: func(text string) { warnings = append(warnings, text) }}
			x := compile(t, gpu.Engine{Device: "emulator", SelfTest: &selftest.Options{Dir: t.TempDir()},
				Open: d.opener(open)}, m, o)
			in := blockCall{at, of, blocks, []int64{19, 22}}.inputs(t, random)
			in[len(in)-2].Tensor.Shape = []int{3, 8}
			want, err := compile(t, reference.Engine{}, m, o).Run(t.Context(), in)
			require.NoError(t, err)
			got, err := x.Run(t.Context(), in)
			require.NoError(t, err)
			requireClose(t, []*eval.Tensor{want[0].Tensor}, []*eval.Tensor{got[0].Tensor}, 3e-2)
			require.NotZero(t, d.compiled["attention_group"], "%v", d.compiled)
			require.Equal(t, name == "wrong", d.compiled["attention_chunk"] > 0, "%v", d.compiled)
			all := strings.Join(warnings, "\n")
			require.Equal(t, name == "wrong", strings.Contains(all, "attention_group/attention_group is off by "), all)
		})
	}
}
