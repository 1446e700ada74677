#include "port.h"
#include "weights.h"
// The products of experts_matmul.metal, for experts of some tokens each: the same buffers, the same tiles, results that differ by roundings. Nothing
// stands in threadgroup memory, and nobody waits for anybody: a simdgroup multiplies 32 rows of an expert's weights with all tokens of
// a tile. Its lanes read codes where they multiply them, DIRECT_BLOCKS blocks of columns ahead, so that weights are
// always under way; the tokens' vectors, which all simdgroups of a tile read, come out of the cache.
//
// A block's columns are multiplied in another order than they stand in: the four lanes of a row have 16 of them each, and the same of
// the vectors.
#define DIRECT_BLOCK 64                 // columns of a block, a group of the weight
#define DIRECT_EARLY 3                  // eights of vectors, up to which they are read a block ahead
#define DIRECT_ROWS 4                   // rows of a lane: of two tiles of 16 rows two each
#ifndef MATMUL_K
#define MATMUL_K 256                    // a multiple of DIRECT_BLOCKS blocks
#define MATMUL_BM 32                    // tokens of a tile at most: a multiple of 8 up to 32
#define MATMUL_WN 4                     // simdgroups
#define DIRECT_BLOCKS 4                 // 2 or 4
#define EXPERTS_TOP 2
#define EXPERTS_N 64                    // rows of one matrix of the stack: a multiple of 16, of 32 for experts_direct_down
#define EXPERTS_ACTIVATION ACTIVATION_SILU
#endif
#define DIRECT_THREADS (MATMUL_WN * 32)
#define DIRECT_EIGHTS (MATMUL_BM / 8)
#define DIRECT_BOUND PORT_BOUND(DIRECT_THREADS, 12 / MATMUL_WN)  // with fewer registers sums are spilled, with more there are fewer reads under way

typedef device const bfloat* direct_vector;

// A row of a weight, as a lane reads it.
struct direct_weight {
  device const uint* w;
  device const WEIGHT_SCALE* scales;
  device const WEIGHT_SCALE* biases;
};

inline void direct_row(thread direct_weight& r, device const uint* w, device const WEIGHT_SCALE* scales, device const WEIGHT_SCALE* biases, long row, int lane) {
  r.w = w + row * WEIGHT_WORDS(MATMUL_K) + lane % 4 * WEIGHT_WORDS(DIRECT_BLOCK / 4);
  r.scales = scales + row * (MATMUL_K / WEIGHT_GROUP);
  r.biases = biases + row * (MATMUL_K / WEIGHT_GROUP);
}

// The lane's codes of a block. Long rows are read by whole lines of the cache, of which the other half is read soon.
inline uint2 direct_codes(thread const direct_weight& r, int block) {
  device const uint2* p = (device const uint2*)(r.w + block * WEIGHT_WORDS(DIRECT_BLOCK));
#if DIRECT_BLOCKS == 4
  return port_read_once(p);
#else
  return *p;
#endif
}

// Two scales, or biases: of a block and of the next one.
inline uint direct_pair(device const WEIGHT_SCALE* from, int block) { return *(device const uint*)(from + block); }
inline bfloat direct_of(uint pair, int which) { return as_type<bfloat>(ushort(which == 0 ? pair & 0xffffu : pair >> 16)); }

// A lane's columns of a block of the vectors.
template <int EIGHTS>
inline void direct_vectors(thread const direct_vector* x, int block, thread uint4* out) {
  UNROLL for (int n = 0; n < EIGHTS; n++) {
    UNROLL for (int word = 0; word < 2; word++) out[2 * n + word] = ((device const uint4*)(x[n] + block * DIRECT_BLOCK))[word];
  }
}

// sums [EIGHTS][2 tiles of rows][4] are the products of the rows with EIGHTS times eight vectors. Of each eight a lane reads number
// lane / 4, where x says, from its columns on.
template <int EIGHTS>
inline void direct_multiply(thread const direct_weight* rows, thread const direct_vector* x, thread float* sums) {
  UNROLL for (int i = 0; i < EIGHTS * 8; i++) sums[i] = 0.0f;
  uint2 codes[DIRECT_BLOCKS][DIRECT_ROWS];
  uint scales[DIRECT_BLOCKS / 2][DIRECT_ROWS];
  uint biases[DIRECT_BLOCKS / 2][DIRECT_ROWS];
  UNROLL for (int r = 0; r < DIRECT_ROWS; r++) {
    UNROLL for (int b = 0; b < DIRECT_BLOCKS; b++) codes[b][r] = direct_codes(rows[r], b);
    UNROLL for (int b = 0; b < DIRECT_BLOCKS; b += 2) {
      scales[b / 2][r] = direct_pair(rows[r].scales, b);
      biases[b / 2][r] = WEIGHT_BIASES ? direct_pair(rows[r].biases, b) : 0u;
    }
  }
  uint4 vectors[EIGHTS * 2];
  direct_vectors<EIGHTS>(x, 0, vectors);
  NOUNROLL for (int first = 0; first < MATMUL_K / DIRECT_BLOCK; first += DIRECT_BLOCKS) {
    UNROLL for (int b = 0; b < DIRECT_BLOCKS; b++) {
      // Those of the next block are read ahead, where there are registers for that.
      uint4 coming[EIGHTS * 2];
      if (EIGHTS <= DIRECT_EARLY) {
        direct_vectors<EIGHTS>(x, min(first + b + 1, MATMUL_K / DIRECT_BLOCK - 1), coming);
      } else {
        direct_vectors<EIGHTS>(x, first + b, vectors);
      }
      UNROLL for (int word = 0; word < 2; word++) {
        uint4 a[DIRECT_ROWS];
        UNROLL for (int r = 0; r < DIRECT_ROWS; r++) {
          const bfloat scale = direct_of(scales[b / 2][r], b % 2);
          const bfloat bias = WEIGHT_BIASES ? direct_of(biases[b / 2][r], b % 2) : bfloat(float(scale) * -8.0f);
          a[r] = port_dequant8(word == 0 ? codes[b][r].x : codes[b][r].y, scale, bias);
        }
        UNROLL for (int u = 0; u < 4; u += 2) {
          UNROLL for (int n = 0; n < EIGHTS; n++) {
            UNROLL for (int m = 0; m < 2; m++) {
              port_mma_bf16(sums + (n * 2 + m) * 4, a[2 * m][u], a[2 * m + 1][u], a[2 * m][u + 1], a[2 * m + 1][u + 1], vectors[2 * n + word][u], vectors[2 * n + word][u + 1]);
            }
          }
        }
      }
      if (EIGHTS <= DIRECT_EARLY) {
        UNROLL for (int i = 0; i < EIGHTS * 2; i++) vectors[i] = coming[i];
      }
      const int next = first + b + DIRECT_BLOCKS;
      if (next < MATMUL_K / DIRECT_BLOCK) {
        UNROLL for (int r = 0; r < DIRECT_ROWS; r++) {
          codes[b][r] = direct_codes(rows[r], next);
          if (b % 2 == 1) {
            scales[b / 2][r] = direct_pair(rows[r].scales, next - 1);
            if (WEIGHT_BIASES) biases[b / 2][r] = direct_pair(rows[r].biases, next - 1);
          }
        }
      }
    }
  }
}

// The place, in the order of tiles, and the row of a lane's element e of a tile's eight pairs from place first on.
inline int direct_place(int first, int lane, int e) { return first + lane % 4 * 2 + e % 2; }
inline int direct_at(int lane, int e) { return lane / 4 + e / 2 * 8; }

// Gate and up are the simdgroup's two tiles of rows.
template <int EIGHTS>
inline void direct_up(thread const direct_weight* rows, device const int* order, device const bfloat* x, device bfloat* h, int first, int end, int column, int lane) {
  direct_vector from[EIGHTS];
  float sums[EIGHTS * 8];
  UNROLL for (int n = 0; n < EIGHTS; n++) {
    const int pair = order[min(first + n * 8 + lane / 4, end - 1)];
    from[n] = x + long(pair / EXPERTS_TOP) * MATMUL_K + lane % 4 * (DIRECT_BLOCK / 4);
  }
  direct_multiply<EIGHTS>(rows, from, sums);
  UNROLL for (int n = 0; n < EIGHTS; n++) {
    UNROLL for (int e = 0; e < 4; e++) {
      const int place = direct_place(first + n * 8, lane, e);
      if (place < end) h[long(place) * EXPERTS_N + column + direct_at(lane, e)] = bfloat(port_activate(EXPERTS_ACTIVATION, sums[n * 8 + e]) * sums[n * 8 + 4 + e]);
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
                              uint3 group [[threadgroup_position_in_grid]],
                              uint thread_index [[thread_index_in_threadgroup]]) {
  const int expert = tiles[group.y * 4];
  const int first = tiles[group.y * 4 + 1];
  const int end = tiles[group.y * 4 + 2];
  const int lane = int(thread_index % 32);
  const int column = (int(group.x) * MATMUL_WN + int(thread_index / 32)) * 16;
  if (expert < 0 || column >= EXPERTS_N) return;
  direct_weight rows[DIRECT_ROWS];
  UNROLL for (int r = 0; r < DIRECT_ROWS; r++) {
    const long row = long(expert) * EXPERTS_N + column + lane / 4 + r % 2 * 8;
    direct_row(rows[r], r < 2 ? w0 : w1, r < 2 ? scales0 : scales1, r < 2 ? biases0 : biases1, row, lane);
  }
  switch ((end - first + 7) / 8) {
    case 1: direct_up<1>(rows, order, x, h, first, end, column, lane); break;
    case 2: direct_up<2>(rows, order, x, h, first, end, column, lane); break;
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
  UNROLL for (int n = 0; n < EIGHTS; n++) from[n] = h + long(min(first + n * 8 + lane / 4, end - 1)) * MATMUL_K + lane % 4 * (DIRECT_BLOCK / 4);
  direct_multiply<EIGHTS>(rows, from, sums);
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
                                uint3 group [[threadgroup_position_in_grid]],
                                uint thread_index [[thread_index_in_threadgroup]]) {
  const int expert = tiles[group.y * 4];
  const int first = tiles[group.y * 4 + 1];
  const int end = tiles[group.y * 4 + 2];
  const int lane = int(thread_index % 32);
  const int column = (int(group.x) * MATMUL_WN + int(thread_index / 32)) * 32;
  if (expert < 0 || column >= EXPERTS_N) return;
  direct_weight rows[DIRECT_ROWS];
  UNROLL for (int r = 0; r < DIRECT_ROWS; r++) direct_row(rows[r], w, scales, biases, long(expert) * EXPERTS_N + column + lane / 4 + r * 8, lane);
  switch ((end - first + 7) / 8) {
    case 1: direct_down<1>(rows, order, h, y, first, end, column, lane); break;
    case 2: direct_down<2>(rows, order, h, y, first, end, column, lane); break;
#if DIRECT_EIGHTS > 2
    case 3: direct_down<3>(rows, order, h, y, first, end, column, lane); break;
#endif
#if DIRECT_EIGHTS > 3
    case 4: direct_down<4>(rows, order, h, y, first, end, column, lane); break;
#endif
  }
}
