#include "port.h"
#include "delta.h"
// The gated delta rule (Yang, Kautz and Hatamizadeh, arXiv:2412.06464), token by token:
//
//   S = g · S;  S = S + β · (v − S k) kᵀ;  y = S q
//
// for the state S [DV][DK] of a value head, which reads key head h / (HEADS / K_HEADS). DELTA_LANES lanes keep DELTA_ROWS
// rows of a head's state in registers from the first token to the last, and so do the others of the simdgroup.
// delta_chunk.metal is the form for many tokens.
//
// The output is y = g · (S q) + (k · q) · β · (v − g · S k), so that all sums over a row are made of the state before, at
// the same time. The decay, and the factors of the norms of q and k, are multiplied in after the sums.

// decay [T][HEADS] = exp(rate · log(1 + exp(x + bias))) for x at stride G_TOKEN, and beta [T][HEADS] =
// sigmoid(b) for b at stride BETA_TOKEN; bias, rate [HEADS].
// grid: T · HEADS / 64
[[max_total_threads_per_threadgroup(64)]]
kernel void delta_gates(device const float* x [[buffer(0)]],
                        device const float* b [[buffer(1)]],
                        device const DELTA_GATE_T* bias [[buffer(2)]],
                        device const DELTA_GATE_T* rate [[buffer(3)]],
                        device float* decay [[buffer(4)]],
                        device float* beta [[buffer(5)]],
                        device const int* step [[buffer(6)]],
                        uint i [[thread_position_in_grid]]) {
  port_wait();
  const int t = int(i) / DELTA_HEADS;
  const int h = int(i) % DELTA_HEADS;
  if (t >= step[STEP_TOKENS]) return;
  decay[i] = delta_decay(x[long(t) * DELTA_G_TOKEN + h], float(bias[h]), float(rate[h]));
  beta[i] = port_sigmoid(b[long(t) * DELTA_BETA_TOKEN + h]);
}

inline bool delta_reset(device const uchar* reset, device const int* step) {
#if DELTA_RESET == 1
  return reset[0] != 0;
#elif DELTA_RESET == 2
  return step[STEP_POSITION] == 0;
#else
  return false;
#endif
}

// q, k: [T][..] with K_HEADS heads of DK, tokens a multiple of 4 elements apart; v: [T][..] with HEADS heads of DV; g,
// beta [T][..][HEADS], or x and b of delta_gates with bias and rate; q_weight, k_weight [DK]; reset [1]; state
// [HEADS][DV][DK]; y [T][HEADS][DV]; next, the state after, which may be state itself.
// grid: DV / BLOCK, HEADS
[[max_total_threads_per_threadgroup(DELTA_SIMDGROUPS * 32)]]
kernel void delta_step(device const float* q [[buffer(0)]],
                       device const float* k [[buffer(1)]],
                       device const float* v [[buffer(2)]],
                       device const float* g [[buffer(3)]],
                       device const float* beta [[buffer(4)]],
                       device const DELTA_WEIGHT_T* q_weight [[buffer(5)]],  // absent: v
                       device const DELTA_WEIGHT_T* k_weight [[buffer(6)]],  // absent: v
                       device const DELTA_GATE_T* bias [[buffer(7)]],  // absent: v
                       device const DELTA_GATE_T* rate [[buffer(8)]],  // absent: v
                       device const uchar* reset [[buffer(9)]],  // absent: v
                       device const DELTA_STATE_T* state [[buffer(10)]],
                       device float* y [[buffer(11)]],
                       device DELTA_STATE_T* next [[buffer(12)]],
                       device const int* step [[buffer(13)]],
                       uint3 tg [[threadgroup_position_in_grid]],
                       uint sg [[simdgroup_index_in_threadgroup]],
                       uint thread_index [[thread_index_in_simdgroup]]) {
  const int head = int(tg.y);
  const int lane = int(thread_index) % DELTA_LANES;
  const int row0 = int(tg.x) * DELTA_BLOCK + (int(sg) * (32 / DELTA_LANES) + int(thread_index) / DELTA_LANES) * DELTA_ROWS;
  state += long(head) * DELTA_DV * DELTA_DK;
  next += long(head) * DELTA_DV * DELTA_DK;
  float s[DELTA_ROWS * DELTA_EACH];
#if DELTA_EARLY
  delta_state(state, row0, lane, s);
  const bool zero = delta_reset(reset, step);
#endif
  delta_weights weights;
  delta_read_weights(q_weight, k_weight, bias, rate, head, lane, weights);
  const int tokens = simd_broadcast_first(step[STEP_TOKENS]);  // the host wrote it before the sequence
  port_wait();
#if !DELTA_EARLY
  delta_state(state, row0, lane, s);
  const bool zero = delta_reset(reset, step);
#endif
  UNROLL for (int i = 0; i < DELTA_ROWS * DELTA_EACH; i++) s[i] = zero ? 0.0f : s[i];
  delta_source from;
  from.q = q;
  from.k = k;
  from.v = v;
  from.g = g;
  from.beta = beta;
  for (int t = 0; t < tokens; t++) delta_token(from, weights, t, head, row0, lane, s, y);
  delta_store(next, row0, lane, s);
}
