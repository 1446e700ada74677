#include "port.h"
#include "weights.h"
#include "lanes.h"
#include "direct.h"
// The products of experts_matmul.metal, for experts of some tokens each: the same buffers, x and h in the order of lanes, the same
// tiles, results that differ by roundings.
// A tile's vectors are those of an expert's tokens, by their places in the order of tiles.
//
// Every threadgroup of the first product waits for the kernel that sorts, and only then lets the second product start. So the tiles
// are in device memory when the second product starts. It reads its tile and its first weights before it waits for the first product.
#define PORT_WAITS
#define PORT_RELEASES
// Tiles of eight tokens need fewer registers. 8 tokens of Qwen3.5-35B-A3B have 14 simdgroups for each multiprocessor of an H100. With room
// for 16, all of them run at the same time.
#define DIRECT_ROOM (MATMUL_BM == 8 ? 16 : 12)

#ifndef EXPERTS_PARTS
#define EXPERTS_PARTS 2                 // experts of a token, the shared one included
#define EXPERTS_N 64                    // rows of one matrix of the stack: a multiple of 16, of 32 for experts_direct_down
#define EXPERTS_ACTIVATION ACTIVATION_SILU
#define EXPERTS_SHARED 0                // 1: there is a shared expert, number EXPERTS_COUNT, with weights of its own
#define EXPERTS_COUNT 8                 // experts of the stack
#endif

// Gate and up are the simdgroup's two tiles of rows.
template <int EIGHTS>
inline void direct_up(thread const direct_weight* rows, device const int* order, device const bfloat* x, device bfloat* h, int first, int end, int column, int lane) {
  direct_vector from[EIGHTS];
  float sums[EIGHTS * 8];
  UNROLL for (int n = 0; n < EIGHTS; n++) {
    const int pair = order[min(first + n * 8 + lane / 4, end - 1)];
    from[n] = x + long(pair / EXPERTS_PARTS) * MATMUL_K + lane % 4 * 8;
  }
  direct_multiply<EIGHTS, false>(rows, from, lane, sums);
  UNROLL for (int n = 0; n < EIGHTS; n++) {
    UNROLL for (int e = 0; e < 4; e++) {
      const int place = direct_place(first + n * 8, lane, e);
      if (place < end) h[long(place) * EXPERTS_N + lanes_place(column + direct_at(lane, e))] = bfloat(port_activate(EXPERTS_ACTIVATION, sums[n * 8 + e]) * sums[n * 8 + 4 + e]);
    }
  }
}

// h [pairs in order, N] = activation(gate x) * (up x); x [T, K].
// grid: N / (16 WN), tiles
// arguments: experts_matmul_up
[[max_total_threads_per_threadgroup(DIRECT_BOUND)]]
kernel void experts_direct_up(device const uint* w0 [[buffer(0)]],
                              device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                              device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                              device const uint* w1 [[buffer(3)]],
                              device const WEIGHT_SCALE* scales1 [[buffer(4)]],
                              device const WEIGHT_SCALE* biases1 [[buffer(5)]],
                              device const int* order [[buffer(6)]],
                              device const int* tiles [[buffer(7)]],
                              device const bfloat* x [[buffer(8)]],
                              device bfloat* h [[buffer(9)]],
                              device const uint* v0 [[buffer(10)]],
                              device const WEIGHT_SCALE* vscales0 [[buffer(11)]],
                              device const WEIGHT_SCALE* vbiases0 [[buffer(12)]],
                              device const uint* v1 [[buffer(13)]],
                              device const WEIGHT_SCALE* vscales1 [[buffer(14)]],
                              device const WEIGHT_SCALE* vbiases1 [[buffer(15)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint thread_index [[thread_index_in_threadgroup]]) {
  port_wait();
  port_release();
  int expert = tiles[group.y * 4];
  const int first = tiles[group.y * 4 + 1];
  const int end = tiles[group.y * 4 + 2];
  const int lane = int(thread_index % 32);
  const int column = (int(group.x) * MATMUL_WN + int(thread_index / 32)) * 16;
  if (expert < 0 || column >= EXPERTS_N) return;
  direct_weight rows[DIRECT_ROWS];
  if (EXPERTS_SHARED && expert == EXPERTS_COUNT) {
    w0 = v0, scales0 = vscales0, biases0 = vbiases0;
    w1 = v1, scales1 = vscales1, biases1 = vbiases1;
    expert = 0;
  }
  UNROLL for (int r = 0; r < DIRECT_ROWS; r++) {
    const long row = long(expert) * EXPERTS_N + column + lane / 4 + r % 2 * 8;
    direct_row(rows[r], r < 2 ? w0 : w1, r < 2 ? scales0 : scales1, r < 2 ? biases0 : biases1, row, lane);
  }
  switch ((end - first + 7) / 8) {
    case 1: direct_up<1>(rows, order, x, h, first, end, column, lane); break;
#if DIRECT_EIGHTS > 1
    case 2: direct_up<2>(rows, order, x, h, first, end, column, lane); break;
#endif
#if DIRECT_EIGHTS > 2
    case 3: direct_up<3>(rows, order, x, h, first, end, column, lane); break;
#endif
#if DIRECT_EIGHTS > 3
    case 4: direct_up<4>(rows, order, x, h, first, end, column, lane); break;
#endif
  }
}

// The simdgroup's two tiles are 32 rows.
template <int EIGHTS>
inline void direct_down(thread const direct_weight* rows, device const int* order, device const bfloat* h, device float* y, int first, int end, int column, int lane) {
  direct_vector from[EIGHTS];
  float sums[EIGHTS * 8];
  UNROLL for (int n = 0; n < EIGHTS; n++) from[n] = h + long(min(first + n * 8 + lane / 4, end - 1)) * MATMUL_K + lane % 4 * 8;
  direct_multiply<EIGHTS, true>(rows, from, lane, sums);
  UNROLL for (int n = 0; n < EIGHTS; n++) {
    UNROLL for (int odd = 0; odd < 2; odd++) {
      const int place = direct_place(first + n * 8, lane, odd);
      if (place >= end) continue;
      device float* to = y + long(order[place]) * EXPERTS_N + column;
      UNROLL for (int m = 0; m < 2; m++) {
        UNROLL for (int e = odd; e < 4; e += 2) to[m * 16 + direct_at(lane, e)] = sums[(n * 2 + m) * 4 + e];
      }
    }
  }
}

// y [pairs, N] = down h, the pairs in their own order again.
// grid: N / (32 WN), tiles
// arguments: experts_matmul_down
[[max_total_threads_per_threadgroup(DIRECT_BOUND)]]
kernel void experts_direct_down(device const uint* w [[buffer(0)]],
                                device const WEIGHT_SCALE* scales [[buffer(1)]],
                                device const WEIGHT_SCALE* biases [[buffer(2)]],
                                device const int* order [[buffer(3)]],
                                device const int* tiles [[buffer(4)]],
                                device const bfloat* h [[buffer(5)]],
                                device float* y [[buffer(6)]],
                                device const uint* v [[buffer(7)]],
                                device const WEIGHT_SCALE* vscales [[buffer(8)]],
                                device const WEIGHT_SCALE* vbiases [[buffer(9)]],
                                uint3 group [[threadgroup_position_in_grid]],
                                uint thread_index [[thread_index_in_threadgroup]]) {
  port_release();
  int expert = port_published(tiles + group.y * 4);
  const int first = port_published(tiles + group.y * 4 + 1);
  const int end = port_published(tiles + group.y * 4 + 2);
  const int lane = int(thread_index % 32);
  const int column = (int(group.x) * MATMUL_WN + int(thread_index / 32)) * 32;
  if (expert < 0 || column >= EXPERTS_N) {
    port_wait();
    return;
  }
  direct_weight rows[DIRECT_ROWS];
  if (EXPERTS_SHARED && expert == EXPERTS_COUNT) {
    w = v, scales = vscales, biases = vbiases;
    expert = 0;
  }
  UNROLL for (int r = 0; r < DIRECT_ROWS; r++) direct_row(rows[r], w, scales, biases, long(expert) * EXPERTS_N + column + lane / 4 + r * 8, lane);
  switch ((end - first + 7) / 8) {
    case 1: direct_down<1>(rows, order, h, y, first, end, column, lane); break;
#if DIRECT_EIGHTS > 1
    case 2: direct_down<2>(rows, order, h, y, first, end, column, lane); break;
#endif
#if DIRECT_EIGHTS > 2
    case 3: direct_down<3>(rows, order, h, y, first, end, column, lane); break;
#endif
#if DIRECT_EIGHTS > 3
    case 4: direct_down<4>(rows, order, h, y, first, end, column, lane); break;
#endif
  }
}
