package kernels_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// copying reads words of two tiles that its threads copy 16 bytes each of. One thread of eight has nothing to copy.
const copying = `
[[max_total_threads_per_threadgroup(64)]]
kernel void stream(device const uchar* w [[buffer(0)]], device uint* y [[buffer(1)]], uint t [[thread_index_in_threadgroup]],
                   uint group [[threadgroup_position_in_grid]]) {
  TG_MEMORY(tiles, 2048);
  for (uint tile = 0; tile < 2; tile++) {
    const uint at = tile * 1024 + t * 16;
    port_copy(tiles + at, w + group * 2048 + at, t % 8 != 5);
    port_copies_end();
  }
  port_copies_wait<1>();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint first = ((threadgroup const uint*)tiles)[255 - t];
  port_copies_wait<0>();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[group * 64 + t] = first * 3 + ((threadgroup const uint*)tiles)[511 - t];
}
`

// copied returns the launch of copying, its input and what it computes.
func copied() (l kernels.Launch, w, want []uint32) {
	const groups = 3
	r := rand.New(rand.NewPCG(3, 4))
	w, want = make([]uint32, groups*512), make([]uint32, groups*64)
	for i := range w {
		w[i] = r.Uint32()
	}
	word := func(group, i int) uint32 {
		if i/4%8 == 5 {
			return 0
		}
		return w[group*512+i]
	}
	for i := range want {
		want[i] = word(i/64, 255-i%64)*3 + word(i/64, 511-i%64)
	}
	return kernels.Launch{Kernel: "stream", Groups: [3]int{groups, 1, 1}, Threads: [3]int{64, 1, 1}, Memory: 2048}, w,
		want
}

func TestCopies(t *testing.T) {
	t.Parallel()
	l, w, want := copied()
	require.NoError(t, kerneltest.Lint(swap(t, kernels.Metal, copying, "")))
	require.NoError(t, kerneltest.CompileCUDA(swap(t, kernels.CUDA, copying, streamingGPU)))
	for schedule, o := range kerneltest.Schedules(t, swap(t, kernels.CPU, copying, streamingCPU), l, w,
		make([]uint32, len(want))) {
		require.NoError(t, o.Err, schedule)
		require.Equal(t, want, words(o.Buffers[1]), schedule)
	}
}

// TestCopyFaults plants faults into copying: each is an error or a wrong answer under one schedule at least.
func TestCopyFaults(t *testing.T) {
	t.Parallel()
	l, w, want := copied()
	const barrier = "  threadgroup_barrier(mem_flags::mem_threadgroup);\n"
	for name, c := range map[string]struct{ old, fault, err string }{
		"waits for none":    {"port_copies_wait<1>", "port_copies_wait<2>", ""},
		"waits for one":     {"port_copies_wait<0>", "port_copies_wait<1>", ""},
		"no barrier":        {"wait<0>();\n" + barrier, "wait<0>();\n", ""},
		"group not ended":   {"    port_copies_end();\n", "    if (tile == 0) port_copies_end();\n", ""},
		"odd source":        {"w + group * 2048 + at", "w + 4 + group * 2048 + at", "want multiples of 16"},
		"odd place":         {"tiles + at, w", "tiles + 4 + at, w", "want multiples of 16"},
		"past the end":      {"tiles + at, w", "tiles + 16 + at, w", "to what is not threadgroup memory"},
		"all are as copied": {"t % 8 != 5", "true", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, copying, c.old)
			found := false
			for _, o := range kerneltest.Schedules(t,
				swap(t, kernels.CPU, "\n#line 1"+strings.Replace(copying, c.old, c.fault, 1), streamingCPU), l, w,
				make([]uint32, len(want))) {
				if o.Err != nil {
					require.NotEmpty(t, c.err, o.Err)
					require.Contains(t, o.Err.Error(), c.err)
				}
				found = found || c.err != "" && o.Err != nil ||
					c.err == "" && string(o.Buffers[1]) != string(bytesOf(want))
			}
			require.True(t, found)
		})
	}
}
