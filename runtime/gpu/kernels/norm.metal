#include "port.h"
// RMS normalization (Zhang and Sennrich, arXiv:1910.07467) of rows, with what stands around it in a block:
//
//   v = x                          v = v / rms(v) · pre    where NORM_PRE
//   v = v + residual               where NORM_ADD
//   v = v · scale[0]               where NORM_SCALE
//   sum = v                        where NORM_SUM
//   out = v / rms(v) · weight · activation(gate)           where NORM_OUT; weight where NORM_WEIGHT
//
// with rms(v) = √(mean(v²) + eps). A token has NORM_HEADS rows of NORM_N elements. NORM_SIMDGROUPS simdgroups
// share a row; where one is enough, a threadgroup takes NORM_ROWS rows. Elements stay in registers.
#ifndef NORM_N
#define NORM_N 256
#define NORM_HEADS 1
#define NORM_SIMDGROUPS 1
#define NORM_ROWS 1
#define NORM_X_TOKEN 256   // elements from one token to the next, and from one row of a token to the next
#define NORM_X_HEAD 256
#define NORM_GATE_TOKEN 256
#define NORM_GATE_HEAD 256
#define NORM_EPS 1e-6f
#define NORM_PRE_EPS 1e-6f
#define NORM_PRE 0
#define NORM_ADD 0
#define NORM_SCALE 0
#define NORM_SUM 0
#define NORM_OUT 1
#define NORM_WEIGHT 1
#define NORM_ACTIVATION ACTIVATION_NONE
#define NORM_GATED 0
#define NORM_PRE_T float
#define NORM_SCALE_T float
#define NORM_WEIGHT_T float
#endif
#define NORM_THREADS (NORM_SIMDGROUPS * 32)
#define NORM_EACH ((NORM_N + NORM_THREADS - 1) / NORM_THREADS)

// The sum of v over the threads of a row. Threadgroup memory that a call used may be used again after the
// next call but one: part has room for two.
inline float norm_sum(float v, threadgroup float* part, uint sg, uint lane) {
  v = simd_sum(v);
#if NORM_SIMDGROUPS > 1
  if (lane == 0) part[sg] = v;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  v = 0.0f;
  UNROLL for (int i = 0; i < NORM_SIMDGROUPS; i++) v += part[i];
#endif
  return v;
}

// x: rows at the strides above; pre, weight [N]; residual, sum, out [T][HEADS][N]; scale [1]; gate: rows at
// its strides; step. What is not in use may be any buffer; sum may be residual.
// grid: rows / NORM_ROWS
[[max_total_threads_per_threadgroup(NORM_SIMDGROUPS * NORM_ROWS * 32)]]
kernel void norm(device const float* x [[buffer(0)]],
                 device const NORM_PRE_T* pre [[buffer(1)]],
                 device const float* residual [[buffer(2)]],
                 device const NORM_SCALE_T* scale [[buffer(3)]],
                 device const NORM_WEIGHT_T* weight [[buffer(4)]],
                 device const float* gate [[buffer(5)]],
                 device float* sum [[buffer(6)]],
                 device float* out [[buffer(7)]],
                 device const int* step [[buffer(8)]],
                 uint group [[threadgroup_position_in_grid]],
                 uint sg [[simdgroup_index_in_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(float, part, 2 * NORM_SIMDGROUPS);
  const int row = int(group) * NORM_ROWS + (NORM_ROWS > 1 ? int(sg) : 0);
  if (row >= step[STEP_TOKENS] * NORM_HEADS) return;
  const int first = int(NORM_ROWS > 1 ? lane : sg * 32 + lane);
  x += long(row / NORM_HEADS) * NORM_X_TOKEN + (row % NORM_HEADS) * NORM_X_HEAD;
  residual += long(row) * NORM_N;
  sum += long(row) * NORM_N;
  out += long(row) * NORM_N;
  float v[NORM_EACH];
  UNROLL for (int i = 0; i < NORM_EACH; i++) {
    const int at = first + i * NORM_THREADS;
    v[i] = at < NORM_N ? x[at] : 0.0f;
  }
#if NORM_PRE
  {
    float squares = 0.0f;
    UNROLL for (int i = 0; i < NORM_EACH; i++) squares += v[i] * v[i];
    squares = norm_sum(squares, part, sg, lane);
    const float factor = precise::rsqrt(squares / float(NORM_N) + NORM_PRE_EPS);
    UNROLL for (int i = 0; i < NORM_EACH; i++) {
      const int at = first + i * NORM_THREADS;
      if (at < NORM_N) v[i] *= factor * float(pre[at]);
    }
  }
#endif
#if NORM_ADD
  UNROLL for (int i = 0; i < NORM_EACH; i++) {
    const int at = first + i * NORM_THREADS;
    if (at < NORM_N) v[i] += residual[at];
  }
#endif
#if NORM_SCALE
  {
    const float factor = float(scale[0]);
    UNROLL for (int i = 0; i < NORM_EACH; i++) v[i] *= factor;
  }
#endif
#if NORM_SUM
  UNROLL for (int i = 0; i < NORM_EACH; i++) {
    const int at = first + i * NORM_THREADS;
    if (at < NORM_N) sum[at] = v[i];
  }
#endif
#if NORM_OUT
  float squares = 0.0f;
  UNROLL for (int i = 0; i < NORM_EACH; i++) squares += v[i] * v[i];
  squares = norm_sum(squares, part + NORM_SIMDGROUPS, sg, lane);
  const float factor = precise::rsqrt(squares / float(NORM_N) + NORM_EPS);
#if NORM_GATED
  gate += long(row / NORM_HEADS) * NORM_GATE_TOKEN + (row % NORM_HEADS) * NORM_GATE_HEAD;
#endif
  UNROLL for (int i = 0; i < NORM_EACH; i++) {
    const int at = first + i * NORM_THREADS;
    if (at < NORM_N) {
      float o = v[i] * factor;
#if NORM_WEIGHT
      o *= float(weight[at]);
#endif
#if NORM_GATED
      o *= port_activate(NORM_ACTIVATION, gate[at]);
#endif
      out[at] = o;
    }
  }
#endif
}
