#include "port.h"
#include "sort.h"
// Sorts token-expert pairs by expert, so that an expert's weights can be multiplied with all of its tokens at once. A second kernel
// weights the results and adds them up.

#define PORT_WAITS
#ifndef COMBINE_N        // columns, a multiple of 4
#define COMBINE_N 64
#endif
#ifndef COMBINE_RESIDUAL // extra [T, COMBINE_N] is added
#define COMBINE_RESIDUAL 0
#endif
#ifndef COMBINE_THREADS
#define COMBINE_THREADS 32
#endif
// Rows of x that a thread reads before it uses any. Nine are eight experts and a shared one.
#define COMBINE_AHEAD (SORT_PARTS < 10 ? SORT_PARTS : 8)

// experts_sort, with one threadgroup: sort.h says what order and tiles get.
[[max_total_threads_per_threadgroup(SORT_THREADS)]]
kernel void experts_sort(device const int* experts [[buffer(0)]],
                         device int* order [[buffer(1)]],
                         device int* tiles [[buffer(2)]],
                         device const int* step [[buffer(3)]],
                         uint thread_index [[thread_index_in_threadgroup]],
                         uint simd [[simdgroup_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(ushort, counts, SORT_SIMDS * SORT_EXPERTS);
  TG_ARRAY(int, starts, SORT_EXPERTS);
  TG_ARRAY(int, totals, 2 * SORT_SIMDS);
  const int tokens = step[STEP_TOKENS];  // the host wrote it before the sequence
  sort_clear(counts, thread_index);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  port_wait();
  sort_pairs(experts, tokens, order, tiles, thread_index, simd, lane, counts, starts, totals);
}

// experts_combine: y [T, N] = sum over a token's pairs of scores [T, SORT_TOP] * x [T, SORT_PARTS, N], plus extra. With
// SORT_SHARED the score of the shared expert is the sigmoid of the token's gate. The grid is (columns, tokens).
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
  *(device float4*)(y + long(token) * COMBINE_N + column) = sum;
}
