#include "port.h"
#include "router.h"
// Chooses the experts of a token: the ROUTER_TOP largest of the router's logits [T, ROUTER_EXPERTS], and their scores.
// A threadgroup has a token, and a thread ROUTER_PER of its logits. An element's rank is the number of elements that
// come before it; ranks are counted first within 32 neighbours, then among the best of each 32. Of equal elements the
// later ones come first, and a NaN comes before all, as in top_k of ir/eval.

#ifndef ROUTER_SIMDS
#define ROUTER_SIMDS 1
#endif
#define ROUTER_THREADS (ROUTER_SIMDS * 32)
#define ROUTER_PER ((ROUTER_EXPERTS + ROUTER_THREADS - 1) / ROUTER_THREADS)
#define ROUTER_BEST (ROUTER_PER * ROUTER_SIMDS * ROUTER_TOP)    // of all neighbourhoods
#define ROUTER_PADDED ((ROUTER_BEST + 3) / 4 * 4)
#if ROUTER_PADDED <= 128
#define ROUTER_UNROLL UNROLL
#else
#define ROUTER_UNROLL
#endif

[[max_total_threads_per_threadgroup(ROUTER_THREADS)]]
kernel void router(device const float* logits [[buffer(0)]],
                   device const ROUTER_SCALES_T* scales [[buffer(1)]],  // absent: logits
                   device int* experts [[buffer(2)]],
                   device float* scores [[buffer(3)]],
                   device const int* step [[buffer(4)]],
                   uint token [[threadgroup_position_in_grid]],
                   uint thread_index [[thread_index_in_threadgroup]],
                   uint simd [[simdgroup_index_in_threadgroup]]) {
  TG_ARRAY(uint, keys, ROUTER_PADDED);
  TG_ARRAY(float, values, ROUTER_BEST);
  TG_ARRAY(int, places, ROUTER_BEST);
  TG_ARRAY(float, chosen, ROUTER_TOP);
  TG_ARRAY(int, chosen_places, ROUTER_TOP);
  TG_ARRAY(float, partial, ROUTER_SIMDS);
  if (int(token) >= step[STEP_TOKENS]) return;
  device const float* from = logits + long(token) * ROUTER_EXPERTS;
  float v[ROUTER_PER];
  UNROLL for (int i = 0; i < ROUTER_PER; i++) {
    const int at = i * ROUTER_THREADS + int(thread_index);
    v[i] = at < ROUTER_EXPERTS ? from[at] : 0.0f;
  }
  const int lane = int(thread_index % 32);
  UNROLL for (int i = 0; i < ROUTER_PER; i++) {
    const int at = i * ROUTER_THREADS + int(thread_index);
    const uint own = at < ROUTER_EXPERTS ? router_key(v[i]) : 0u;
    int rank = 0;
    UNROLL for (int l = 0; l < 32; l++) {
      const uint other = simd_shuffle(own, ushort(l));
      rank += other > own || (other == own && l > lane) ? 1 : 0;
    }
    if (rank < ROUTER_TOP) {
      const int to = (i * ROUTER_SIMDS + int(simd)) * ROUTER_TOP + rank;
      keys[to] = own;
      values[to] = v[i];
      places[to] = at;
    }
  }
  if (int(thread_index) < ROUTER_PADDED - ROUTER_BEST) keys[ROUTER_BEST + thread_index] = 0u;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = int(thread_index); i < ROUTER_BEST; i += ROUTER_THREADS) {
    const uint own = keys[i];
    int before = 0;
    ROUTER_UNROLL for (int j = 0; j < ROUTER_PADDED; j += 4) {
      const uint4 other = *(threadgroup const uint4*)(keys + j);
      UNROLL for (int e = 0; e < 4; e++) {
        // Of equal elements in different groups of 32 the later group's come first; within a group they are in order
        // already.
        const bool first = (j + e) / ROUTER_TOP == i / ROUTER_TOP ? j + e < i : j + e > i;
        before += other[e] > own || (other[e] == own && first) ? 1 : 0;
      }
    }
    if (before < ROUTER_TOP) {
      experts[int(token) * ROUTER_TOP + before] = places[i];
      chosen[before] = values[i];
      chosen_places[before] = places[i];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 1.0f;
#if ROUTER_SOFTMAX && !ROUTER_NORMALIZE
  total = 0.0f;
  UNROLL for (int i = 0; i < ROUTER_PER; i++) {
    if (i * ROUTER_THREADS + int(thread_index) < ROUTER_EXPERTS) total += precise::exp(v[i] - chosen[0]);
  }
  total = simd_sum(total);
  if (lane == 0) partial[simd] = total;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  total = 0.0f;
  UNROLL for (int i = 0; i < ROUTER_SIMDS; i++) total += partial[i];
#endif
  if (simd == 0) {
    const int rank = min(lane, ROUTER_TOP - 1);
    const float score = router_score(chosen[rank], chosen_places[rank], scales, lane, total);
    if (lane < ROUTER_TOP) scores[int(token) * ROUTER_TOP + lane] = score;
  }
}
