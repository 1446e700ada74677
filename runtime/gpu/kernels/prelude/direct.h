// Products of up to 32 vectors with stored weights of 4 or 8 bits, in which nothing stands in threadgroup memory and nobody waits for
// anybody: what experts_direct.metal and matmul_direct.metal share. A simdgroup multiplies 32 rows of weights with all vectors of a
// tile. Its lanes read codes where they multiply them, DIRECT_BLOCKS blocks of columns ahead, so that weights are
// always under way; the vectors, which all simdgroups of a tile read, come out of the cache.
//
// A block's columns are multiplied in another order than they stand in: the four lanes of a row have 16 of them each, and the same of
// the vectors.
#define DIRECT_BLOCK 64                 // columns of a block, a group of the weight
#define DIRECT_EARLY 3                  // eights of vectors, up to which they are read a block ahead
#define DIRECT_ROWS 4                   // rows of a lane: of two tiles of 16 rows two each
#ifndef MATMUL_K
#define MATMUL_K 256                    // columns
#define MATMUL_BM 32                    // vectors of a tile at most: a multiple of 8 up to 32
#define MATMUL_WN 4                     // simdgroups that have rows of their own
#define DIRECT_BLOCKS 4                 // 2 or 4
#endif
#ifndef DIRECT_SPLIT                    // simdgroups that share the columns of rows, a whole number of DIRECT_BLOCKS blocks each
#define DIRECT_SPLIT 1
#endif
#define DIRECT_COLUMNS (MATMUL_K / DIRECT_SPLIT)
#define DIRECT_SIMDS (MATMUL_WN * DIRECT_SPLIT)
#define DIRECT_THREADS (DIRECT_SIMDS * 32)
#define DIRECT_EIGHTS (MATMUL_BM / 8)
// With fewer registers sums are spilled, with more there are fewer reads under way.
#define DIRECT_BOUND PORT_BOUND(DIRECT_THREADS, DIRECT_SIMDS > 12 ? 1 : 12 / DIRECT_SIMDS)

typedef device const bfloat* direct_vector;

// The codes of a row that a lane has of a block: 16 of them.
#if WEIGHT_BITS == 8
typedef uint4 direct_code;
#else
typedef uint2 direct_code;
#endif

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
inline direct_code direct_codes(thread const direct_weight& r, int block) {
  device const direct_code* p = (device const direct_code*)(r.w + block * WEIGHT_WORDS(DIRECT_BLOCK));
#if DIRECT_BLOCKS == 4 && WEIGHT_BITS == 4
  return port_read_once(p);
#else
  return *p;
#endif
}

// Eight numbers of a row in bf16, two to a word, of its codes of a block: the first (word 0) or the second eight of what a lane has.
inline uint4 direct_numbers(direct_code codes, int word, bfloat scale, bfloat bias) {
#if WEIGHT_BITS == 8
  const uint low = word == 0 ? codes.x : codes.z;
  const uint high = word == 0 ? codes.y : codes.w;
  const float s = float(scale), b = float(bias);
  return uint4(port_pack_bf16(s * port_byte_float(low, 0) + b, s * port_byte_float(low, 1) + b),
               port_pack_bf16(s * port_byte_float(low, 2) + b, s * port_byte_float(low, 3) + b),
               port_pack_bf16(s * port_byte_float(high, 0) + b, s * port_byte_float(high, 1) + b),
               port_pack_bf16(s * port_byte_float(high, 2) + b, s * port_byte_float(high, 3) + b));
#else
  return port_dequant8(word == 0 ? codes.x : codes.y, scale, bias);
#endif
}

// Two scales, or biases: of a block and of the next one.
inline uint direct_pair(device const WEIGHT_SCALE* from, int block) { return *(device const uint*)(from + block); }
inline bfloat direct_of(uint pair, int which) { return as_type<bfloat>(ushort(which == 0 ? pair & 0xffffu : pair >> 16)); }
// The bias of a block, of a pair of biases; where none are stored it follows from the scale.
inline bfloat direct_bias(uint pair, int which, bfloat scale) {
  return WEIGHT_BIASES ? direct_of(pair, which) : bfloat(float(scale) * -float(1 << (WEIGHT_BITS - 1)));
}

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
  direct_code codes[DIRECT_BLOCKS][DIRECT_ROWS];
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
  NOUNROLL for (int first = 0; first < DIRECT_COLUMNS / DIRECT_BLOCK; first += DIRECT_BLOCKS) {
    UNROLL for (int b = 0; b < DIRECT_BLOCKS; b++) {
      // Those of the next block are read ahead, where there are registers for that.
      uint4 coming[EIGHTS * 2];
      if (EIGHTS <= DIRECT_EARLY) {
        direct_vectors<EIGHTS>(x, min(first + b + 1, DIRECT_COLUMNS / DIRECT_BLOCK - 1), coming);
      } else {
        direct_vectors<EIGHTS>(x, first + b, vectors);
      }
      UNROLL for (int word = 0; word < 2; word++) {
        uint4 a[DIRECT_ROWS];
        UNROLL for (int r = 0; r < DIRECT_ROWS; r++) {
          const bfloat scale = direct_of(scales[b / 2][r], b % 2);
          a[r] = direct_numbers(codes[b][r], word, scale, direct_bias(biases[b / 2][r], b % 2, scale));
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
      if (next < DIRECT_COLUMNS / DIRECT_BLOCK) {
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

// The vector and the row of a lane's element e of a tile of 16 rows and eight vectors, of which first is the first.
inline int direct_place(int first, int lane, int e) { return first + lane % 4 * 2 + e % 2; }
inline int direct_at(int lane, int e) { return lane / 4 + e / 2 * 8; }
