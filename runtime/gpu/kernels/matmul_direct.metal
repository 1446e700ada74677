#include "port.h"
#include "weights.h"
#include "lanes.h"
#include "direct.h"
#include "epilogue.h"
// The products of matmul.metal for up to some hundred rows of x: the same buffers but for x, results that differ by roundings. There the
// weight is most of what is read, and it goes from device memory to the registers that multiply it.
//
// The grid is (blocks of rows of x, blocks of columns of y), so that threadgroups which read the same rows of the weight
// run one behind the other. A threadgroup has MATMUL_WN sets of DIRECT_SPLIT simdgroups. A set makes 32 columns of y, or 16 of a
// gated pair; each simdgroup multiplies its part of the columns of x, and the set adds up the parts in threadgroup memory.
//
// Weights, which no kernel writes, are read before the wait for the kernels that make x.
#define PORT_WAITS
#define DIRECT_ROOM 12
#define DIRECT_SUMS (DIRECT_SPLIT > 1 ? DIRECT_SIMDS * DIRECT_EIGHTS * 8 * 32 : 1)

// Whether a simdgroup writes the two results of pair n * 4 + e: element e of the n-th eight of rows of x, of both tiles of rows of
// the weight.
inline bool direct_mine(int pair, int simd) { return DIRECT_SPLIT == 1 || pair % DIRECT_SPLIT == simd % DIRECT_SPLIT; }

// sums [EIGHTS][2 tiles][4] are of EIGHTS times eight rows of x, from row0 on. Where simdgroups share columns, they are whole where
// direct_mine says so, and parts elsewhere.
template <int EIGHTS>
inline void direct_rows(thread const direct_weight* rows, device const bfloat* x, int row0, int tokens, int simd, int lane, threadgroup float* parts, thread float* sums) {
  direct_vector from[EIGHTS];
  const int column = simd % DIRECT_SPLIT * DIRECT_COLUMNS + lane % 4 * 8;
  UNROLL for (int n = 0; n < EIGHTS; n++) from[n] = x + long(min(row0 + n * 8 + lane / 4, tokens - 1)) * MATMUL_K + column;
  direct_multiply<EIGHTS, true>(rows, from, lane, sums);
#if DIRECT_SPLIT > 1
  const int simd_parts = EIGHTS * 8 * 32;
  UNROLL for (int i = 0; i < EIGHTS * 8; i++) parts[simd * simd_parts + i * 32 + lane] = sums[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const int first = simd / DIRECT_SPLIT * DIRECT_SPLIT * simd_parts + lane;
  UNROLL for (int i = 0; i < EIGHTS * 8; i++) {
    if (direct_mine(i / 8 * 4 + i % 4, simd)) {
      float sum = 0.0f;
      UNROLL for (int part = 0; part < DIRECT_SPLIT; part++) sum += parts[first + part * simd_parts + i * 32];
      sums[i] = sum;
    }
  }
#endif
}

// The rows of a weight that a lane reads, from row first on, of which there are MATMUL_N: behind them the last one again.
inline void direct_lane(thread direct_weight* rows, device const uint* w, device const WEIGHT_SCALE* scales, device const WEIGHT_SCALE* biases, int first, int count, int simd, int lane) {
  const int part = simd % DIRECT_SPLIT;
  UNROLL for (int r = 0; r < count; r++) {
    direct_row(rows[r], w, scales, biases, min(first + lane / 4 + r * 8, MATMUL_N - 1), lane);
    rows[r].w += part * WEIGHT_WORDS(DIRECT_COLUMNS);
    rows[r].scales += part * (DIRECT_COLUMNS / WEIGHT_GROUP);
    rows[r].biases += part * (DIRECT_COLUMNS / WEIGHT_GROUP);
  }
}

template <int EIGHTS>
inline void direct_linear(thread const direct_weight* rows, device const bfloat* x, device const float* extra, device MATMUL_OUT* y, int row0, int tokens, int column, int simd, int lane, threadgroup float* parts) {
  float sums[EIGHTS * 8];
  direct_rows<EIGHTS>(rows, x, row0, tokens, simd, lane, parts, sums);
  UNROLL for (int n = 0; n < EIGHTS; n++) {
    UNROLL for (int e = 0; e < 4; e++) {
      const int row = direct_place(row0 + n * 8, lane, e);
      if (row >= tokens || !direct_mine(n * 4 + e, simd)) continue;
      UNROLL for (int m = 0; m < 2; m++) {
        const int col = column + m * 16 + direct_at(lane, e);
        if (col >= MATMUL_N) continue;
        matmul_write(y, extra, row, col, sums[(n * 2 + m) * 4 + e]);
      }
    }
  }
}

// y [T, N] = x W^T; x [T, K].
// grid: T / BM, N / (32 WN)
// arguments: matmul
[[max_total_threads_per_threadgroup(DIRECT_BOUND)]]
kernel void matmul_direct(device const uint* w [[buffer(0)]],
                          device const WEIGHT_SCALE* scales [[buffer(1)]],
                          device const WEIGHT_SCALE* biases [[buffer(2)]],
                          device const bfloat* x [[buffer(3)]],
                          device const float* extra [[buffer(4)]],
                          device MATMUL_OUT* y [[buffer(5)]],
                          device const int* step [[buffer(6)]],
                          device float* partial [[buffer(7)]],
                          device uint* arrivals [[buffer(8)]],
                          uint3 group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, parts, DIRECT_SUMS);
  const int tokens = step[STEP_TOKENS];
  const int row0 = int(group.x) * MATMUL_BM;
  const int lane = int(thread_index % 32);
  const int simd = int(thread_index / 32);
  const int column = (int(group.y) * MATMUL_WN + simd / DIRECT_SPLIT) * 32;
  if (row0 >= tokens) return;
  direct_weight rows[DIRECT_ROWS];
  direct_lane(rows, w, scales, biases, column, DIRECT_ROWS, simd, lane);
  switch (min((tokens - row0 + 7) / 8, DIRECT_EIGHTS)) {
    case 1: direct_linear<1>(rows, x, extra, y, row0, tokens, column, simd, lane, parts); break;
#if DIRECT_EIGHTS > 1
    case 2: direct_linear<2>(rows, x, extra, y, row0, tokens, column, simd, lane, parts); break;
#endif
#if DIRECT_EIGHTS > 2
    case 3: direct_linear<3>(rows, x, extra, y, row0, tokens, column, simd, lane, parts); break;
#endif
#if DIRECT_EIGHTS > 3
    case 4: direct_linear<4>(rows, x, extra, y, row0, tokens, column, simd, lane, parts); break;
#endif
  }
}

// Gate and up are the two tiles of rows.
template <int EIGHTS>
inline void direct_glu(thread const direct_weight* rows, device const bfloat* x, device MATMUL_OUT* y, int row0, int tokens, int column, int simd, int lane, threadgroup float* parts) {
  float sums[EIGHTS * 8];
  direct_rows<EIGHTS>(rows, x, row0, tokens, simd, lane, parts, sums);
  UNROLL for (int n = 0; n < EIGHTS; n++) {
    UNROLL for (int e = 0; e < 4; e++) {
      const int row = direct_place(row0 + n * 8, lane, e);
      const int col = column + direct_at(lane, e);
      if (row >= tokens || col >= MATMUL_N || !direct_mine(n * 4 + e, simd)) continue;
      matmul_write_glu(y, row, col, sums[n * 8 + e], sums[n * 8 + 4 + e]);
    }
  }
}

// y [T, N] = activation(x gate^T) * (x up^T); x [T, K].
// grid: T / BM, N / (16 WN)
// arguments: matmul_glu
[[max_total_threads_per_threadgroup(DIRECT_BOUND)]]
kernel void matmul_direct_glu(device const uint* w0 [[buffer(0)]],
                              device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                              device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                              device const uint* w1 [[buffer(3)]],
                              device const WEIGHT_SCALE* scales1 [[buffer(4)]],
                              device const WEIGHT_SCALE* biases1 [[buffer(5)]],
                              device const bfloat* x [[buffer(6)]],
                              device MATMUL_OUT* y [[buffer(7)]],
                              device const int* step [[buffer(8)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, parts, DIRECT_SUMS);
  const int tokens = step[STEP_TOKENS];
  const int row0 = int(group.x) * MATMUL_BM;
  const int lane = int(thread_index % 32);
  const int simd = int(thread_index / 32);
  const int column = (int(group.y) * MATMUL_WN + simd / DIRECT_SPLIT) * 16;
  if (row0 >= tokens) return;
  direct_weight rows[DIRECT_ROWS];
  direct_lane(rows, w0, scales0, biases0, column, 2, simd, lane);
  direct_lane(rows + 2, w1, scales1, biases1, column, 2, simd, lane);
  switch (min((tokens - row0 + 7) / 8, DIRECT_EIGHTS)) {
    case 1: direct_glu<1>(rows, x, y, row0, tokens, column, simd, lane, parts); break;
#if DIRECT_EIGHTS > 1
    case 2: direct_glu<2>(rows, x, y, row0, tokens, column, simd, lane, parts); break;
#endif
#if DIRECT_EIGHTS > 2
    case 3: direct_glu<3>(rows, x, y, row0, tokens, column, simd, lane, parts); break;
#endif
#if DIRECT_EIGHTS > 3
    case 4: direct_glu<4>(rows, x, y, row0, tokens, column, simd, lane, parts); break;
#endif
  }
}
