#include "port.h"
#include "weights.h"
#include "matvec.h"
// Mixtures of experts for a few tokens, whose experts are read each on its own: experts_up makes
// activation(gate x) * (up x) of a token and one of its experts, experts_down the sum of the experts' products
// with their scores. Weights are stacks: gate and up [E, I, H], down [E, H, I].

#ifndef EXPERTS_TOP       // experts of a token
#define EXPERTS_TOP 2
#endif
#ifndef EXPERTS_N         // rows of one matrix of the stack
#define EXPERTS_N 64
#endif
#ifndef EXPERTS_RESIDUAL  // experts_down adds extra [T, H]
#define EXPERTS_RESIDUAL 0
#endif
#ifndef EXPERTS_ACTIVATION
#define EXPERTS_ACTIVATION ACTIVATION_SILU
#endif

// The grid is (blocks of rows, token-expert pairs).
[[max_total_threads_per_threadgroup(MATVEC_THREADS)]]
kernel void experts_up(device const uint* w0 [[buffer(0)]],
                       device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                       device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                       device const uint* w1 [[buffer(3)]],
                       device const WEIGHT_SCALE* scales1 [[buffer(4)]],
                       device const WEIGHT_SCALE* biases1 [[buffer(5)]],
                       device const int* experts [[buffer(6)]],
                       device const float* x [[buffer(7)]],
                       device const MATVEC_NORM_T* norm [[buffer(8)]],
                       device float* y [[buffer(9)]],
                       device const int* step [[buffer(10)]],
                       uint3 group [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, stage, MATVEC_STAGE);
  TG_ARRAY(float, shared, MATVEC_SHARED(2));
  port_wait();
  const int pair = int(group.y);
  if (pair >= step[STEP_TOKENS] * EXPERTS_TOP) return;
  matvec_place at;
  matvec_find(at, thread_index);
  const int row0 = int(group.x) * MATVEC_BLOCK + matvec_row(at);
  const long before = long(clamp(experts[pair], 0, MATVEC_EXPERTS - 1)) * EXPERTS_N;
  const long words = before * WEIGHT_WORDS(MATVEC_K);
  const long affine = before * (MATVEC_K / WEIGHT_GROUP);
  float sums[2 * MATVEC_OUTS];
  float squares[1];
  float out[2];
  matvec_sums<2, 1>(w0 + words, scales0 + affine, biases0 + affine, w1 + words, scales1 + affine, biases1 + affine, EXPERTS_N, row0,
                    experts, x, x + long(pair / EXPERTS_TOP) * MATVEC_K, 1, norm, stage, at, sums, squares);
  if (!matvec_finish<2>(sums, squares, shared, at, out)) return;
  const int row = row0 + at.lane;
  if (row < EXPERTS_N) y[long(pair) * EXPERTS_N + row] = port_activate(EXPERTS_ACTIVATION, out[0]) * out[1];
}

// The grid is (blocks of rows, tokens). MATVEC_K is EXPERTS_TOP times I: x [T, EXPERTS_TOP * I] is what
// experts_up wrote.
[[max_total_threads_per_threadgroup(MATVEC_THREADS)]]
kernel void experts_down(device const uint* w [[buffer(0)]],
                         device const WEIGHT_SCALE* scales [[buffer(1)]],
                         device const WEIGHT_SCALE* biases [[buffer(2)]],
                         device const int* experts [[buffer(3)]],
                         device const float* scores [[buffer(4)]],
                         device const float* x [[buffer(5)]],
                         device const float* extra [[buffer(6)]],
                         device float* y [[buffer(7)]],
                         device const int* step [[buffer(8)]],
                         uint3 group [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, stage, MATVEC_STAGE);
  TG_ARRAY(float, shared, MATVEC_SHARED(1));
  port_wait();
  const int token = int(group.y);
  if (token >= step[STEP_TOKENS]) return;
  matvec_place at;
  matvec_find(at, thread_index);
  const int row0 = int(group.x) * MATVEC_BLOCK + matvec_row(at);
  float sums[MATVEC_OUTS];
  float squares[1];
  float out[1];
  matvec_sums<1, EXPERTS_TOP>(w, scales, biases, w, scales, biases, EXPERTS_N, row0, experts + token * EXPERTS_TOP,
                              scores + token * EXPERTS_TOP, x + long(token) * MATVEC_K, 1, (device const MATVEC_NORM_T*)x, stage, at, sums, squares);
  if (!matvec_finish<1>(sums, squares, shared, at, out)) return;
  const int row = row0 + at.lane;
  if (row >= EXPERTS_N) return;
  const long to = long(token) * EXPERTS_N + row;
#if EXPERTS_RESIDUAL
  out[0] += extra[to];
#endif
  y[to] = out[0];
}
