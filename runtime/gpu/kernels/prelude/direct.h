// Products of up to 32 vectors with stored weights of 4 or 8 bits, in which nothing stands in threadgroup memory and nobody waits for
// anybody: what experts_direct.metal and matmul_direct.metal share. A simdgroup multiplies 32 rows of weights with all vectors of a
// tile. Its lanes read codes where they multiply them, DIRECT_BLOCKS blocks of columns ahead, so that weights are
// always under way; the vectors, which all simdgroups of a tile read, come out of the cache.
//
// Vectors stand in the order of lanes (lanes.h).
#define DIRECT_BLOCK 128                // columns of a block: two groups of the weight
#define DIRECT_ROWS 4                   // rows of a lane: of two tiles of 16 rows two each
#ifndef MATMUL_K
#define MATMUL_K 256                    // columns
#define MATMUL_BM 32                    // vectors of a tile at most: a multiple of 8 up to 32
#define MATMUL_WN 4                     // simdgroups that have rows of their own
#define DIRECT_BLOCKS 2                 // 1 or 2
#endif
#ifndef DIRECT_SPLIT                    // simdgroups that share the columns of rows, a whole number of DIRECT_BLOCKS blocks each
#define DIRECT_SPLIT 1
#endif
#define DIRECT_COLUMNS (MATMUL_K / DIRECT_SPLIT)
#define DIRECT_SIMDS (MATMUL_WN * DIRECT_SPLIT)
#define DIRECT_THREADS (DIRECT_SIMDS * 32)
#define DIRECT_EIGHTS (MATMUL_BM / 8)
// A source that includes this defines DIRECT_ROOM: a multiprocessor is to have registers for so many simdgroups at a time. With more of
// them sums are spilled, with fewer there are fewer reads under way.
#define DIRECT_BOUND PORT_BOUND(DIRECT_THREADS, DIRECT_SIMDS > DIRECT_ROOM ? 1 : DIRECT_ROOM / DIRECT_SIMDS)

typedef device const bfloat* direct_vector;

#define DIRECT_QUADS (WEIGHT_BITS / 4)  // four words each of the 32 codes of a row that a lane has of a block

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

// The lane's codes of a block, DIRECT_QUADS. Long rows are read by whole lines of the cache, of which the other half is read soon.
inline void direct_codes(thread const direct_weight& r, int block, thread uint4* out) {
  device const uint4* p = (device const uint4*)(r.w + block * WEIGHT_WORDS(DIRECT_BLOCK));
  UNROLL for (int i = 0; i < DIRECT_QUADS; i++) {
#if DIRECT_BLOCKS == 2
    out[i] = port_read_once(p + i);
#else
    out[i] = p[i];
#endif
  }
}

// What dequantizes the codes of a group.
#if WEIGHT_BITS == 8
typedef float2 direct_affine;  // scale and bias
#define DIRECT_UNIT 1.0f
#else
typedef port_affine direct_affine;
#define DIRECT_UNIT PORT_DEQUANT_UNIT
#endif

// Weights in bf16, divided by DIRECT_UNIT, of eight of a lane's codes, number word * 8 on, in pairs of the i-th and the one four further.
inline uint4 direct_numbers(thread const uint4* codes, int word, direct_affine affine) {
#if WEIGHT_BITS == 8
  const uint low = codes[word / 2][word % 2 * 2];
  const uint high = codes[word / 2][word % 2 * 2 + 1];
  const float s = affine.x, b = affine.y;
  return uint4(port_pack_bf16(s * port_byte_float(low, 0) + b, s * port_byte_float(high, 0) + b),
               port_pack_bf16(s * port_byte_float(low, 1) + b, s * port_byte_float(high, 1) + b),
               port_pack_bf16(s * port_byte_float(low, 2) + b, s * port_byte_float(high, 2) + b),
               port_pack_bf16(s * port_byte_float(low, 3) + b, s * port_byte_float(high, 3) + b));
#else
  return port_dequant_pairs(codes[0][word], affine);
#endif
}

// The scales, or biases, of the groups of a row in DIRECT_BLOCKS blocks: two to a word, a word to a block.
inline uint2 direct_groups(device const WEIGHT_SCALE* from, int block) {
#if DIRECT_BLOCKS == 2
  return *(device const uint2*)(from + block * (DIRECT_BLOCK / WEIGHT_GROUP));
#else
  return uint2(*(device const uint*)(from + block * (DIRECT_BLOCK / WEIGHT_GROUP)), 0u);
#endif
}
// Makes of them what dequantizes a lane's columns of a block. Where no biases are stored they follow from the scales.
inline direct_affine direct_affine_of(uint2 scales, uint2 biases, int block, int lane) {
  const int group = block * 2 + lane % 4 / 2;
  const uint scale = port_twice(scales.x, scales.y, group);
#if WEIGHT_BITS == 8
  const float s = port_bf16_low(scale);
  return float2(s, WEIGHT_BIASES ? port_bf16_low(port_twice(biases.x, biases.y, group)) : float(bfloat(s * -128.0f)));
#else
  return port_affine_of(scale, WEIGHT_BIASES ? port_twice(biases.x, biases.y, group) : port_bias_of(scale));
#endif
}

// sums [EIGHTS][2 tiles of rows][4] are the products of the rows with EIGHTS times eight vectors. Of each eight a lane reads number
// lane / 4, where x says, from its first column on. With WAITS it calls port_wait once its first codes are on their way.
template <int EIGHTS, bool WAITS>
inline void direct_multiply(thread const direct_weight* rows, thread const direct_vector* x, int lane, thread float* sums) {
  UNROLL for (int i = 0; i < EIGHTS * 8; i++) sums[i] = 0.0f;
  uint4 codes[DIRECT_BLOCKS][DIRECT_ROWS][DIRECT_QUADS];
  uint2 scales[DIRECT_ROWS];
  uint2 biases[DIRECT_ROWS];
  UNROLL for (int r = 0; r < DIRECT_ROWS; r++) {
    UNROLL for (int b = 0; b < DIRECT_BLOCKS; b++) direct_codes(rows[r], b, codes[b][r]);
    scales[r] = direct_groups(rows[r].scales, 0);
    biases[r] = WEIGHT_BIASES ? direct_groups(rows[r].biases, 0) : scales[r];
  }
  if (WAITS) port_wait();
  NOUNROLL for (int first = 0; first < DIRECT_COLUMNS / DIRECT_BLOCK; first += DIRECT_BLOCKS) {
    const int next = first + DIRECT_BLOCKS;
    const bool more = next < DIRECT_COLUMNS / DIRECT_BLOCK;
    uint2 coming[DIRECT_ROWS];
    uint2 coming_biases[DIRECT_ROWS];
    UNROLL for (int r = 0; r < DIRECT_ROWS; r++) {
      coming[r] = direct_groups(rows[r].scales, more ? next : first);
      if (WEIGHT_BIASES) coming_biases[r] = direct_groups(rows[r].biases, more ? next : first);
    }
    UNROLL for (int b = 0; b < DIRECT_BLOCKS; b++) {
      direct_affine affines[DIRECT_ROWS];
      UNROLL for (int r = 0; r < DIRECT_ROWS; r++) affines[r] = direct_affine_of(scales[r], biases[r], b, lane);
      UNROLL for (int word = 0; word < 4; word++) {
        uint4 a[DIRECT_ROWS];
        UNROLL for (int r = 0; r < DIRECT_ROWS; r++) {
          a[r] = direct_numbers(codes[b][r], word, affines[r]);
        }
        UNROLL for (int n = 0; n < EIGHTS; n++) {
          const uint4 v = *(device const uint4*)(x[n] + (first + b) * DIRECT_BLOCK + word * 32);
          UNROLL for (int u = 0; u < 4; u += 2) {
            UNROLL for (int m = 0; m < 2; m++) {
              port_mma_bf16(sums + (n * 2 + m) * 4, a[2 * m][u], a[2 * m + 1][u], a[2 * m][u + 1], a[2 * m + 1][u + 1], v[u], v[u + 1]);
            }
          }
        }
      }
      if (more) {
        UNROLL for (int r = 0; r < DIRECT_ROWS; r++) direct_codes(rows[r], next + b, codes[b][r]);
      }
    }
    UNROLL for (int r = 0; r < DIRECT_ROWS; r++) {
      scales[r] = coming[r];
      if (WEIGHT_BIASES) biases[r] = coming_biases[r];
    }
  }
  UNROLL for (int i = 0; i < EIGHTS * 8; i++) sums[i] *= DIRECT_UNIT;
}

// The vector and the row of a lane's element e of a tile of 16 rows and eight vectors, of which first is the first.
inline int direct_place(int first, int lane, int e) { return first + lane % 4 * 2 + e % 2; }
inline int direct_at(int lane, int e) { return lane / 4 + e / 2 * 8; }
