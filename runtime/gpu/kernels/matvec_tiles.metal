#include "port.h"
#include "weights.h"
#include "product.h"
#include "conv.h"
// Products of 2 to 64 vectors with up to four small weights. Buffers and results are those of matvec_many. Tensor cores multiply
// tiles of 16 rows of weights with 8 vectors. A threadgroup has one tile and 8 vectors. Its simdgroups divide the columns among each
// other, by groups of the weight. They read all weights before they wait for the vectors.
//
// No value is rounded to bf16. A code of 4 bits is exact in bf16. A code of 8 bits is split into two bf16 numbers, of which the upper
// one counts 16 times as much. An element of a vector is split into three bf16 numbers. From every 4 bits of a code 8 is subtracted
// before the product, since sums of numbers of both signs lose fewer digits. The bias adds it again.
#define PORT_WAITS

#ifndef TILES_SIMDS     // simdgroups of a threadgroup
#define TILES_SIMDS 4
#endif
#define TILES_OWN ((MATVEC_K / WEIGHT_GROUP + TILES_SIMDS - 1) / TILES_SIMDS)  // groups of a simdgroup, at most
#define TILES_WORDS (WEIGHT_BITS / 2)                                          // words of 16 codes, a lane's part of a group
#define TILES_COLUMNS (32 / WEIGHT_BITS)                                       // columns of a word
#define TILES_AT(n) (((n) + 15) / 16)
#define TILES_ALL (TILES_AT(MATVEC_N0) + TILES_AT(MATVEC_N1) + TILES_AT(MATVEC_N2) + TILES_AT(MATVEC_N3))

// The weight of a tile and its first row.
struct tiles_place {
  device const uint* w;
  device const WEIGHT_SCALE* scales;
  device const WEIGHT_SCALE* biases;
  device float* y;
  int rows, first;
};

// A lane's codes of one group of one row. bias is for codes that 8 was subtracted from, every 4 bits of them.
struct tiles_row {
  uint words[TILES_WORDS];
  float scale, bias;
};

inline void tiles_read(thread const tiles_place& p, int row, int group, int lane, thread tiles_row& to) {
  const long at = long(min(row, p.rows - 1)) * (MATVEC_K / WEIGHT_GROUP) + group;
  device const uint2* from = (device const uint2*)(p.w + at * WEIGHT_WORDS(WEIGHT_GROUP) + lane % 4 * TILES_WORDS);
  UNROLL for (int i = 0; i < TILES_WORDS / 2; i++) {
    const uint2 two = from[i];
    to.words[2 * i] = two.x;
    to.words[2 * i + 1] = two.y;
  }
  const float2 affine = weight_affine(p.scales, p.biases, at);
  to.scale = affine.x;
  to.bias = affine.y + float(WEIGHT_BITS == 4 ? 8 : 8 * 17) * affine.x;
}

// Splits a and b into three bf16 numbers each. out[i] has number i of a and of b.
inline void tiles_split(float a, float b, thread uint* out) {
  UNROLL for (int i = 0; i < 3; i++) {
    out[i] = port_pack_bf16(a, b);
    a -= port_bf16_low(out[i]);
    b -= port_bf16_high(out[i]);
  }
}

// Adds to part [3][4] the products of a group of a lane's two rows with 16 columns v of its vector. v is split into three numbers.
// The products with each of them have four sums of their own, so that they do not wait for each other.
inline void tiles_multiply(thread const tiles_row* rows, thread const float* v, thread float* part) {
  UNROLL for (int word = 0; word < TILES_WORDS; word++) {
    thread const float* x = v + word * TILES_COLUMNS;
    const uint4 low = port_codes_less_8(rows[0].words[word]);
    const uint4 high = port_codes_less_8(rows[1].words[word]);
    UNROLL for (int u = 0; u < 4; u += 2) {
      uint a[3];
      uint b[3];
#if WEIGHT_BITS == 4
      tiles_split(x[u], x[u + 4], a);
      tiles_split(x[u + 1], x[u + 5], b);
#else
      tiles_split(x[u / 2], x[u / 2 + 2], a);
      tiles_split(16.0f * x[u / 2], 16.0f * x[u / 2 + 2], b);
#endif
      UNROLL for (int i = 0; i < 3; i++) port_mma_bf16(part + i * 4, low[u], high[u], low[u + 1], high[u + 1], a[i], b[i]);
    }
  }
}

// Returns the weight and the first row of a tile.
inline tiles_place tiles_find(int tile, device const uint* w0, device const WEIGHT_SCALE* scales0, device const WEIGHT_SCALE* biases0, device float* y0, device const uint* w1,
                              device const WEIGHT_SCALE* scales1, device const WEIGHT_SCALE* biases1, device float* y1, device const uint* w2, device const WEIGHT_SCALE* scales2,
                              device const WEIGHT_SCALE* biases2, device float* y2, device const uint* w3, device const WEIGHT_SCALE* scales3, device const WEIGHT_SCALE* biases3,
                              device float* y3) {
  if (tile < TILES_AT(MATVEC_N0)) return tiles_place{w0, scales0, biases0, y0, MATVEC_N0, tile * 16};
  tile -= TILES_AT(MATVEC_N0);
  if (tile < TILES_AT(MATVEC_N1)) return tiles_place{w1, scales1, biases1, y1, MATVEC_N1, tile * 16};
  tile -= TILES_AT(MATVEC_N1);
  if (tile < TILES_AT(MATVEC_N2)) return tiles_place{w2, scales2, biases2, y2, MATVEC_N2, tile * 16};
  return tiles_place{w3, scales3, biases3, y3, MATVEC_N3, (tile - TILES_AT(MATVEC_N2)) * 16};
}

// grid: TILES_ALL, T / 8
// arguments: matvec_many
[[max_total_threads_per_threadgroup(TILES_SIMDS * 32)]]
kernel void tiles_many(device const uint* w0 [[buffer(0)]],
                       device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                       device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                       device float* y0 [[buffer(3)]],
                       device const uint* w1 [[buffer(4)]],
                       device const WEIGHT_SCALE* scales1 [[buffer(5)]],
                       device const WEIGHT_SCALE* biases1 [[buffer(6)]],
                       device float* y1 [[buffer(7)]],
                       device const uint* w2 [[buffer(8)]],
                       device const WEIGHT_SCALE* scales2 [[buffer(9)]],
                       device const WEIGHT_SCALE* biases2 [[buffer(10)]],
                       device float* y2 [[buffer(11)]],
                       device const uint* w3 [[buffer(12)]],
                       device const WEIGHT_SCALE* scales3 [[buffer(13)]],
                       device const WEIGHT_SCALE* biases3 [[buffer(14)]],
                       device float* y3 [[buffer(15)]],
                       device const float* x [[buffer(16)]],
                       device const MATVEC_NORM_T* norm [[buffer(17)]],
                       device const CONV_WEIGHT_T* conv_w [[buffer(18)]],
                       device const uchar* reset [[buffer(19)]],
                       device const CONV_STATE_T* state [[buffer(20)]],
                       device float* conv_y [[buffer(21)]],
                       device CONV_STATE_T* next [[buffer(22)]],
                       device float* activated [[buffer(23)]],
                       device const int* entries [[buffer(24)]],
                       device const int* writes [[buffer(25)]],
                       device const int* step [[buffer(26)]],
                       uint3 group [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, kept, TILES_SIMDS * 128);
  TG_ARRAY(float, squares, TILES_SIMDS * 8);
  const int lane = thread_index % 32;
  const int simd = simd_broadcast_first(thread_index / 32);
  const tiles_place place = tiles_find(int(group.x), w0, scales0, biases0, y0, w1, scales1, biases1, y1, w2, scales2, biases2, y2, w3, scales3, biases3, y3);
  tiles_row rows[TILES_OWN][2];
  UNROLL for (int i = 0; i < TILES_OWN; i++) {
    UNROLL for (int upper = 0; upper < 2; upper++) {
      tiles_read(place, place.first + lane / 4 + upper * 8, min(simd + i * TILES_SIMDS, MATVEC_K / WEIGHT_GROUP - 1), lane, rows[i][upper]);
    }
  }
  port_wait();
  const int first = int(group.y) * 8;
  const int tokens = min(step[STEP_TOKENS] - first, 8);
  if (tokens <= 0) return;
  device const float* own = x + long(first + min(lane / 4, tokens - 1)) * MATVEC_K;
  float v[TILES_OWN][16];
  float square = 0.0f;
  UNROLL for (int i = 0; i < TILES_OWN; i++) {
    const int column = min(simd + i * TILES_SIMDS, MATVEC_K / WEIGHT_GROUP - 1) * WEIGHT_GROUP + lane % 4 * 16;
    UNROLL for (int k = 0; k < 16; k += 4) {
      const float4 four = port_four(own + column + k);
      UNROLL for (int e = 0; e < 4; e++) {
        v[i][k + e] = simd + i * TILES_SIMDS < MATVEC_K / WEIGHT_GROUP ? four[e] : 0.0f;
        if (MATVEC_NORM) square += v[i][k + e] * v[i][k + e];
      }
#if MATVEC_NORM == 1 || MATVEC_NORM == 2
      const float4 factor = port_four(norm + column + k);
      UNROLL for (int e = 0; e < 4; e++) v[i][k + e] *= factor[e];
#endif
    }
  }
  float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  UNROLL for (int i = 0; i < TILES_OWN; i++) {
    float total = 0.0f;
    UNROLL for (int k = 0; k < 16; k++) total += v[i][k];
    total += simd_shuffle_xor(total, 1);
    total += simd_shuffle_xor(total, 2);
    float part[12];
    UNROLL for (int e = 0; e < 12; e++) part[e] = 0.0f;
    tiles_multiply(rows[i], v[i], part);
    // The lane has results of vectors 2 (lane % 4) and 2 (lane % 4) + 1. Lanes 4 t to 4 t + 3 have the total of vector t.
    UNROLL for (int e = 0; e < 4; e++) {
      const float of = simd_shuffle(total, ushort(lane % 4 * 8 + e % 2 * 4));
      sums[e] += rows[i][e / 2].scale * (part[e] + (part[4 + e] + part[8 + e])) + rows[i][e / 2].bias * of;
    }
  }
  *(threadgroup float4*)(kept + simd * 128 + lane * 4) = float4(sums[0], sums[1], sums[2], sums[3]);
#if MATVEC_NORM
  square += simd_shuffle_xor(square, 1);
  square += simd_shuffle_xor(square, 2);
  if (lane % 4 == 0) squares[simd * 8 + lane / 4] = square;
#endif
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = thread_index; i < 128; i += TILES_SIMDS * 32) {
    const int token = i / 4 % 4 * 2 + i % 2;
    const int row = place.first + i % 4 / 2 * 8 + i / 16;
    if (token >= tokens || row >= place.rows) continue;
    float sum = 0.0f;
    float all = 0.0f;
    UNROLL for (int s = 0; s < TILES_SIMDS; s++) {
      sum += kept[s * 128 + i];
      if (MATVEC_NORM) all += squares[s * 8 + token];
    }
    place.y[long(first + token) * place.rows + row] = MATVEC_NORM ? sum * precise::rsqrt(all / float(MATVEC_K) + MATVEC_EPS) : sum;
  }
}
