package gpu_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/cuda"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/metal"
	"github.com/etc-ml/etc/runtime/gpu/tune"
	"github.com/etc-ml/etc/runtime/profile"
	"github.com/etc-ml/etc/runtime/program"
)

// TestProfile prints the time of every kind of kernel for a token at a depth and for a chunk, of the program that
// ETC_PROGRAM names on the device ETC_TEST_DEVICE. ETC_SIZES are sizes of chunks and, with an @, depths.
func TestProfile(t *testing.T) {
	path := os.Getenv("ETC_PROGRAM")
	if path == "" {
		t.Skip("ETC_PROGRAM names no program to measure")
	}
	p, err := program.Open(path)
	require.NoError(t, err)
	defer p.File.Close()
	m, err := p.Module("forward")
	require.NoError(t, err)
	x, err := onDevice(t).Compile(m, engine.Options{Precision: eval.Mixed})
	require.NoError(t, err)
	defer x.Close()
	var observed profile.Profile
	watched, err := onDevice(t).Compile(m,
		engine.Options{Precision: eval.Mixed, Observe: func(s *engine.Step) { observed.Observe(s) }})
	require.NoError(t, err)
	defer watched.Close()
	for _, size := range strings.Split(os.Getenv("ETC_SIZES"), ",") {
		i, err := x.NewInstance()
		require.NoError(t, err)
		tokens, position := 1, 0
		if at, ok := strings.CutPrefix(size, "@"); ok {
			position, err = strconv.Atoi(at)
		} else {
			tokens, err = strconv.Atoi(size)
		}
		require.NoError(t, err)
		run := func() { call(t, m, i, tokens, position) }
		run()
		const runs = 20
		var best time.Duration
		start := time.Now()
		for range runs {
			from := time.Now()
			run()
			if d := time.Since(from); best == 0 || d < best {
				best = d
			}
		}
		t.Logf("%s: %d tokens at %d: %v a call on average, %v at best", path, tokens, position,
			time.Since(start)/runs, best)
		require.NoError(t, i.Close())
		observed = profile.Profile{}
		if i, err = watched.NewInstance(); err != nil {
			t.Fatal(err)
		}
		run()
		observed = profile.Profile{} // the first call makes the plan
		run()
		run()
		var out strings.Builder
		require.NoError(t, observed.WriteText(&out, profile.Ceiling{}))
		t.Log("\n" + out.String())
		require.NoError(t, i.Close())
	}
}

// call runs tokens at a position.
func call(t *testing.T, m *ir.Module, i engine.Instance, tokens, position int) {
	ids, positions := make([]int64, tokens), make([]int64, tokens)
	for j := range ids {
		ids[j], positions[j] = int64(j*7919%1000), int64(position+j)
	}
	in := []eval.Value{{Tensor: eval.Ints(ir.I64, []int{1, tokens}, ids)},
		{Tensor: eval.Ints(ir.I64, []int{tokens}, positions)}}
	if len(m.Entry.Params) == 6 {
		in = append(in, eval.Value{Tensor: eval.Floats(ir.F32, nil, []float32{0.7})},
			eval.Value{Tensor: eval.Ints(ir.I64, nil, []int64{50})},
			eval.Value{Tensor: eval.Floats(ir.F32, nil, []float32{0.95})},
			eval.Value{Tensor: eval.Ints(ir.I64, nil, []int64{int64(position)})})
	}
	_, err := i.Run(t.Context(), in)
	require.NoError(t, err)
}

// onDevice is the engine of the device that ETC_TEST_DEVICE names: metal or cuda; else that of the emulator. A device
// is tuned if ETC_TEST_TUNE names a folder to keep choices in.
func onDevice(t testing.TB) engine.Engine {
	var options *tune.Options
	if dir := os.Getenv("ETC_TEST_TUNE"); dir != "" {
		options = &tune.Options{Dir: dir}
	}
	switch os.Getenv("ETC_TEST_DEVICE") {
	case "metal":
		return gpu.Engine{Device: "metal", Open: metal.Open, Tune: options}
	case "cuda":
		return gpu.Engine{Device: "cuda", Open: func() (device.Device, error) { return cuda.Open(cuda.Options{}) },
			Tune: options}
	}
	return emulated(t)
}
