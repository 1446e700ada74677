#include "port.h"
// The gated delta rule (Yang, Kautz and Hatamizadeh, arXiv:2412.06464), token by token:
//
//   S = g · S;  S = S + β · (v − S k) kᵀ;  y = S q
//
// for the state S [DV][DK] of a value head, which reads key head h / (HEADS / K_HEADS). A simdgroup keeps
// DELTA_ROWS rows of a head's state in registers from the first token to the last. delta_chunk.metal is the
// form for many tokens.
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
#define DELTA_ROWS 1
#define DELTA_SIMDGROUPS 4
#define DELTA_STATE_T float
#define DELTA_WEIGHT_T float
#define DELTA_GATE_T float
#endif
#define DELTA_EACH (DELTA_DK / 32)

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
  const int t = int(i) / DELTA_HEADS;
  const int h = int(i) % DELTA_HEADS;
  if (t >= step[STEP_TOKENS]) return;
  decay[i] = delta_decay(x[long(t) * DELTA_G_TOKEN + h], float(bias[h]), float(rate[h]));
  beta[i] = port_sigmoid(b[long(t) * DELTA_BETA_TOKEN + h]);
}

// q, k: [T][..] with K_HEADS heads of DK; v: [T][..] with HEADS heads of DV; g, beta [T][..][HEADS], or x and
// b of delta_gates with bias and rate; q_weight, k_weight [DK]; reset [1]; state [HEADS][DV][DK];
// y [T][HEADS][DV].
// grid: DV / (ROWS · SIMDGROUPS), HEADS
[[max_total_threads_per_threadgroup(DELTA_SIMDGROUPS * 32)]]
kernel void delta_step(device const float* q [[buffer(0)]],
                       device const float* k [[buffer(1)]],
                       device const float* v [[buffer(2)]],
                       device const float* g [[buffer(3)]],
                       device const float* beta [[buffer(4)]],
                       device const DELTA_WEIGHT_T* q_weight [[buffer(5)]],
                       device const DELTA_WEIGHT_T* k_weight [[buffer(6)]],
                       device const DELTA_GATE_T* bias [[buffer(7)]],
                       device const DELTA_GATE_T* rate [[buffer(8)]],
                       device const uchar* reset [[buffer(9)]],
                       device DELTA_STATE_T* state [[buffer(10)]],
                       device float* y [[buffer(11)]],
                       device const int* step [[buffer(12)]],
                       uint3 tg [[threadgroup_position_in_grid]],
                       uint sg [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
  const int head = int(tg.y);
  const int key_head = head / (DELTA_HEADS / DELTA_K_HEADS);
  const int row0 = (int(tg.x) * DELTA_SIMDGROUPS + int(sg)) * DELTA_ROWS;
  if (row0 >= DELTA_DV) return;
  const int tokens = step[STEP_TOKENS];
  q += key_head * DELTA_DK + int(lane);
  k += key_head * DELTA_DK + int(lane);
  v += head * DELTA_DV + row0;
  y += head * DELTA_DV + row0;
  g += head;
  beta += head;
  state += (long(head) * DELTA_DV + row0) * DELTA_DK + int(lane);
#if DELTA_RESET == 1
  const bool zero = reset[0] != 0;
#elif DELTA_RESET == 2
  const bool zero = step[STEP_POSITION] == 0;
#else
  const bool zero = false;
#endif
  float s[DELTA_ROWS][DELTA_EACH];
  UNROLL for (int r = 0; r < DELTA_ROWS; r++) {
    UNROLL for (int i = 0; i < DELTA_EACH; i++) {
      s[r][i] = !zero && row0 + r < DELTA_DV ? float(state[r * DELTA_DK + i * 32]) : 0.0f;
    }
  }
  for (int t = 0; t < tokens; t++) {
    float keys[DELTA_EACH];
    float queries[DELTA_EACH];
    UNROLL for (int i = 0; i < DELTA_EACH; i++) {
      keys[i] = k[i * 32];
      queries[i] = q[i * 32];
    }
#if DELTA_QK_NORM
    {
      float kk = 0.0f;
      float qq = 0.0f;
      UNROLL for (int i = 0; i < DELTA_EACH; i++) {
        kk += keys[i] * keys[i];
        qq += queries[i] * queries[i];
      }
      kk = precise::rsqrt(simd_sum(kk) / float(DELTA_DK) + DELTA_EPS);
      qq = precise::rsqrt(simd_sum(qq) / float(DELTA_DK) + DELTA_EPS);
      UNROLL for (int i = 0; i < DELTA_EACH; i++) {
        keys[i] *= kk * float(k_weight[int(lane) + i * 32]);
        queries[i] *= qq * float(q_weight[int(lane) + i * 32]);
      }
    }
#endif
#if DELTA_GATES
    const float decay = delta_decay(g[0], float(bias[head]), float(rate[head]));
    const float rate_of = port_sigmoid(beta[0]);
#else
    const float decay = g[0];
    const float rate_of = beta[0];
#endif
    UNROLL for (int r = 0; r < DELTA_ROWS; r++) {
      float memory = 0.0f;
      UNROLL for (int i = 0; i < DELTA_EACH; i++) {
        s[r][i] *= decay;
        memory += s[r][i] * keys[i];
      }
      memory = simd_sum(memory);
      const float value = row0 + r < DELTA_DV ? v[r] : 0.0f;
      const float delta = (value - memory) * rate_of;
      float sum = 0.0f;
      UNROLL for (int i = 0; i < DELTA_EACH; i++) {
        s[r][i] += keys[i] * delta;
        sum += s[r][i] * queries[i];
      }
      sum = simd_sum(sum);
      if (lane == 0 && row0 + r < DELTA_DV) y[r] = sum;
    }
    q += DELTA_Q_TOKEN;
    k += DELTA_K_TOKEN;
    v += DELTA_V_TOKEN;
    g += DELTA_G_TOKEN;
    beta += DELTA_BETA_TOKEN;
    y += DELTA_HEADS * DELTA_DV;
  }
  UNROLL for (int r = 0; r < DELTA_ROWS; r++) {
    if (row0 + r < DELTA_DV) {
      UNROLL for (int i = 0; i < DELTA_EACH; i++) state[r * DELTA_DK + i * 32] = DELTA_STATE_T(s[r][i]);
    }
  }
}
