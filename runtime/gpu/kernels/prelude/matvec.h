// Products of a few vectors with stored weights, for decoding: code that matvec.metal and experts.metal share.
//
// A threadgroup computes MATVEC_BLOCK rows. It stages MATVEC_CHUNK columns of the vectors at a time in threadgroup
// memory, in the order in which lanes use them, with the sums over the columns that a lane uses at once. In a step,
// every lane reads MATVEC_BYTES of each of its rows; the reads of two steps are in flight while a third one is
// computed.
//
// With MATVEC_DIRECT nothing is staged: every lane reads the columns that it multiplies, for all steps at once.

#define PORT_WAITS

#ifndef MATVEC_M        // vectors, at most 8
#define MATVEC_M 1
#endif
#ifndef MATVEC_ROWS     // rows of a lane; ROWS * M <= LANES
#define MATVEC_ROWS 4
#endif
#ifndef MATVEC_LANES    // lanes that share rows: 8, 16 or 32; the others of the simdgroup take other rows
#define MATVEC_LANES 32
#endif
#ifndef MATVEC_SPLIT    // simdgroups that share rows
#define MATVEC_SPLIT 1
#endif
#ifndef MATVEC_SETS     // sets of such simdgroups
#define MATVEC_SETS 2
#endif
#ifndef MATVEC_BYTES    // of a row that a lane reads at once: 8, 16 or 32; at least 8 columns
#define MATVEC_BYTES 16
#endif
#ifndef MATVEC_CHUNK    // columns that are staged at a time, a multiple of those of a lane
#define MATVEC_CHUNK 256
#endif
#ifndef MATVEC_PERMUTE  // codes of 4 bits become floats by byte permutation (1) or in place, by conversion (0)
#define MATVEC_PERMUTE 0
#endif
#ifndef MATVEC_EXPERTS  // matrices in a stack of them
#define MATVEC_EXPERTS 1
#endif
#ifndef MATVEC_APART    // the first of PARTS matrices is not in the stack: it is the second weight
#define MATVEC_APART 0
#endif
#ifndef MATVEC_ALIGNED  // the weights' rows are a multiple of MATVEC_BLOCK
#define MATVEC_ALIGNED 0
#endif
#ifndef MATVEC_DIRECT   // nothing is staged: there is one vector of one part without heads, and CHUNK is K
#define MATVEC_DIRECT 0
#endif
#define MATVEC_SQUARES (MATVEC_NORM && !MATVEC_HEAD)       // the norm's factor is that of whole vectors

#define MATVEC_BY_BYTES (MATVEC_PERMUTE && WEIGHT_BITS == 4 && !WEIGHT_FLOATS)
#define MATVEC_COLS (MATVEC_BYTES * 8 / WEIGHT_BITS)       // columns of a lane at once
#define MATVEC_WORDS (MATVEC_BYTES / 4)
#define MATVEC_SUBS (32 / MATVEC_LANES)                    // parts of a simdgroup that take rows of their own
#define MATVEC_BLOCK (MATVEC_ROWS * MATVEC_SUBS * MATVEC_SETS)
#define MATVEC_SIMDS (MATVEC_SPLIT * MATVEC_SETS)
#define MATVEC_THREADS (MATVEC_SIMDS * 32)
#define MATVEC_OUTS (MATVEC_ROWS * MATVEC_M)               // results of a lane's rows
#define MATVEC_QUADS (MATVEC_COLS / 4)
#define MATVEC_PARTS (MATVEC_CHUNK / MATVEC_COLS)          // lanes' columns in a chunk
#define MATVEC_PITCH (MATVEC_PARTS + 1)                    // padded, so that staging meets different banks
#define MATVEC_STEPS ((MATVEC_PARTS + MATVEC_LANES * MATVEC_SPLIT - 1) / (MATVEC_LANES * MATVEC_SPLIT))
#define MATVEC_ALL ((MATVEC_K + MATVEC_CHUNK - 1) / MATVEC_CHUNK * MATVEC_STEPS)               // steps of all chunks
#define MATVEC_FETCH ((MATVEC_CHUNK / 4 + MATVEC_THREADS - 1) / MATVEC_THREADS)                // float4 of a thread
#if MATVEC_DIRECT
#define MATVEC_STAGE 1                                     // which nothing uses
#define MATVEC_COUNTS MATVEC_SPLIT                         // simdgroups whose squares are all: those of a set,
#define MATVEC_COUNTED MATVEC_SUBS                         // in which each sub has counted them
#else
#define MATVEC_STAGE (MATVEC_M * (MATVEC_QUADS * 4 + WEIGHT_QUANTIZED) * MATVEC_PITCH)         // floats
#define MATVEC_COUNTS MATVEC_SIMDS
#define MATVEC_COUNTED 1
#endif
#if MATVEC_ALL <= 8
#define MATVEC_UNROLL UNROLL
#else
#define MATVEC_UNROLL
#endif
#define MATVEC_SHARED(planes) (MATVEC_SIMDS * ((planes) * MATVEC_OUTS * MATVEC_SUBS + MATVEC_M))  // floats

// The thread's indices.
struct matvec_place {
  int thread_index;
  int lane;   // among MATVEC_LANES
  int sub;    // of the simdgroup
  int split;  // of MATVEC_SPLIT
  int set;    // of MATVEC_SETS
};
inline void matvec_find(thread matvec_place& at, uint thread_index) {
  at.thread_index = int(thread_index);
  at.lane = int(thread_index) % MATVEC_LANES;
  at.sub = int(thread_index) % 32 / MATVEC_LANES;
  at.split = int(thread_index) / 32 % MATVEC_SPLIT;
  at.set = int(thread_index) / 32 / MATVEC_SPLIT;
}
// Returns the first row of a thread in its threadgroup's block.
inline int matvec_row(thread const matvec_place& at) { return (at.set * MATVEC_SUBS + at.sub) * MATVEC_ROWS; }

// Reads the words of a lane's columns of a row, from column k on, and their scale and bias.
inline void matvec_read(device const uint* w, device const WEIGHT_SCALE* scales, device const WEIGHT_SCALE* biases,
                        long row, int k, int columns, thread uint* words, thread float2& affine) {
  w += row * WEIGHT_WORDS(columns) + WEIGHT_WORDS(k);
#if MATVEC_BYTES == 8
  const uint2 v = *(device const uint2*)w;
  words[0] = v.x;
  words[1] = v.y;
#else
  UNROLL for (int i = 0; i < MATVEC_WORDS / 4; i++) {
    const uint4 v = ((device const uint4*)w)[i];
    UNROLL for (int j = 0; j < 4; j++) words[4 * i + j] = v[j];
  }
#endif
#if WEIGHT_QUANTIZED
  affine = weight_affine(scales, biases, row * (columns / WEIGHT_GROUP) + k / WEIGHT_GROUP);
#endif
}

// Reads the words of a thread's rows of one or two weights, from column k of all parts on, and their scales and biases.
template <int PLANES, int PARTS>
inline void matvec_read_rows(device const uint* w0, device const WEIGHT_SCALE* scales0, device const WEIGHT_SCALE* biases0,
                             device const uint* w1, device const WEIGHT_SCALE* scales1, device const WEIGHT_SCALE* biases1,
                             int rows, int row0, device const int* experts, int k, thread uint* words, thread float2* affine) {
  const int columns = MATVEC_K / PARTS;
  UNROLL for (int r = 0; r < MATVEC_ROWS; r++) {
#if MATVEC_ALIGNED
    long row = row0 + r;
#else
    long row = min(row0 + r, rows - 1);
#endif
    const bool apart = MATVEC_APART && PARTS > 1 && k < columns;
    if (PARTS > 1 && !apart) row += long(clamp(experts[k / columns], 0, MATVEC_EXPERTS - 1)) * rows;
    matvec_read(apart ? w1 : w0, apart ? scales1 : scales0, apart ? biases1 : biases0, row, k % columns, columns,
                words + r * MATVEC_WORDS, affine[r]);
    if (PLANES == 2) {
      const int second = (PLANES - 1) * MATVEC_ROWS + r;
      matvec_read(w1, scales1, biases1, row, k % columns, columns, words + second * MATVEC_WORDS, affine[second]);
    }
  }
}

// Converts eight codes, or numbers, of a lane's words to floats, from column 8 * i on. Codes of 4 bits become either 1
// + q / 16, or q * 16^(column % 4), see matvec_scaled.
inline void matvec_unpack(thread const uint* words, int i, thread float* out) {
#if WEIGHT_BITS == 4 && WEIGHT_FLOATS
  UNROLL for (int j = 0; j < 8; j++) out[j] = weight_code4(words[i], j);
#elif MATVEC_BY_BYTES
  const uint even = ((words[i] << 3) & 0x78787878u) | 0x80808080u;
  const uint odd = ((words[i] >> 1) & 0x78787878u) | 0x80808080u;
  UNROLL for (int j = 0; j < 4; j++) {
    out[2 * j] = port_byte_unit(even, j);
    out[2 * j + 1] = port_byte_unit(odd, j);
  }
#elif WEIGHT_BITS == 4
  const uint low = words[i] & 0xffffu;
  const uint high = words[i] >> 16;
  UNROLL for (int j = 0; j < 4; j++) {
    out[j] = float(low & (15u << (4 * j)));
    out[4 + j] = float(high & (15u << (4 * j)));
  }
#elif WEIGHT_BITS == 8
  UNROLL for (int j = 0; j < 8; j++) out[j] = weight_code8(words[2 * i + j / 4], j % 4);
#elif WEIGHT_BITS == 16
  UNROLL for (int j = 0; j < 4; j++) {
    out[2 * j] = port_bf16_low(words[4 * i + j]);
    out[2 * j + 1] = port_bf16_high(words[4 * i + j]);
  }
#else
  UNROLL for (int j = 0; j < 8; j++) out[j] = as_type<float>(words[8 * i + j]);
#endif
}
// Returns what to multiply an element of a vector by, where matvec_unpack leaves codes at their bit positions.
inline float matvec_scaled(float x, int column) {
#if WEIGHT_BITS == 4 && !MATVEC_BY_BYTES && !WEIGHT_FLOATS
  return x * (column % 4 == 0 ? 1.0f : column % 4 == 1 ? 0.0625f : column % 4 == 2 ? 0.00390625f : 0.000244140625f);
#else
  return x;
#endif
}

// Loads the columns from k0 on that a thread stages; zeros behind the end.
inline void matvec_fetch(device const float* x, int vectors, int k0, thread const matvec_place& at, thread float4* ahead) {
  UNROLL for (int m = 0; m < MATVEC_M; m++) {
    device const float* from = x + long(min(m, vectors - 1)) * MATVEC_K;
    UNROLL for (int i = 0; i < MATVEC_FETCH; i++) {
      const int q = i * MATVEC_THREADS + at.thread_index;
      float4 v = float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (q < MATVEC_CHUNK / 4 && k0 + 4 * q < MATVEC_K) v = *(device const float4*)(from + k0 + 4 * q);
      ahead[m * MATVEC_FETCH + i] = v;
    }
  }
}

// Loads the factors of the columns from k0 on that a thread stages: weights of the norm, or scores of experts.
template <int PARTS>
inline void matvec_factors(device const float* scores, device const MATVEC_NORM_T* norm, int k0, thread const matvec_place& at, thread float4* factors) {
  UNROLL for (int i = 0; i < MATVEC_FETCH; i++) {
    const int column = k0 + 4 * (i * MATVEC_THREADS + at.thread_index);
    float4 v = float4(1.0f, 1.0f, 1.0f, 1.0f);
    if (column < min(k0 + MATVEC_CHUNK, MATVEC_K)) {
      if (PARTS > 1) v = v * scores[column / (MATVEC_K / PARTS)];
#if MATVEC_NORM == 1 || MATVEC_NORM == 2
#if MATVEC_HEAD
      UNROLL for (int j = 0; j < 4; j++) v[j] = float(norm[column % MATVEC_HEAD + j]);
#else
      UNROLL for (int j = 0; j < 4; j++) v[j] = float(norm[column + j]);
#endif
#endif
    }
    factors[i] = v;
  }
}

#if MATVEC_HEAD
// Normalizes heads of the loaded columns, and multiplies them by activations of the gate. Neighbouring lanes have
// neighbouring columns.
inline void matvec_heads(thread float4* ahead, thread const float4* gates) {
  UNROLL for (int i = 0; i < MATVEC_FETCH; i++) {
    float4 v = ahead[i];
    float square = (v[0] * v[0] + v[1] * v[1]) + (v[2] * v[2] + v[3] * v[3]);
    UNROLL for (ushort distance = 1; distance < MATVEC_HEAD / 4; distance *= 2) square += simd_shuffle_xor(square, distance);
    v = v * precise::rsqrt(square / float(MATVEC_HEAD) + MATVEC_EPS);
    UNROLL for (int j = 0; j < 4; j++) v[j] *= port_activate(MATVEC_GATE, gates[i][j]);
    ahead[i] = v;
  }
}
#endif

// Stages the loaded columns: float4 q of a lane's columns of part p, of vector m, at ((m * QUADS + q) * PITCH + p), and
// behind them the sums over the columns of each part. Adds the squares of the elements to squares.
template <int PARTS>
inline void matvec_stage(thread const float4* ahead, thread const float4* factors, threadgroup float* stage, thread const matvec_place& at, thread float* squares) {
  threadgroup float* totals = stage + MATVEC_M * MATVEC_QUADS * MATVEC_PITCH * 4;
  UNROLL for (int m = 0; m < MATVEC_M; m++) {
    threadgroup float4* to = (threadgroup float4*)stage + m * MATVEC_QUADS * MATVEC_PITCH;
    UNROLL for (int i = 0; i < MATVEC_FETCH; i++) {
      const int q = i * MATVEC_THREADS + at.thread_index;
      float4 v = ahead[m * MATVEC_FETCH + i];
#if MATVEC_SQUARES
      UNROLL for (int j = 0; j < 4; j++) squares[m] += v[j] * v[j];
#endif
      if (PARTS > 1 || MATVEC_NORM == 1 || MATVEC_NORM == 2) v = v * factors[i];
#if WEIGHT_QUANTIZED
      float total = (v[0] + v[1]) + (v[2] + v[3]);
      UNROLL for (ushort distance = 1; distance < MATVEC_QUADS; distance *= 2) total += simd_shuffle_xor(total, distance);
      if (q < MATVEC_CHUNK / 4 && q % MATVEC_QUADS == 0) totals[m * MATVEC_PITCH + q / MATVEC_QUADS] = total;
#endif
      if (q < MATVEC_CHUNK / 4) to[q % MATVEC_QUADS * MATVEC_PITCH + q / MATVEC_QUADS] = v;
    }
  }
}

// Adds to sums the products of a lane's columns of its rows with a staged part.
template <int PLANES>
inline void matvec_add(thread const uint* words, thread const float2* affine, threadgroup const float* stage, int part, thread float* sums) {
  float products[PLANES * MATVEC_OUTS];
  UNROLL for (int i = 0; i < PLANES * MATVEC_OUTS; i++) products[i] = 0.0f;
  UNROLL for (int i = 0; i < MATVEC_COLS / 8; i++) {
    float v[MATVEC_M][8];
    UNROLL for (int m = 0; m < MATVEC_M; m++) {
      UNROLL for (int h = 0; h < 2; h++) {
        const float4 f = ((threadgroup const float4*)stage)[(m * MATVEC_QUADS + 2 * i + h) * MATVEC_PITCH + part];
        UNROLL for (int j = 0; j < 4; j++) v[m][4 * h + j] = matvec_scaled(f[j], j);
      }
    }
    UNROLL for (int r = 0; r < PLANES * MATVEC_ROWS; r++) {
      float codes[8];
      matvec_unpack(words + r * MATVEC_WORDS, i, codes);
      UNROLL for (int m = 0; m < MATVEC_M; m++) {
        UNROLL for (int j = 0; j < 8; j++) products[r * MATVEC_M + m] += v[m][j] * codes[j];
      }
    }
  }
#if WEIGHT_QUANTIZED
  UNROLL for (int m = 0; m < MATVEC_M; m++) {
    const float total = stage[MATVEC_M * MATVEC_QUADS * MATVEC_PITCH * 4 + m * MATVEC_PITCH + part];
    UNROLL for (int r = 0; r < PLANES * MATVEC_ROWS; r++) {
#if MATVEC_BY_BYTES
      const float scale = 16.0f * affine[r].x;
      sums[r * MATVEC_M + m] += scale * products[r * MATVEC_M + m] + (affine[r].y - scale) * total;
#else
      sums[r * MATVEC_M + m] += affine[r].x * products[r * MATVEC_M + m] + affine[r].y * total;
#endif
    }
  }
#else
  UNROLL for (int i = 0; i < PLANES * MATVEC_OUTS; i++) sums[i] += products[i];
#endif
}

#if MATVEC_DIRECT
// Returns the weights of four columns from their codes or numbers.
inline float4 matvec_weights(thread const float* codes, float2 affine) {
  float4 w;
  UNROLL for (int j = 0; j < 4; j++) {
#if !WEIGHT_QUANTIZED
    w[j] = codes[j];
#elif MATVEC_BY_BYTES
    w[j] = 16.0f * affine.x * codes[j] + (affine.y - 16.0f * affine.x);
#else
    w[j] = matvec_scaled(affine.x, j) * codes[j] + affine.y;
#endif
  }
  return w;
}

// Does what matvec_sums does, without staging. The duration of a short product is the time after its wait. So
// everything that no other kernel writes is read before, and the norm's weights are multiplied into the weights while
// the vector is still to come. What remains is one multiplication for each weight, and the squares. Every set and every
// sub computes all squares.
template <int PLANES>
inline void matvec_sums_direct(device const uint* w0, device const WEIGHT_SCALE* scales0, device const WEIGHT_SCALE* biases0,
                               device const uint* w1, device const WEIGHT_SCALE* scales1, device const WEIGHT_SCALE* biases1,
                               int rows, int row0, device const int* experts, device const float* x, device const MATVEC_NORM_T* norm,
                               thread const matvec_place& at, thread float* sums, thread float* squares) {
  const int quads = MATVEC_ALL * MATVEC_QUADS;  // of a lane
  uint words[MATVEC_ALL][PLANES * MATVEC_ROWS * MATVEC_WORDS];
  float2 affine[MATVEC_ALL][PLANES * MATVEC_ROWS];
  float4 factors[quads];
  float4 v[quads];
  float4 weights[PLANES * MATVEC_ROWS][quads];
  // Lanes without columns take the weights of the last ones, and zeros for the vector.
  const int part = at.split * MATVEC_LANES + at.lane;
  UNROLL for (int step = 0; step < MATVEC_ALL; step++) {
    const int k = min(part + step * MATVEC_LANES * MATVEC_SPLIT, MATVEC_PARTS - 1) * MATVEC_COLS;
    matvec_read_rows<PLANES, 1>(w0, scales0, biases0, w1, scales1, biases1, rows, row0, experts, k, words[step], affine[step]);
#if MATVEC_NORM == 1 || MATVEC_NORM == 2
    UNROLL for (int q = 0; q < MATVEC_QUADS; q++) factors[step * MATVEC_QUADS + q] = port_four(norm + k + 4 * q);
#endif
  }
  port_wait();
  UNROLL for (int i = 0; i < quads; i++) {
    const int from = (part + i / MATVEC_QUADS * MATVEC_LANES * MATVEC_SPLIT) * MATVEC_QUADS + i % MATVEC_QUADS;
    v[i] = float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (MATVEC_PARTS % (MATVEC_LANES * MATVEC_SPLIT) == 0 || from < MATVEC_K / 4) v[i] = ((device const float4*)x)[from];
  }
  UNROLL for (int r = 0; r < PLANES * MATVEC_ROWS; r++) {
    UNROLL for (int i = 0; i < quads; i++) weights[r][i] = float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
  // A branch on purpose: compilers for CUDA move nothing across it. Otherwise they would wait for the words before they
  // load the vector.
  if (row0 < rows) {
    UNROLL for (int r = 0; r < PLANES * MATVEC_ROWS; r++) {
      UNROLL for (int i = 0; i < quads; i++) {
        const int step = i / MATVEC_QUADS;
        float codes[8];
        matvec_unpack(words[step] + r * MATVEC_WORDS, i % MATVEC_QUADS / 2, codes);
        weights[r][i] = matvec_weights(codes + i % 2 * 4, affine[step][r]);
#if MATVEC_NORM == 1 || MATVEC_NORM == 2
        weights[r][i] = weights[r][i] * factors[i];
#endif
      }
    }
  }
  // Four partial sums each, so that additions depend less on each other.
  UNROLL for (int r = 0; r < PLANES * MATVEC_ROWS; r++) {
    float4 sum = weights[r][0] * v[0];
    UNROLL for (int i = 1; i < quads; i++) sum = sum + weights[r][i] * v[i];
    sums[r] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  }
  float4 square = v[0] * v[0];
  UNROLL for (int i = 1; i < quads; i++) square = square + v[i] * v[i];
  squares[0] = (square[0] + square[1]) + (square[2] + square[3]);
}
#endif

// Adds to sums [plane][row][vector] the products of a thread's rows of one or two weights with the vectors, and to
// squares the squares of the elements that the thread stages.
//
// With PARTS > 1 a row consists of rows of PARTS stacked matrices of MATVEC_K / PARTS columns each. Matrix i begins at
// row experts[i] * rows of the stack, and its part of the vectors is multiplied by scores[i]. gate [MATVEC_K] belongs
// to MATVEC_HEAD.
template <int PLANES, int PARTS>
inline void matvec_sums(device const uint* w0, device const WEIGHT_SCALE* scales0, device const WEIGHT_SCALE* biases0,
                        device const uint* w1, device const WEIGHT_SCALE* scales1, device const WEIGHT_SCALE* biases1,
                        int rows, int row0, device const int* experts, device const float* scores,
                        device const float* x, int vectors, device const MATVEC_NORM_T* norm,
                        threadgroup float* stage, thread const matvec_place& at, thread float* sums, thread float* squares,
                        device const float* gate = 0) {
#if MATVEC_DIRECT
  matvec_sums_direct<PLANES>(w0, scales0, biases0, w1, scales1, biases1, rows, row0, experts, x, norm, at, sums, squares);
#else
  UNROLL for (int i = 0; i < PLANES * MATVEC_OUTS; i++) sums[i] = 0.0f;
  UNROLL for (int m = 0; m < MATVEC_M; m++) squares[m] = 0.0f;
  uint words[2][PLANES * MATVEC_ROWS * MATVEC_WORDS];  // of two steps
  float2 affine[2][PLANES * MATVEC_ROWS];
  float4 ahead[MATVEC_M * MATVEC_FETCH];  // the next chunk of the vectors
  float4 factors[MATVEC_FETCH];
#if MATVEC_HEAD
  float4 gates[MATVEC_FETCH];
#endif
  // Steps -2 and -1 only start the reads for steps 0 and 1. These are in flight while the kernel waits for the vectors
  // and stages them.
  MATVEC_UNROLL for (int pair = -2; pair < MATVEC_ALL; pair += 2) {
    UNROLL for (int turn = 0; turn < 2; turn++) {
      const int step = pair + turn;
      if (step >= 0 && step < MATVEC_ALL) {
        const int k0 = step / MATVEC_STEPS * MATVEC_CHUNK;
        if (step % MATVEC_STEPS == 0) {
          if (step == 0) {
            if (PARTS == 1) matvec_factors<PARTS>(scores, norm, 0, at, factors);
            port_wait();
            if (PARTS > 1) matvec_factors<PARTS>(scores, norm, 0, at, factors);
            matvec_fetch(x, vectors, 0, at, ahead);
#if MATVEC_HEAD
            matvec_fetch(gate, 1, 0, at, gates);
#endif
          } else {
            threadgroup_barrier(mem_flags::mem_threadgroup);
          }
#if MATVEC_HEAD
          matvec_heads(ahead, gates);
#endif
          matvec_stage<PARTS>(ahead, factors, stage, at, squares);
          threadgroup_barrier(mem_flags::mem_threadgroup);
          if (k0 + MATVEC_CHUNK < MATVEC_K) {
            matvec_factors<PARTS>(scores, norm, k0 + MATVEC_CHUNK, at, factors);
            matvec_fetch(x, vectors, k0 + MATVEC_CHUNK, at, ahead);
#if MATVEC_HEAD
            matvec_fetch(gate, 1, k0 + MATVEC_CHUNK, at, gates);
#endif
          }
        }
        const int part = step % MATVEC_STEPS * (MATVEC_LANES * MATVEC_SPLIT) + at.split * MATVEC_LANES + at.lane;
        if (part < MATVEC_PARTS && k0 + part * MATVEC_COLS < MATVEC_K) matvec_add<PLANES>(words[turn], affine[turn], stage, part, sums);
      }
      const int next = step + 2;
      if (next < MATVEC_ALL) {
        const int part = next % MATVEC_STEPS * (MATVEC_LANES * MATVEC_SPLIT) + at.split * MATVEC_LANES + at.lane;
        const int k = next / MATVEC_STEPS * MATVEC_CHUNK + part * MATVEC_COLS;
        if (part < MATVEC_PARTS && k < MATVEC_K) {
          matvec_read_rows<PLANES, PARTS>(w0, scales0, biases0, w1, scales1, biases1, rows, row0, experts, k, words[turn], affine[turn]);
        }
      }
    }
  }
#endif
}

// Returns the factor of the norm from the sum of the squares.
inline float matvec_factor(float total) { return precise::rsqrt(total / float(MATVEC_K * MATVEC_COUNTED) + MATVEC_EPS); }

// Adds up the sums of all lanes and simdgroups, and multiplies them by the norm's factor. Afterwards lane i of split 0
// has result i of its rows: that of row i / MATVEC_M and vector i % MATVEC_M. Returns whether the thread has one.
template <int PLANES>
inline bool matvec_finish(thread float* sums, thread float* squares, threadgroup float* shared, thread const matvec_place& at,
                          thread float* out) {
  UNROLL for (int p = 0; p < PLANES; p++) {
    out[p] = 0.0f;
    UNROLL for (int i = 0; i < MATVEC_OUTS; i++) {
      float v = sums[p * MATVEC_OUTS + i];
#if MATVEC_LANES == 32
      v = simd_sum(v);
#else
      UNROLL for (ushort distance = MATVEC_LANES / 2; distance > 0; distance /= 2) v += simd_shuffle_xor(v, distance);
#endif
      if (at.lane == i) out[p] = v;
    }
  }
#if MATVEC_SPLIT == 1 && MATVEC_SQUARES && MATVEC_DIRECT
  const float factor = matvec_factor(simd_sum(squares[0]));
  UNROLL for (int p = 0; p < PLANES; p++) out[p] *= factor;
  return at.lane < MATVEC_OUTS;
#elif MATVEC_SPLIT > 1 || MATVEC_SQUARES
  const int simd = at.thread_index / 32;
  threadgroup float* norms = shared + MATVEC_SIMDS * PLANES * MATVEC_OUTS * MATVEC_SUBS;
#if MATVEC_SQUARES
  UNROLL for (int m = 0; m < MATVEC_M; m++) {
    const float total = simd_sum(squares[m]);
    if (at.thread_index % 32 == 0) norms[simd * MATVEC_M + m] = total;
  }
#endif
#if MATVEC_SPLIT > 1
  threadgroup float* partial = shared + (at.set * MATVEC_SUBS + at.sub) * PLANES * MATVEC_OUTS;
  const int others = MATVEC_SETS * MATVEC_SUBS * PLANES * MATVEC_OUTS;
  if (at.lane < MATVEC_OUTS) {
    UNROLL for (int p = 0; p < PLANES; p++) partial[at.split * others + p * MATVEC_OUTS + at.lane] = out[p];
  }
#endif
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (at.split > 0 || at.lane >= MATVEC_OUTS) return false;
#if MATVEC_SPLIT > 1
  UNROLL for (int p = 0; p < PLANES; p++) {
    UNROLL for (int s = 1; s < MATVEC_SPLIT; s++) out[p] += partial[s * others + p * MATVEC_OUTS + at.lane];
  }
#endif
#if MATVEC_SQUARES
  float total = 0.0f;
  UNROLL for (int s = 0; s < MATVEC_COUNTS; s++) total += norms[s * MATVEC_M + at.lane % MATVEC_M];
  const float factor = matvec_factor(total);
  UNROLL for (int p = 0; p < PLANES; p++) out[p] *= factor;
#endif
  return true;
#else
  return at.lane < MATVEC_OUTS;
#endif
}
