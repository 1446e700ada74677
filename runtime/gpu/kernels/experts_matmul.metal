#include "port.h"
#include "weights.h"
#include "matmul.h"
// Mixtures of experts for many tokens: an expert is multiplied with all of its tokens. Pairs are sorted by expert
// (experts_sort); a tile is a block of rows of one expert. The grid is (blocks of columns, tiles).

#ifndef EXPERTS_PARTS     // experts of a token, the shared one included
#define EXPERTS_PARTS 2
#endif
#ifndef EXPERTS_N         // rows of one matrix of the stack
#define EXPERTS_N 64
#endif
#ifndef EXPERTS_ACTIVATION
#define EXPERTS_ACTIVATION ACTIVATION_SILU
#endif
#ifndef EXPERTS_SHARED    // 1: there is a shared expert, number EXPERTS_COUNT, with weights of its own
#define EXPERTS_SHARED 0
#endif
#ifndef EXPERTS_COUNT     // experts of the stack
#define EXPERTS_COUNT 8
#endif

// h [pairs in order, N] = activation(gate x) * (up x), in the type of the tiles; x [T, K].
[[max_total_threads_per_threadgroup(MATMUL_THREADS)]]
kernel void experts_matmul_up(device const uint* w0 [[buffer(0)]],
                              device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                              device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                              device const uint* w1 [[buffer(3)]],
                              device const WEIGHT_SCALE* scales1 [[buffer(4)]],
                              device const WEIGHT_SCALE* biases1 [[buffer(5)]],
                              device const int* order [[buffer(6)]],
                              device const int* tiles [[buffer(7)]],
                              device const MATMUL_T* x [[buffer(8)]],
                              device MATMUL_T* h [[buffer(9)]],
                              device const uint* v0 [[buffer(10)]],  // absent: w0
                              device const WEIGHT_SCALE* vscales0 [[buffer(11)]],
                              device const WEIGHT_SCALE* vbiases0 [[buffer(12)]],
                              device const uint* v1 [[buffer(13)]],  // absent: w1
                              device const WEIGHT_SCALE* vscales1 [[buffer(14)]],
                              device const WEIGHT_SCALE* vbiases1 [[buffer(15)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(MATMUL_T, xs, MATMUL_XS);
  TG_ARRAY(MATMUL_T, ws, MATMUL_WS);
  int expert = tiles[group.y * 4];
  const int first = tiles[group.y * 4 + 1];
  const int end = tiles[group.y * 4 + 2];
  const int col0 = int(group.x) * (MATMUL_BN / 2);
  if (expert < 0) return;
  int rows[MATMUL_XV];
  UNROLL for (int i = 0; i < MATMUL_XV; i++) {
    rows[i] = order[min(first + (int(thread_index) + i * MATMUL_THREADS) / MATMUL_ROW, end - 1)] / EXPERTS_PARTS;
  }
  if (EXPERTS_SHARED && expert == EXPERTS_COUNT) {
    w0 = v0, scales0 = vscales0, biases0 = vbiases0;
    w1 = v1, scales1 = vscales1, biases1 = vbiases1;
    expert = 0;
  }
  const long words = long(expert) * EXPERTS_N * WEIGHT_WORDS(MATMUL_K);
  const long affine = long(expert) * EXPERTS_N * (MATMUL_K / WEIGHT_GROUP);
  matmul_tile sums[MATMUL_TILES];
  matmul_block<2>(w0 + words, scales0 + affine, biases0 + affine, w1 + words, scales1 + affine, biases1 + affine, EXPERTS_N, col0, x, rows, xs, ws, thread_index, sums);
  UNROLL for (int i = 0; i < MATMUL_TM; i++) {
    UNROLL for (int j = 0; j < MATMUL_TN; j += 2) {
      UNROLL for (short e = 0; e < 8; e++) {
        const short2 at = matmul_coord(thread_index % 32, e);
        const int row = first + matmul_row(thread_index / 32) + i * 16 + at.x;
        const int col = col0 + matmul_column(thread_index / 32) / 2 + j * 8 + at.y;
        if (row < end && col < EXPERTS_N) {
          const float gate = matmul_get(sums[i * MATMUL_TN + j], e);
          const float up = matmul_get(sums[i * MATMUL_TN + j + 1], e);
          h[long(row) * EXPERTS_N + col] = MATMUL_T(port_activate(EXPERTS_ACTIVATION, gate) * up);
        }
      }
    }
  }
}

// y [pairs, N] = down h, the pairs in their own order again.
[[max_total_threads_per_threadgroup(MATMUL_THREADS)]]
kernel void experts_matmul_down(device const uint* w [[buffer(0)]],
                                device const WEIGHT_SCALE* scales [[buffer(1)]],
                                device const WEIGHT_SCALE* biases [[buffer(2)]],
                                device const int* order [[buffer(3)]],
                                device const int* tiles [[buffer(4)]],
                                device const MATMUL_T* h [[buffer(5)]],
                                device float* y [[buffer(6)]],
                                device const uint* v [[buffer(7)]],  // absent: w
                                device const WEIGHT_SCALE* vscales [[buffer(8)]],
                                device const WEIGHT_SCALE* vbiases [[buffer(9)]],
                                uint3 group [[threadgroup_position_in_grid]],
                                uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(MATMUL_T, xs, MATMUL_XS);
  TG_ARRAY(MATMUL_T, ws, MATMUL_WS);
  int expert = tiles[group.y * 4];
  const int first = tiles[group.y * 4 + 1];
  const int end = tiles[group.y * 4 + 2];
  const int col0 = int(group.x) * MATMUL_BN;
  if (expert < 0) return;
  int rows[MATMUL_XV];
  UNROLL for (int i = 0; i < MATMUL_XV; i++) {
    rows[i] = min(first + (int(thread_index) + i * MATMUL_THREADS) / MATMUL_ROW, end - 1);
  }
  if (EXPERTS_SHARED && expert == EXPERTS_COUNT) {
    w = v, scales = vscales, biases = vbiases;
    expert = 0;
  }
  const long words = long(expert) * EXPERTS_N * WEIGHT_WORDS(MATMUL_K);
  const long affine = long(expert) * EXPERTS_N * (MATMUL_K / WEIGHT_GROUP);
  matmul_tile sums[MATMUL_TILES];
  matmul_block<1>(w + words, scales + affine, biases + affine, w + words, scales + affine, biases + affine, EXPERTS_N, col0, h, rows, xs, ws, thread_index, sums);
  UNROLL for (int i = 0; i < MATMUL_TM; i++) {
    UNROLL for (short e = 0; e < 8; e++) {
      const short2 at = matmul_coord(thread_index % 32, e);
      const int row = first + matmul_row(thread_index / 32) + i * 16 + at.x;
      if (row < end) {
        device float* to = y + long(order[row]) * EXPERTS_N;
        UNROLL for (int j = 0; j < MATMUL_TN; j++) {
          const int col = col0 + matmul_column(thread_index / 32) + j * 16 + matmul_coord(thread_index % 32, e).y;
          if (col < EXPERTS_N) to[col] = matmul_get(sums[i * MATMUL_TN + j], e);
        }
      }
    }
  }
}
