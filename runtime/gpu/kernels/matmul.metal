#include "port.h"
#include "weights.h"
#include "matmul.h"
#include "lanes.h"
#include "epilogue.h"
// y = x W^T for many rows of x, W [N, K] stored: with an epilogue, or a gated pair of weights. The grid is (blocks of
// columns, blocks of rows); blocks past step[STEP_TOKENS] do nothing. x is bf16, as matmul_prepare writes it, or f32
// where MATMUL_EXACT is 1.

// The rows of x that a thread reads of a block.
inline void matmul_rows(thread int* rows, int row0, int tokens, uint thread_index) {
  UNROLL for (int i = 0; i < MATMUL_XV; i++) {
    rows[i] = min(row0 + (int(thread_index) + i * MATMUL_THREADS) / MATMUL_ROW, tokens - 1);
  }
}

[[max_total_threads_per_threadgroup(MATMUL_THREADS)]]
kernel void matmul(device const uint* w [[buffer(0)]],
                   device const WEIGHT_SCALE* scales [[buffer(1)]],
                   device const WEIGHT_SCALE* biases [[buffer(2)]],
                   device const MATMUL_T* x [[buffer(3)]],
                   device const float* extra [[buffer(4)]],  // absent: x
                   device MATMUL_OUT* y [[buffer(5)]],
                   device const int* step [[buffer(6)]],
                   device float* partial [[buffer(7)]],    // absent: y
                   device uint* arrivals [[buffer(8)]],  // absent: y
                   uint3 group [[threadgroup_position_in_grid]],
                   uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(MATMUL_T, xs, MATMUL_XS);
  TG_ARRAY(MATMUL_T, ws, MATMUL_WS);
  const int tokens = step[STEP_TOKENS];
  const int row0 = int(group.y) * MATMUL_BM;
  const int col0 = int(group.x) * MATMUL_BN;
  if (row0 >= tokens) return;
  int rows[MATMUL_XV];
  matmul_rows(rows, row0, tokens, thread_index);
  matmul_tile sums[MATMUL_TILES];
  matmul_block<1>(w, scales, biases, w, scales, biases, MATMUL_N, col0, x, rows, xs, ws, thread_index, sums);
  UNROLL for (int i = 0; i < MATMUL_TM; i++) {
    UNROLL for (int j = 0; j < MATMUL_TN; j++) {
      UNROLL for (short e = 0; e < 8; e++) {
        const short2 at = matmul_coord(thread_index % 32, e);
        const int row = row0 + matmul_row(thread_index / 32) + i * 16 + at.x;
        const int col = col0 + matmul_column(thread_index / 32) + j * 16 + at.y;
        if (row < tokens && col < MATMUL_N) {
          matmul_write(y, extra, row, col, matmul_get(sums[i * MATMUL_TN + j], e));
        }
      }
    }
  }
}

[[max_total_threads_per_threadgroup(MATMUL_THREADS)]]
kernel void matmul_glu(device const uint* w0 [[buffer(0)]],
                       device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                       device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                       device const uint* w1 [[buffer(3)]],
                       device const WEIGHT_SCALE* scales1 [[buffer(4)]],
                       device const WEIGHT_SCALE* biases1 [[buffer(5)]],
                       device const MATMUL_T* x [[buffer(6)]],
                       device MATMUL_OUT* y [[buffer(7)]],
                       device const int* step [[buffer(8)]],
                       uint3 group [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(MATMUL_T, xs, MATMUL_XS);
  TG_ARRAY(MATMUL_T, ws, MATMUL_WS);
  const int tokens = step[STEP_TOKENS];
  const int row0 = int(group.y) * MATMUL_BM;
  const int col0 = int(group.x) * (MATMUL_BN / 2);
  if (row0 >= tokens) return;
  int rows[MATMUL_XV];
  matmul_rows(rows, row0, tokens, thread_index);
  matmul_tile sums[MATMUL_TILES];
  matmul_block<2>(w0, scales0, biases0, w1, scales1, biases1, MATMUL_N, col0, x, rows, xs, ws, thread_index, sums);
  UNROLL for (int i = 0; i < MATMUL_TM; i++) {
    UNROLL for (int j = 0; j < MATMUL_TN; j += 2) {
      UNROLL for (short e = 0; e < 8; e++) {
        const short2 at = matmul_coord(thread_index % 32, e);
        const int row = row0 + matmul_row(thread_index / 32) + i * 16 + at.x;
        const int col = col0 + matmul_column(thread_index / 32) / 2 + j * 8 + at.y;
        if (row < tokens && col < MATMUL_N) {
          const float gate = matmul_get(sums[i * MATMUL_TN + j], e);
          const float up = matmul_get(sums[i * MATMUL_TN + j + 1], e);
          matmul_write_glu(y, row, col, gate, up);
        }
      }
    }
  }
}
