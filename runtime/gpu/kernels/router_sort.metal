#include "port.h"
#include "router.h"
#include "sort.h"
// router of router.metal and experts_sort of experts_sort.metal as one kernel of one threadgroup, for up to ROUTED_TOKENS tokens. Each
// simdgroup chooses the experts of a token, and of further ones behind that. All of them sort.

#define PORT_WAITS
#ifndef ROUTED_TOKENS
#define ROUTED_TOKENS 8
#endif

[[max_total_threads_per_threadgroup(SORT_THREADS)]]
kernel void router_sort(device const float* logits [[buffer(0)]],
                        device const ROUTER_SCALES_T* scales [[buffer(1)]],  // absent: logits
                        device int* experts [[buffer(2)]],
                        device float* scores [[buffer(3)]],
                        device int* order [[buffer(4)]],
                        device int* tiles [[buffer(5)]],
                        device const int* step [[buffer(6)]],
                        uint thread_index [[thread_index_in_threadgroup]],
                        uint simd [[simdgroup_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(uint, list, SORT_SIMDS * ROUTER_LIST);
  TG_ARRAY(ushort, list_places, SORT_SIMDS * ROUTER_LIST);
  TG_ARRAY(uint, keys, SORT_SIMDS * ROUTER_TOP);
  TG_ARRAY(int, chosen, ROUTED_TOKENS * ROUTER_TOP);
  TG_ARRAY(ushort, counts, SORT_SIMDS * SORT_EXPERTS);
  TG_ARRAY(int, starts, SORT_EXPERTS);
  TG_ARRAY(int, totals, 2 * SORT_SIMDS);
  const int tokens = min(step[STEP_TOKENS], ROUTED_TOKENS);  // the host wrote it before the sequence
  sort_clear(counts, thread_index);
  threadgroup uint* own = list + simd * ROUTER_LIST;
  threadgroup ushort* own_places = list_places + simd * ROUTER_LIST;
  threadgroup uint* own_keys = keys + simd * ROUTER_TOP;
  port_wait();
  for (int token = int(simd); token < tokens; token += SORT_SIMDS) {
    device const float* from = logits + long(token) * ROUTER_EXPERTS;
    threadgroup int* places = chosen + token * ROUTER_TOP;
    const int count = router_shorten(from, int(lane), own, own_places);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    router_rank(own, own_places, count, int(lane), 0, 1, own_keys, places);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    router_write(from, own_keys, places, scales, int(lane), experts + token * ROUTER_TOP, scores + token * ROUTER_TOP);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sort_pairs(chosen, tokens, order, tiles, thread_index, simd, lane, counts, starts, totals);
}
