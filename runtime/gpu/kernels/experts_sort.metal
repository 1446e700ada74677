#include "port.h"
#include "sort.h"
// Sorts token-expert pairs by expert, so that an expert's weights can be multiplied with all of its tokens at once.

#define PORT_WAITS

// experts_sort, with one threadgroup: sort.h says what order and tiles get.
[[max_total_threads_per_threadgroup(SORT_THREADS)]]
kernel void experts_sort(device const int* experts [[buffer(0)]],
                         device int* order [[buffer(1)]],
                         device int* tiles [[buffer(2)]],
                         device const int* step [[buffer(3)]],
                         uint thread_index [[thread_index_in_threadgroup]],
                         uint simd [[simdgroup_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(ushort, counts, SORT_SIMDS * SORT_EXPERTS);
  TG_ARRAY(int, starts, SORT_EXPERTS);
  TG_ARRAY(int, totals, 2 * SORT_SIMDS);
  const int tokens = step[STEP_TOKENS];  // the host wrote it before the sequence
  sort_clear(counts, thread_index);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  port_wait();
  sort_pairs(experts, tokens, order, tiles, thread_index, simd, lane, counts, starts, totals);
}
