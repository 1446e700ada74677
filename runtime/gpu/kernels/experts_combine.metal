#include "port.h"
#include "lanes.h"
// Adds up what the experts of each token gave: y [T, N] = sum over a token's pairs of scores [T, SORT_TOP] * x [T, SORT_PARTS, N], plus
// extra. With SORT_SHARED the score of the shared expert, which stands before the others, is the sigmoid of the token's gate.

#define PORT_WAITS
#ifndef SORT_TOP         // experts of a token
#define SORT_TOP 2
#endif
#ifndef SORT_SHARED      // 1: a shared expert stands before those of a token
#define SORT_SHARED 0
#endif
#ifndef COMBINE_N        // columns, a multiple of 4
#define COMBINE_N 64
#endif
#ifndef COMBINE_RESIDUAL // extra [T, COMBINE_N] is added
#define COMBINE_RESIDUAL 0
#endif
#ifndef COMBINE_THREADS
#define COMBINE_THREADS 32
#endif
#ifndef COMBINE_EPS      // of the norm
#define COMBINE_EPS 1e-6f
#endif
#define SORT_PARTS (SORT_TOP + SORT_SHARED)
// Rows of x that a thread reads before it uses any. Nine are eight experts and a shared one.
#define COMBINE_AHEAD (SORT_PARTS < 10 ? SORT_PARTS : 8)

// Returns four columns of the sum of a token.
inline float4 combine_sum(device const float* x, device const float* scores, device const float* extra, device const float* gates, int token, int column) {
  float4 sum = float4(0.0f, 0.0f, 0.0f, 0.0f);
#if COMBINE_RESIDUAL
  sum = *(device const float4*)(extra + long(token) * COMBINE_N + column);
#endif
  x += long(token) * SORT_PARTS * COMBINE_N + column;
  scores += token * SORT_TOP;
  UNROLL for (int begin = 0; begin < SORT_PARTS; begin += COMBINE_AHEAD) {
    float4 v[COMBINE_AHEAD];  // all are read before any is used
    float score[COMBINE_AHEAD];
    UNROLL for (int j = 0; j < COMBINE_AHEAD; j++) {
      if (begin + j >= SORT_PARTS) break;
      v[j] = *(device const float4*)(x + long(begin + j) * COMBINE_N);
      score[j] = begin + j < SORT_SHARED ? port_sigmoid(gates[token]) : scores[begin + j - SORT_SHARED];
    }
    UNROLL for (int j = 0; j < COMBINE_AHEAD; j++) {
      if (begin + j < SORT_PARTS) sum = sum + v[j] * score[j];
    }
  }
  return sum;
}

// The grid is (columns, tokens).
[[max_total_threads_per_threadgroup(COMBINE_THREADS)]]
kernel void experts_combine(device const float* x [[buffer(0)]],
                            device const float* scores [[buffer(1)]],
                            device const float* extra [[buffer(2)]],  // absent: x
                            device float* y [[buffer(3)]],
                            device const int* step [[buffer(4)]],
                            device const float* gates [[buffer(5)]],  // absent: scores
                            uint3 group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]]) {
  const int token = int(group.y);
  const int column = int(group.x * COMBINE_THREADS + thread_index) * 4;
  const int tokens = step[STEP_TOKENS];  // the host wrote it before the sequence
  port_wait();
  if (token >= tokens || column >= COMBINE_N) return;
  *(device float4*)(y + long(token) * COMBINE_N + column) = combine_sum(x, scores, extra, gates, token, column);
}

// experts_combine_norm also writes the rows that the next product takes: normed y / rms(y) * norm, with rms(y) = sqrt(mean(y^2) + eps),
// in bf16 in the order of lanes. The grid has a threadgroup for each token, and a thread has four columns.
[[max_total_threads_per_threadgroup(COMBINE_THREADS)]]
kernel void experts_combine_norm(device const float* x [[buffer(0)]],
                                 device const float* scores [[buffer(1)]],
                                 device const float* extra [[buffer(2)]],  // absent: x
                                 device float* y [[buffer(3)]],
                                 device const float* norm [[buffer(4)]],
                                 device bfloat* normed [[buffer(5)]],
                                 device const int* step [[buffer(6)]],
                                 device const float* gates [[buffer(7)]],  // absent: scores
                                 uint group [[threadgroup_position_in_grid]],
                                 uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, squares, COMBINE_THREADS / 32);
  const int token = int(group);
  const int column = int(thread_index) * 4;
  const bool is = column < COMBINE_N;
  const float4 weight = port_four(norm + (is ? column : 0));
  const int tokens = step[STEP_TOKENS];  // the host wrote it before the sequence
  port_wait();
  if (token >= tokens) return;
  float4 sum = float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (is) {
    sum = combine_sum(x, scores, extra, gates, token, column);
    *(device float4*)(y + long(token) * COMBINE_N + column) = sum;
  }
  const float part = simd_sum(sum[0] * sum[0] + sum[1] * sum[1] + sum[2] * sum[2] + sum[3] * sum[3]);
  if (thread_index % 32 == 0) squares[thread_index / 32] = part;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 0.0f;
  UNROLL for (int i = 0; i < COMBINE_THREADS / 32; i++) total += squares[i];
  const float factor = precise::rsqrt(total / float(COMBINE_N) + COMBINE_EPS);
  if (!is) return;
  UNROLL for (int j = 0; j < 4; j++) normed[long(token) * COMBINE_N + lanes_place(column + j)] = bfloat(sum[j] * factor * weight[j]);
}
