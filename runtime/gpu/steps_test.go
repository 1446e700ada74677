package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/ragged"
)

// TestStepsOfFewRows: the kernels of a session's token, and those of calls of many sequences with few rows, on a device
// like an H100 that streams all products. Every kernel of a call of few rows costs some microseconds beside what it
// reads. The model has three layers with a delta rule and one with attention.
func TestStepsOfFewRows(t *testing.T) {
	t.Parallel()
	given := fusetest.Load(t, "etc-qwen35moe-chat-sample")
	choose := func(*ragged.Model) (ragged.Options, error) {
		return ragged.Options{BlockRows: 16, Rows: 64, Sequences: 8, Units: cache.Demand{20, 20}}, nil
	}
	many, _, err := fuse.Ragged(given, ragged.Options{}, choose, passes.Control{})
	require.NoError(t, err)
	alone := "angles 1, attention 1, delta rule 3, embedding 1, experts down 4, experts up 4, linear 3, linear conv 3, " +
		"linear of heads 3, linears 4"
	require.Equal(t, alone+", sample choose 1, sample collect 1, sample part 1", stepsOf(t, given, 1))
	require.Equal(t, alone, stepsOf(t, many, 1))
	few := "angles 1, attention 1, conv 3, delta rule 3, embedding 1, experts down 4, experts up 4, gather 1, linears 4, " +
		"matmul 9, norm 3, prepare 5"
	require.Equal(t, few, stepsOf(t, many, 2))
	require.Equal(t, few, stepsOf(t, many, 8))
}

// stepsOf tells how many kernels of each kind run in a call of so many tokens, or of as many sequences with one row.
func stepsOf(t *testing.T, m *ir.Module, rows int) string {
	t.Helper()
	info := dumpDevices[slices.IndexFunc(dumpDevices, func(d dumpDevice) bool { return d.name == "streams" })].info
	e := Engine{Device: "paper", Open: func() (device.Device, error) { return paper{info}, nil }}
	made, err := e.Compile(m, engine.Options{Precision: eval.Mixed, Warn: func(text string) { t.Error(text) }})
	require.NoError(t, err)
	defer made.Close()
	x, err := made.NewInstance()
	require.NoError(t, err)
	defer x.Close()
	bound, err := x.(*instance).bind(plan.Shapes(made.(*executable).fused, rows))
	require.NoError(t, err)
	kinds := map[string]int{}
	for _, s := range bound.steps {
		require.Nil(t, s.host, "%s runs on the host", s.op.Def.Name)
		kinds[s.kind]++
	}
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		out = append(out, fmt.Sprintf("%s %d", kind, kinds[kind]))
	}
	return strings.Join(out, ", ")
}
