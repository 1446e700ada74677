#include "port.h"
#include "weights.h"
#include "matmul.h"
#include "lanes.h"
#include "epilogue.h"
// y = x W^T for many rows of x, W [N, K] stored: with an epilogue, or a gated pair of weights. The grid is (blocks of
// columns, blocks of rows); blocks past step[STEP_TOKENS] do nothing. x is bf16, as matmul_prepare writes it, or f32
// where MATMUL_EXACT is 1.

#ifndef PREPARE_NORM       // as MATVEC_NORM
#define PREPARE_NORM 0
#endif
#ifndef PREPARE_EPS
#define PREPARE_EPS 1e-6f
#endif
#ifndef PREPARE_EIGHTS     // eights of rows of a tile, 0 for rows as they are
#define PREPARE_EIGHTS 0
#endif
#ifndef PREPARE_LANES      // rows in the order of lanes
#define PREPARE_LANES 0
#endif
#ifndef PREPARE_THREADS
#define PREPARE_THREADS 128
#endif
#if PREPARE_NORM == 1
#define PREPARE_NORM_T bfloat
#else
#define PREPARE_NORM_T float
#endif

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

// Number k of a row, times the weight of the norm where there is one.
inline float prepare_scaled(float v, device const PREPARE_NORM_T* norm, int k) {
#if PREPARE_NORM == 1 || PREPARE_NORM == 2
  return v * float(norm[k]);
#else
  return v;
#endif
}

// Rows of x f32, normed, in the type of the tiles. The grid is rows. With PREPARE_EIGHTS they are packed for
// matmul_packed.metal, which says how; with PREPARE_LANES they are in the order of lanes.
[[max_total_threads_per_threadgroup(PREPARE_THREADS)]]
kernel void matmul_prepare(device const float* x [[buffer(0)]],
                           device const PREPARE_NORM_T* norm [[buffer(1)]],  // absent: x
                           device MATMUL_T* y [[buffer(2)]],
                           device const int* step [[buffer(3)]],
                           uint row [[threadgroup_position_in_grid]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, partial, PREPARE_THREADS / 32);
  if (int(row) >= step[STEP_TOKENS]) return;
  device const float* from = x + long(row) * MATMUL_K;
  float factor = 1.0f;
#if PREPARE_NORM
  float squares = 0.0f;
  for (int i = int(thread_index); i < MATMUL_K / 4; i += PREPARE_THREADS) {
    const float4 v = ((device const float4*)from)[i];
    UNROLL for (int j = 0; j < 4; j++) squares += v[j] * v[j];
  }
  squares = simd_sum(squares);
  if (thread_index % 32 == 0) partial[thread_index / 32] = squares;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 0.0f;
  UNROLL for (int i = 0; i < PREPARE_THREADS / 32; i++) total += partial[i];
  factor = precise::rsqrt(total / float(MATMUL_K) + PREPARE_EPS);
#endif
#if PREPARE_EIGHTS
  // Eight numbers of a row stand together: for each of four lanes two of its word number piece / 4, four columns apart.
  for (int i = int(thread_index); i < MATMUL_K / 8; i += PREPARE_THREADS) {
    const int block = i / 16, piece = i % 16;
    const int column = block * 128 + piece / 4 * 8 + piece % 4;
    MATMUL_T out[8];
    UNROLL for (int j = 0; j < 8; j++) {
      const int k = column + j / 2 * 32 + j % 2 * 4;
      out[j] = MATMUL_T(prepare_scaled(from[k] * factor, norm, k));
    }
    const long tile = long(row) / (PREPARE_EIGHTS * 8);
    device MATMUL_T* to = y + ((tile * (MATMUL_K / 8) + i) * (PREPARE_EIGHTS * 8) + row % (PREPARE_EIGHTS * 8)) * 8;
    UNROLL for (int j = 0; j < 8; j++) to[j] = out[j];
  }
#else
  for (int i = int(thread_index); i < MATMUL_K / 4; i += PREPARE_THREADS) {
    const float4 v = ((device const float4*)from)[i] * factor;
    UNROLL for (int j = 0; j < 4; j++) {
      const int k = 4 * i + j;
      y[long(row) * MATMUL_K + (PREPARE_LANES ? lanes_place(k) : k)] = MATMUL_T(prepare_scaled(v[j], norm, k));
    }
  }
#endif
}
