#include "port.h"
#include "weights.h"
// Looks up the rows of a stored weight [N, K] by token number, multiplied by EMBED_MULTIPLIER, in fp32. A thread
// computes eight columns of one token. The grid is (columns, tokens).

#ifndef EMBED_N
#define EMBED_N 64
#endif
#ifndef EMBED_K
#define EMBED_K 64
#endif
#ifndef EMBED_THREADS
#define EMBED_THREADS 64
#endif
#ifndef EMBED_MULTIPLIER
#define EMBED_MULTIPLIER 1.0f
#endif

[[max_total_threads_per_threadgroup(EMBED_THREADS)]]
kernel void embedding(device const uint* w [[buffer(0)]],
                      device const WEIGHT_SCALE* scales [[buffer(1)]],
                      device const WEIGHT_SCALE* biases [[buffer(2)]],
                      device const int* tokens [[buffer(3)]],
                      device float* y [[buffer(4)]],
                      device const int* step [[buffer(5)]],
                      uint3 group [[threadgroup_position_in_grid]],
                      uint thread_index [[thread_index_in_threadgroup]]) {
  const int k = int(group.x * EMBED_THREADS + thread_index) * 8;
  const int token = int(group.y);
  if (token >= step[STEP_TOKENS] || k >= EMBED_K) return;
  int row = tokens[token];
  if (row < 0) row += EMBED_N;  // negative numbers count from the end
  row = clamp(row, 0, EMBED_N - 1);
  float v[8];
  weight_read8(w, scales, biases, row, k, EMBED_K, v);
  device float4* out = (device float4*)(y + long(token) * EMBED_K + k);
  UNROLL for (int i = 0; i < 2; i++) {
    out[i] = float4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]) * EMBED_MULTIPLIER;
  }
}
