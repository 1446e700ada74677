#include "port.h"
// The experts of a token: softmax over the router's logits [T, ROUTER_EXPERTS], the ROUTER_TOP largest, and their
// scores. A simdgroup takes a token. Of equal elements the later ones are chosen, and come first; a NaN is larger than
// all: the order of top_k in ir/eval.

#ifndef ROUTER_EXPERTS    // at most 1024
#define ROUTER_EXPERTS 32
#endif
#ifndef ROUTER_TOP        // at most 32
#define ROUTER_TOP 2
#endif
#ifndef ROUTER_SOFTMAX    // 0: the scores are the logits
#define ROUTER_SOFTMAX 1
#endif
#ifndef ROUTER_NORMALIZE  // scores are divided by their sum
#define ROUTER_NORMALIZE 1
#endif
#ifndef ROUTER_SCALE      // and multiplied by this
#define ROUTER_SCALE 1.0f
#endif
#ifndef ROUTER_SIMDS
#define ROUTER_SIMDS 1
#endif
#define ROUTER_PER ((ROUTER_EXPERTS + 31) / 32)

// A key in the order of floats, a NaN above all; 0 is below all.
inline uint router_key(float v) {
  if (port_isnan(v)) return 0xffffffffu;
  const uint u = as_type<uint>(v == 0.0f ? 0.0f : v);
  return (u & 0x80000000u) != 0u ? ~u : u | 0x80000000u;
}

[[max_total_threads_per_threadgroup(ROUTER_SIMDS * 32)]]
kernel void router(device const float* logits [[buffer(0)]],
                   device int* experts [[buffer(1)]],
                   device float* scores [[buffer(2)]],
                   device const int* step [[buffer(3)]],
                   uint group [[threadgroup_position_in_grid]],
                   uint simd [[simdgroup_index_in_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]]) {
  const int token = int(group * ROUTER_SIMDS + simd);
  if (token >= step[STEP_TOKENS]) return;
  device const float* from = logits + long(token) * ROUTER_EXPERTS;
  float v[ROUTER_PER];
  UNROLL for (int i = 0; i < ROUTER_PER; i++) {
    const int at = i * 32 + int(lane);
    v[i] = at < ROUTER_EXPERTS ? from[at] : 0.0f;
  }
#if ROUTER_SOFTMAX
  float largest = -3e38f;
  UNROLL for (int i = 0; i < ROUTER_PER; i++) {
    if (i * 32 + int(lane) < ROUTER_EXPERTS) largest = v[i] > largest ? v[i] : largest;
  }
  largest = simd_max(largest);
  float total = 0.0f;
  UNROLL for (int i = 0; i < ROUTER_PER; i++) {
    if (i * 32 + int(lane) < ROUTER_EXPERTS) {
      v[i] = precise::exp(v[i] - largest);
      total += v[i];
    }
  }
  total = simd_sum(total);
  UNROLL for (int i = 0; i < ROUTER_PER; i++) v[i] /= total;
#endif
  uint key[ROUTER_PER];
  UNROLL for (int i = 0; i < ROUTER_PER; i++) key[i] = i * 32 + int(lane) < ROUTER_EXPERTS ? router_key(v[i]) : 0u;
  int chosen = 0;      // lane j keeps the j-th
  float score = 0.0f;
  for (int j = 0; j < ROUTER_TOP; j++) {
    uint best = 0u;
    int at = -1;
    float value = 0.0f;
    UNROLL for (int i = 0; i < ROUTER_PER; i++) {
      if (key[i] != 0u && key[i] >= best) {
        best = key[i];
        at = i * 32 + int(lane);
        value = v[i];
      }
    }
    const uint top = simd_max(best);
    const int where = simd_max(best == top ? at : -1);
    value = simd_shuffle(value, ushort(where & 31));
    UNROLL for (int i = 0; i < ROUTER_PER; i++) {
      if (i * 32 + int(lane) == where) key[i] = 0u;
    }
    if (int(lane) == j) {
      chosen = where;
      score = value;
    }
  }
#if ROUTER_NORMALIZE
  score /= simd_sum(score);
#endif
  if (lane < ROUTER_TOP) {
    experts[token * ROUTER_TOP + int(lane)] = chosen;
    scores[token * ROUTER_TOP + int(lane)] = score * ROUTER_SCALE;
  }
}
