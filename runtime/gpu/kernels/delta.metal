#include "port.h"
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
#define PORT_WAITS
#ifndef DELTA_DK
#define DELTA_DK 64           // a multiple of 32
#define DELTA_DV 64
#define DELTA_K_HEADS 1
#define DELTA_HEADS 1
#define DELTA_Q_TOKEN 64      // elements from one token to the next; heads follow each other
#define DELTA_K_TOKEN 64
#define DELTA_V_TOKEN 64
#define DELTA_G_TOKEN 1
#define DELTA_BETA_TOKEN 1
#define DELTA_QK_NORM 0       // q and k are RMS-normalized first
#define DELTA_EPS 1e-6f
#define DELTA_GATES 0         // g and β are made of their inputs first: see delta_gates
#define DELTA_RESET 0         // the state counts as zeros 1: where reset[0] is not 0, 2: at position 0
#define DELTA_EARLY 0         // no kernel of the sequence writes state and reset before: they are read before port_wait
#define DELTA_LANES 8         // 8 or 16 that share a row
#define DELTA_ROWS 1
#define DELTA_SIMDGROUPS 4
#define DELTA_STATE_T float
#define DELTA_WEIGHT_T float
#define DELTA_GATE_T float
#endif
#define DELTA_EACH (DELTA_DK / DELTA_LANES)
#define DELTA_BLOCK (DELTA_ROWS * (32 / DELTA_LANES) * DELTA_SIMDGROUPS)  // rows of a threadgroup

inline float delta_decay(float x, float bias, float rate) {
  x += bias;
  return precise::exp(rate * (max(x, 0.0f) + port_log1p(precise::exp(-fabs(x)))));
}

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

inline void delta_put(device float* p, float4 v) { *(device float4*)p = v; }
inline void delta_put(device bfloat* p, float4 v) {
  UNROLL for (int j = 0; j < 4; j++) p[j] = bfloat(v[j]);
}

// A lane's columns of DK: fours, LANES of them apart.
template <typename T>
inline void delta_columns(device const T* from, int lane, thread float* out) {
  UNROLL for (int i = 0; i < DELTA_EACH; i += 4) {
    const float4 v = port_four(from + i * DELTA_LANES + 4 * lane);
    UNROLL for (int j = 0; j < 4; j++) out[i + j] = v[j];
  }
}

// The sum over the lanes of a row.
inline float delta_sum(float v) {
  UNROLL for (ushort distance = 1; distance < DELTA_LANES; distance *= 2) v += simd_shuffle_xor(v, distance);
  return v;
}

// What a lane keeps of the state, for rows from row0 on: those past the last are the last one again, and not written.
inline void delta_state(device const DELTA_STATE_T* state, int row0, int lane, thread float* s) {
  UNROLL for (int r = 0; r < DELTA_ROWS; r++) delta_columns(state + min(row0 + r, DELTA_DV - 1) * DELTA_DK, lane, s + r * DELTA_EACH);
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
  const int key_head = head / (DELTA_HEADS / DELTA_K_HEADS);
  const int lane = int(thread_index) % DELTA_LANES;
  const int row0 = int(tg.x) * DELTA_BLOCK + (int(sg) * (32 / DELTA_LANES) + int(thread_index) / DELTA_LANES) * DELTA_ROWS;
  state += long(head) * DELTA_DV * DELTA_DK;
  next += long(head) * DELTA_DV * DELTA_DK;
  float s[DELTA_ROWS * DELTA_EACH];
#if DELTA_EARLY
  delta_state(state, row0, lane, s);
  const bool zero = delta_reset(reset, step);
#endif
#if DELTA_QK_NORM
  float key_weights[DELTA_EACH];
  float query_weights[DELTA_EACH];
  delta_columns(k_weight, lane, key_weights);
  delta_columns(q_weight, lane, query_weights);
#endif
#if DELTA_GATES
  const float bias_of = float(bias[head]);
  const float rate_of = float(rate[head]);
#endif
  const int tokens = simd_broadcast_first(step[STEP_TOKENS]);  // which the host wrote
  port_wait();
#if !DELTA_EARLY
  delta_state(state, row0, lane, s);
  const bool zero = delta_reset(reset, step);
#endif
  UNROLL for (int i = 0; i < DELTA_ROWS * DELTA_EACH; i++) s[i] = zero ? 0.0f : s[i];
  for (int t = 0; t < tokens; t++) {
    float keys[DELTA_EACH];
    float queries[DELTA_EACH];
    float values[DELTA_ROWS];
    // All that is read comes before what is computed of some of it with a branch.
    float decay = g[long(t) * DELTA_G_TOKEN + head];
    float write = beta[long(t) * DELTA_BETA_TOKEN + head];
    delta_columns(k + long(t) * DELTA_K_TOKEN + key_head * DELTA_DK, lane, keys);
    delta_columns(q + long(t) * DELTA_Q_TOKEN + key_head * DELTA_DK, lane, queries);
    UNROLL for (int r = 0; r < DELTA_ROWS; r++) values[r] = v[long(t) * DELTA_V_TOKEN + head * DELTA_DV + min(row0 + r, DELTA_DV - 1)];
#if DELTA_GATES
    decay = delta_decay(decay, bias_of, rate_of);
    write = port_sigmoid(write);
#endif
    float key_factor = 1.0f;
    float query_factor = 1.0f;
#if DELTA_QK_NORM
    {
      float kk = 0.0f;
      float qq = 0.0f;
      UNROLL for (int i = 0; i < DELTA_EACH; i++) {
        kk += keys[i] * keys[i];
        qq += queries[i] * queries[i];
        keys[i] *= key_weights[i];
        queries[i] *= query_weights[i];
      }
      key_factor = precise::rsqrt(delta_sum(kk) / float(DELTA_DK) + DELTA_EPS);
      query_factor = precise::rsqrt(delta_sum(qq) / float(DELTA_DK) + DELTA_EPS);
    }
#endif
    float kq = 0.0f;
    UNROLL for (int i = 0; i < DELTA_EACH; i++) kq += keys[i] * queries[i];
    kq = delta_sum(kq) * key_factor;
    UNROLL for (int r = 0; r < DELTA_ROWS; r++) {
      float memory = 0.0f;
      float sum = 0.0f;
      UNROLL for (int i = 0; i < DELTA_EACH; i++) {
        memory += s[r * DELTA_EACH + i] * keys[i];
        sum += s[r * DELTA_EACH + i] * queries[i];
      }
      const float delta = (values[r] - delta_sum(memory) * (decay * key_factor)) * write;
      sum = (delta_sum(sum) * decay + kq * delta) * query_factor;
      const float factor = key_factor * delta;
      UNROLL for (int i = 0; i < DELTA_EACH; i++) s[r * DELTA_EACH + i] = s[r * DELTA_EACH + i] * decay + keys[i] * factor;
      if (lane == 0 && row0 + r < DELTA_DV) y[(long(t) * DELTA_HEADS + head) * DELTA_DV + row0 + r] = sum;
    }
  }
  UNROLL for (int r = 0; r < DELTA_ROWS; r++) {
    if (row0 + r < DELTA_DV) {
      device DELTA_STATE_T* to = next + (row0 + r) * DELTA_DK + 4 * lane;
      UNROLL for (int i = 0; i < DELTA_EACH; i += 4) {
        delta_put(to + i * DELTA_LANES, float4(s[r * DELTA_EACH + i], s[r * DELTA_EACH + i + 1], s[r * DELTA_EACH + i + 2], s[r * DELTA_EACH + i + 3]));
      }
    }
  }
}
