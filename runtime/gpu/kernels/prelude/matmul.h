// Tiled products of many vectors with stored weights, for prefill: what matmul.metal and experts_matmul.metal
// share. Codes become numbers in the tile.
//
// A threadgroup makes MATMUL_BM x MATMUL_BN results; its MATMUL_WM x MATMUL_WN simdgroups share tiles of x and of
// the weight in threadgroup memory. While two tiles are multiplied the next two are read to registers, and then
// stored beside them. MATMUL_EXACT 0: x and the weight are bf16 in the tile, sums are fp32 (tile16). 1: x is f32,
// and everything is fp32.
#ifndef MATMUL_K      // columns, a multiple of 8
#define MATMUL_K 64
#endif
#ifndef MATMUL_EXACT
#define MATMUL_EXACT 0
#endif
#ifndef MATMUL_BM
#define MATMUL_BM 32
#endif
#ifndef MATMUL_BN     // 32 * MATMUL_WN or more
#define MATMUL_BN 64
#endif
#ifndef MATMUL_BK
#define MATMUL_BK 32
#endif
#ifndef MATMUL_WM
#define MATMUL_WM 2
#endif
#ifndef MATMUL_WN
#define MATMUL_WN 2
#endif
#if MATMUL_EXACT
#define MATMUL_T float
#define MATMUL_PAD 4
#define MATMUL_QUADS 2                              // 16 bytes in eight columns of x
#else
#define MATMUL_T bfloat
#define MATMUL_PAD 8
#define MATMUL_QUADS 1
#endif
#define MATMUL_THREADS (MATMUL_WM * MATMUL_WN * 32)
#define MATMUL_LD (MATMUL_BK + MATMUL_PAD)          // a row of a tile, padded
#define MATMUL_TM (MATMUL_BM / MATMUL_WM / 16)      // 16x16 tiles of a simdgroup
#define MATMUL_TN (MATMUL_BN / MATMUL_WN / 16)
#define MATMUL_ROW (MATMUL_BK / 8)                  // vectors of eight columns in a tile's row
#define MATMUL_XV ((MATMUL_BM * MATMUL_ROW + MATMUL_THREADS - 1) / MATMUL_THREADS)  // vectors of a thread
// Columns of the weight that a thread reads at once: 16 bytes, if there are enough for all threads.
#if WEIGHT_BITS == 4 && WEIGHT_GROUP >= 32 && MATMUL_BK % 32 == 0 && MATMUL_BN * MATMUL_BK / 32 % MATMUL_THREADS == 0
#define MATMUL_UNIT 32
#elif WEIGHT_BITS == 8 && MATMUL_BN * MATMUL_BK / 16 % MATMUL_THREADS == 0
#define MATMUL_UNIT 16
#else
#define MATMUL_UNIT 8
#endif
#define MATMUL_WROW (MATMUL_BK / MATMUL_UNIT)
#define MATMUL_WV ((MATMUL_BN * MATMUL_WROW + MATMUL_THREADS - 1) / MATMUL_THREADS)
#define MATMUL_XS (2 * MATMUL_BM * MATMUL_LD)       // numbers in the two tiles of x, and of the weight
#define MATMUL_WS (2 * MATMUL_BN * MATMUL_LD)
#define MATMUL_WORDS (MATMUL_UNIT * WEIGHT_BITS / 32)

#if MATMUL_EXACT
// A 16x16 tile of fp32 results: element e of a lane is in row (e / 4) * 8 + lane / 4, column (e % 4) * 4 + lane % 4.
struct matmul_tile { float v[8]; };
inline short2 matmul_coord(uint lane, short e) {
  return short2(short((e / 4) * 8 + short(lane / 4)), short((e % 4) * 4 + short(lane % 4)));
}
inline float matmul_get(thread matmul_tile& t, short e) { return t.v[e]; }
#else
#define matmul_tile tile_c
inline short2 matmul_coord(uint lane, short e) { return tile_coord(lane, e); }
inline float matmul_get(thread matmul_tile& t, short e) { return tile_get(t, e); }
#endif
#define MATMUL_TILES (MATMUL_TM * MATMUL_TN)

// The first row and column of a simdgroup in its threadgroup's block.
inline int matmul_row(uint simd) { return int(simd / MATMUL_WN) * (MATMUL_BM / MATMUL_WM); }
inline int matmul_column(uint simd) { return int(simd % MATMUL_WN) * (MATMUL_BN / MATMUL_WN); }

// Stores eight columns of the weight to a tile.
inline void matmul_store(threadgroup MATMUL_T* to, thread const uint* words, float2 affine) {
#if MATMUL_EXACT
  UNROLL for (int i = 0; i < 8; i++) {
#if WEIGHT_BITS == 4
    to[i] = affine.x * weight_code4(words[0], i) + affine.y;
#elif WEIGHT_BITS == 8
    to[i] = affine.x * weight_code8(words[i / 4], i % 4) + affine.y;
#elif WEIGHT_BITS == 16
    to[i] = i % 2 == 0 ? port_bf16_low(words[i / 2]) : port_bf16_high(words[i / 2]);
#else
    to[i] = as_type<float>(words[i]);
#endif
  }
#else
  uint4 v;
#if WEIGHT_BITS == 16
  v = uint4(words[0], words[1], words[2], words[3]);
#elif WEIGHT_BITS == 32
  UNROLL for (int i = 0; i < 4; i++) v[i] = port_pack_bf16(as_type<float>(words[2 * i]), as_type<float>(words[2 * i + 1]));
#elif WEIGHT_BITS == 8
  UNROLL for (int i = 0; i < 4; i++) {
    v[i] = port_pack_bf16(affine.x * weight_code8(words[i / 2], 2 * (i % 2)) + affine.y,
                          affine.x * weight_code8(words[i / 2], 2 * (i % 2) + 1) + affine.y);
  }
#elif WEIGHT_FLOATS
  UNROLL for (int i = 0; i < 4; i++) v[i] = port_pack_bf16(affine.x * weight_code4(words[0], 2 * i), affine.x * weight_code4(words[0], 2 * i + 1));
#else
  v = port_dequant8(words[0], WEIGHT_SCALE(affine.x), WEIGHT_SCALE(affine.y));
#endif
  *(threadgroup uint4*)to = v;
#endif
}

// Multiplies the two tiles.
inline void matmul_multiply(threadgroup const MATMUL_T* xs, threadgroup const MATMUL_T* ws, uint simd, uint lane, thread matmul_tile* sums) {
  const int m0 = matmul_row(simd);
  const int n0 = matmul_column(simd);
#if MATMUL_EXACT
  UNROLL for (int k = 0; k < MATMUL_BK; k += 4) {
    float4 a[2 * MATMUL_TM];
    UNROLL for (int i = 0; i < 2 * MATMUL_TM; i++) {
      a[i] = *(threadgroup const float4*)(xs + (m0 + i * 8 + int(lane / 4)) * MATMUL_LD + k);
    }
    UNROLL for (int j = 0; j < 4 * MATMUL_TN; j++) {
      const float4 b = *(threadgroup const float4*)(ws + (n0 + j * 4 + int(lane % 4)) * MATMUL_LD + k);
      UNROLL for (int i = 0; i < 2 * MATMUL_TM; i++) {
        float sum = sums[i / 2 * MATMUL_TN + j / 4].v[i % 2 * 4 + j % 4];
        UNROLL for (int q = 0; q < 4; q++) sum += a[i][q] * b[q];
        sums[i / 2 * MATMUL_TN + j / 4].v[i % 2 * 4 + j % 4] = sum;
      }
    }
  }
#else
  UNROLL for (int k = 0; k < MATMUL_BK; k += 16) {
    tile_a a[MATMUL_TM];
    UNROLL for (int i = 0; i < MATMUL_TM; i++) tile_load_a(a[i], xs + (m0 + i * 16) * MATMUL_LD + k, MATMUL_LD, lane);
    UNROLL for (int j = 0; j < MATMUL_TN; j++) {
      tile_b b;
      tile_load_bt(b, ws + (n0 + j * 16) * MATMUL_LD + k, MATMUL_LD, lane);
      UNROLL for (int i = 0; i < MATMUL_TM; i++) tile_mma(sums[i * MATMUL_TN + j], a[i], b);
    }
  }
#endif
}

// Multiplies a block. rows are the rows of x that a thread reads, for its vectors (thread + i * THREADS) / ROW.
// PLANES 2: the block's columns are 16 of one weight and 16 of the other in turn; then column is that in each.
template <int PLANES>
inline void matmul_block(device const uint* w0, device const WEIGHT_SCALE* scales0, device const WEIGHT_SCALE* biases0,
                         device const uint* w1, device const WEIGHT_SCALE* scales1, device const WEIGHT_SCALE* biases1,
                         int columns, int column, device const MATMUL_T* x, thread const int* rows,
                         threadgroup MATMUL_T* xs, threadgroup MATMUL_T* ws, uint thread_index, thread matmul_tile* sums) {
  const uint simd = thread_index / 32;
  const uint lane = thread_index % 32;
  UNROLL for (int i = 0; i < MATMUL_TM * MATMUL_TN; i++) {
#if MATMUL_EXACT
    UNROLL for (int e = 0; e < 8; e++) sums[i].v[e] = 0.0f;
#else
    tile_zero(sums[i]);
#endif
  }
  uint4 xr[MATMUL_XV * MATMUL_QUADS];
  uint wr[MATMUL_WV][MATMUL_WORDS];
  float2 affine[MATMUL_WV];
  int buffer = 0;
  for (int k = -MATMUL_BK; k < MATMUL_K; k += MATMUL_BK) {
    const int next = k + MATMUL_BK;  // the tiles to read
    if (next < MATMUL_K) {
      UNROLL for (int i = 0; i < MATMUL_XV; i++) {
        const int v = int(thread_index) + i * MATMUL_THREADS;
        const int at = next + v % MATMUL_ROW * 8;
        const bool inside = MATMUL_K % MATMUL_BK == 0 || at < MATMUL_K;
        UNROLL for (int q = 0; q < MATMUL_QUADS; q++) {
          xr[i * MATMUL_QUADS + q] = uint4(0u, 0u, 0u, 0u);
          if (inside) xr[i * MATMUL_QUADS + q] = ((device const uint4*)(x + long(rows[i]) * MATMUL_K + at))[q];
        }
      }
      UNROLL for (int i = 0; i < MATMUL_WV; i++) {
        const int v = int(thread_index) + i * MATMUL_THREADS;
        const int at = next + v % MATMUL_WROW * MATMUL_UNIT;
        const int r = v / MATMUL_WROW;
        const bool second = PLANES == 2 && r / 16 % 2 == 1;
        const long row = min(column + (PLANES == 2 ? r / 32 * 16 + r % 16 : r), columns - 1);
        UNROLL for (int q = 0; q < MATMUL_WORDS; q++) wr[i][q] = 0u;
        affine[i] = float2(0.0f, 0.0f);
        if (MATMUL_K % MATMUL_BK == 0 || at < MATMUL_K) {
          device const uint* from = (second ? w1 : w0) + row * WEIGHT_WORDS(MATMUL_K) + WEIGHT_WORDS(at);
#if MATMUL_WORDS == 1
          wr[i][0] = from[0];
#elif MATMUL_WORDS == 2
          const uint2 f = *(device const uint2*)from;
          wr[i][0] = f.x;
          wr[i][1] = f.y;
#else
          UNROLL for (int q = 0; q < MATMUL_WORDS / 4; q++) {
            const uint4 f = ((device const uint4*)from)[q];
            UNROLL for (int j = 0; j < 4; j++) wr[i][4 * q + j] = f[j];
          }
#endif
#if WEIGHT_QUANTIZED
          affine[i] = weight_affine(second ? scales1 : scales0, second ? biases1 : biases0, row * (MATMUL_K / WEIGHT_GROUP) + at / WEIGHT_GROUP);
#endif
        }
      }
    }
    if (k >= 0) {
      matmul_multiply(xs + buffer * MATMUL_BM * MATMUL_LD, ws + buffer * MATMUL_BN * MATMUL_LD, simd, lane, sums);
      buffer ^= 1;
    }
    if (next < MATMUL_K) {
      threadgroup MATMUL_T* xb = xs + buffer * MATMUL_BM * MATMUL_LD;
      threadgroup MATMUL_T* wb = ws + buffer * MATMUL_BN * MATMUL_LD;
      UNROLL for (int i = 0; i < MATMUL_XV; i++) {
        const int v = int(thread_index) + i * MATMUL_THREADS;
        if (MATMUL_BM * MATMUL_ROW % MATMUL_THREADS == 0 || v < MATMUL_BM * MATMUL_ROW) {
          threadgroup uint4* to = (threadgroup uint4*)(xb + v / MATMUL_ROW * MATMUL_LD + v % MATMUL_ROW * 8);
          UNROLL for (int q = 0; q < MATMUL_QUADS; q++) to[q] = xr[i * MATMUL_QUADS + q];
        }
      }
      UNROLL for (int i = 0; i < MATMUL_WV; i++) {
        const int v = int(thread_index) + i * MATMUL_THREADS;
        if (MATMUL_BN * MATMUL_WROW % MATMUL_THREADS == 0 || v < MATMUL_BN * MATMUL_WROW) {
          UNROLL for (int u = 0; u < MATMUL_UNIT / 8; u++) {
            matmul_store(wb + v / MATMUL_WROW * MATMUL_LD + v % MATMUL_WROW * MATMUL_UNIT + u * 8, wr[i] + u * (8 * WEIGHT_BITS / 32), affine[i]);
          }
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}
