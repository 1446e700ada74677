#include "port.h"
#include "router.h"
// Chooses the experts of a token: the ROUTER_TOP largest of the router's logits [T, ROUTER_EXPERTS], and their scores.
// A threadgroup takes one token. One simdgroup drops logits that cannot be among the largest. Then all simdgroups count,
// for each logit that remains, how many of the remaining logits come before it. Of equal elements the later ones come
// first, and a NaN comes before all, as in top_k of ir/eval.

#define PORT_WAITS
#ifndef ROUTER_SIMDS
#define ROUTER_SIMDS 1
#endif
#define ROUTER_THREADS (ROUTER_SIMDS * 32)

[[max_total_threads_per_threadgroup(ROUTER_THREADS)]]
kernel void router(device const float* logits [[buffer(0)]],
                   device const ROUTER_SCALES_T* scales [[buffer(1)]],  // absent: logits
                   device int* experts [[buffer(2)]],
                   device float* scores [[buffer(3)]],
                   device const int* step [[buffer(4)]],
                   uint token [[threadgroup_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]],
                   uint simd [[simdgroup_index_in_threadgroup]]) {
  TG_ARRAY(uint, list, ROUTER_LIST);
  TG_ARRAY(ushort, list_places, ROUTER_LIST);
  TG_ARRAY(int, count, 1);
  TG_ARRAY(uint, keys, ROUTER_TOP);
  TG_ARRAY(int, places, ROUTER_TOP);
  const int tokens = step[STEP_TOKENS];  // the host wrote it before the sequence
  port_wait();
  if (int(token) >= tokens) return;
  device const float* from = logits + long(token) * ROUTER_EXPERTS;
  router_choose(from, int(lane), int(simd), ROUTER_SIMDS, list, list_places, count, keys, places);
  if (simd > 0) return;
  const int rank = min(int(lane), ROUTER_TOP - 1), place = places[rank];
  const float total = router_total(from, int(lane), router_number(keys[0]));
  const float score = router_score(router_number(keys[rank]), place, scales, int(lane), total);
  if (lane < ROUTER_TOP) {
    experts[token * ROUTER_TOP + lane] = place;
    scores[token * ROUTER_TOP + lane] = score;
  }
}
