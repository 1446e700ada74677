package kernels_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// arriving is streaming without barriers: the first simdgroup starts a copy when both have read what it overwrites.
func arriving() string {
	start, _, _ := strings.Cut(streaming, "[[max_total")
	return start + `[[max_total_threads_per_threadgroup(64)]]
kernel void stream(device const uchar* w [[buffer(0)]], device uint* y [[buffer(1)]], uint t [[thread_index_in_threadgroup]],
                   uint group [[threadgroup_position_in_grid]]) {
  TG_MEMORY(ring, 2 * BLOCK);
  TG_ARRAY(port_transfer, full, 2);
  TG_ARRAY(port_arrivals, empty, 2);
  if (t == 0) {
    port_transfer_init(full, 2);
    port_arrivals_init(empty, 2, 2);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint sum = 0;
  for (uint block = 0; block < 4; block++) {
    if (t < 32) {
      if (block >= 2) port_arrivals_wait(empty + block % 2, block / 2 - 1);
      start(ring, full, w + group * (4 * BLOCK), block, t);
    }
    port_transfer_wait(full + block % 2, block / 2);
    threadgroup const uint* words = (threadgroup const uint*)(ring + block % 2 * BLOCK);
    for (uint i = 0; i < BLOCK / 256; i++) sum = sum * 3 + words[i * 64 + 63 - t];
    port_arrive(empty + block % 2, t % 32);
  }
  y[group * 64 + t] = sum;
}
`
}

func TestArrivals(t *testing.T) {
	t.Parallel()
	l, w, want := streamed()
	require.NoError(t, kerneltest.Lint(swap(t, kernels.Metal, arriving(), "")))
	require.NoError(t, kerneltest.CompileCUDA(swap(t, kernels.CUDA, arriving(), streamingGPU)))
	for schedule, o := range kerneltest.Schedules(t, swap(t, kernels.CPU, arriving(), streamingCPU), l, w,
		make([]uint32, len(want))) {
		require.NoError(t, o.Err, schedule)
		require.Equal(t, want, words(o.Buffers[1]), schedule)
	}
}

// TestArrivalFaults plants faults into arriving: each is this error under one schedule at least.
func TestArrivalFaults(t *testing.T) {
	t.Parallel()
	l, w, want := streamed()
	for name, c := range map[string]struct{ old, fault, err string }{
		"nobody waits": {"if (block >= 2) port_arrivals_wait(empty + block % 2, block / 2 - 1);", "",
			"in port_transfer_wait at line 25: for turn 0, 2 turns were expected"},
		"one does not arrive": {"    port_arrive(", "    if (t < 32) port_arrive(",
			"for turn 0, 1 of 2 simdgroups have arrived in turn 0"},
		"divergent arrival": {"    port_arrive(", "    if (t % 2 == 0) port_arrive(", "in port_arrive at line 28"},
		"a turn too early":  {"block / 2 - 1);\n", "block / 2);\n", "for turn 1, 0 of 2 simdgroups have arrived in turn 1"},
		"a turn too late":   {"  y[group", "  port_arrivals_wait(empty, 0);\n  y[group", "for turn 0, 0 of 2 simdgroups have arrived in turn 2"},
		"no beginning":      {"port_arrivals_init(empty, 2, 2)", "(void)0", "no port_arrivals_init was there before"},
		"two beginnings": {"port_arrivals_init(empty, 2, 2)", "port_arrivals_init(empty, 2, 2), port_arrivals_init(empty, 1, 2)",
			"it is the second for this port_arrivals, or for no simdgroups"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, arriving(), c.old)
			found := false
			for _, o := range kerneltest.Schedules(t,
				swap(t, kernels.CPU, "\n#line 1"+strings.Replace(arriving(), c.old, c.fault, 1), streamingCPU), l, w,
				make([]uint32, len(want))) {
				found = found || o.Err != nil && strings.Contains(o.Err.Error(), c.err)
			}
			require.True(t, found)
		})
	}
}
