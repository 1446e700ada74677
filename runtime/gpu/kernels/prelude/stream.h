// Products of one vector with stored weights of 4 or 8 bits, for devices with asynchronous copies to threadgroup
// memory: code that ring.h and resident.h share.
//
// There is one threadgroup for each multiprocessor, and the rows are spread evenly over them: while a kernel runs, each
// multiprocessor has room for one threadgroup of the next kernel. If a grid had fewer threadgroups, two of the next
// kernel's would land on one multiprocessor and take twice as long. A threadgroup computes its rows in strips of
// STREAM_STRIP rows of a weight or, in pairs of weights, of half as many rows of each. Strips are copied to threadgroup
// memory. The first copies start before the kernels that this one depends on are done, since no kernel writes weights.
// So the weights of the next kernel arrive while the present one ends.
//
// Simdgroups convert the vector to integers of 23 bits, with a scale for every 64 columns, and split these into three
// signed digits of 8 bits. port_mma_u8s8 multiplies digits and codes exactly. So the result is as accurate as with sums
// of fp32 products, with a fraction of the instructions. Its second operand has eight columns: 0 to 2 are the digits of
// one group of 64 columns, in lanes 0 and 1 of four, and 4 to 6 those of the next group, in lanes 2 and 3. For the
// columns of the other group lanes have zeros. So a lane can read 32 columns of a row at once.
//
// A Product is what a kernel multiplies. place(at, plane, p) returns where row number at lies in the weight of the
// plane. begin(row, end) is called before the wait by the thread that may finish a row first. meet(row, end) is called
// by it soon after the wait, with resident weights. end(row, out) gets the results of a row for all planes.

#define PORT_WAITS

#ifndef STREAM_GRID     // threadgroups
#define STREAM_GRID 1
#endif
#ifndef STREAM_ROOM     // threadgroups that a multiprocessor is to have room for
#define STREAM_ROOM 1
#endif
#ifndef STREAM_UNIT     // rows that stay together
#define STREAM_UNIT 1
#endif
#ifndef STREAM_SIMDS    // simdgroups that multiply; each takes STREAM_OWN times 128 columns of a stage
#define STREAM_SIMDS 2
#endif
#ifndef STREAM_COLUMNS  // of a stage, a divisor of K
#define STREAM_COLUMNS 256
#endif
#ifndef STREAM_STRIP    // rows of a stage, of all weights: a multiple of 16
#define STREAM_STRIP 16
#endif
#ifndef STREAM_STAGES   // at least 2, or as many as there are
#define STREAM_STAGES 2
#endif
#ifndef STREAM_AHEAD    // stages whose copies start before what the kernel depends on is done, less than all unless there is one
#define STREAM_AHEAD (MATVEC_SUM && STREAM_STAGES > 2 ? STREAM_STAGES - 1 : 1)
#endif
#ifndef STREAM_FLUSH    // rows whose sums are kept before they are finished, a multiple of 16
#define STREAM_FLUSH 64
#endif
#ifndef STREAM_PLANES   // weights whose rows are multiplied together: of the kernel that is to run
#define STREAM_PLANES 1
#endif
#ifndef STREAM_APART    // 1: rows are copied one by one, as they are where a stage has no whole rows
#define STREAM_APART 0
#endif
#ifndef STREAM_RESIDENT     // 1: all strips have a stage of their own, see resident.h
#define STREAM_RESIDENT 0
#endif
#ifndef STREAM_PIECE    // columns of one weight: less than K where a row consists of rows of several weights
#define STREAM_PIECE MATVEC_K
#endif
#ifndef STREAM_SCORED   // 1: the vector's pieces are multiplied by scores
#define STREAM_SCORED 0
#endif
#ifndef STREAM_BYTES    // of threadgroup memory
#define STREAM_BYTES 32768
#endif

#define STREAM_EIGHTS (STREAM_STRIP / 8)
#define STREAM_THREADS (STREAM_SIMDS * 32)  // that multiply
#define STREAM_SEGMENTS (MATVEC_K / STREAM_COLUMNS)
#define STREAM_CHUNKS (STREAM_COLUMNS / 128)
#define STREAM_OWN (STREAM_CHUNKS / STREAM_SIMDS)
#define STREAM_KEEP (STREAM_SEGMENTS == 1 && STREAM_OWN <= 2)  // the digits of a simdgroup's columns stay in registers
#define STREAM_TAKES ((STREAM_OWN * 16 + 31) / 32)             // times that a lane makes digits of 8 columns in a segment
#define STREAM_GROUPS (MATVEC_K / WEIGHT_GROUP)                // groups of a row
#define STREAM_AFFINE (STREAM_GROUPS * int(sizeof(WEIGHT_SCALE)))                     // bytes of a row's scales
#define STREAM_ROW (STREAM_COLUMNS * WEIGHT_BITS / 8)                                 // bytes of a segment of a row
#define STREAM_SINGLE (STREAM_APART || STREAM_SEGMENTS > 1)                           // rows are copied one by one: then they meet different banks
#define STREAM_BETWEEN (WEIGHT_BITS == 4 ? 64 : 16)                                   // bytes between rows that meet different banks
#define STREAM_PITCH (STREAM_ROW + (STREAM_SINGLE ? STREAM_BETWEEN : 0))
#define STREAM_STAGE (STREAM_STRIP * STREAM_PITCH)
#define STREAM_SHELF (STREAM_STRIP * (1 + WEIGHT_BIASES) * STREAM_AFFINE)             // scales and biases of a strip
#define STREAM_SHELVES (1 + (STREAM_STAGES + STREAM_SEGMENTS - 2) / STREAM_SEGMENTS)  // of strips that stages are of
#define STREAM_ALL (MATVEC_N0 + MATVEC_N1 + MATVEC_N2 + MATVEC_N3)
#define STREAM_UNITS ((STREAM_ALL + STREAM_UNIT - 1) / STREAM_UNIT)
#define STREAM_ROWS ((STREAM_UNITS + STREAM_GRID - 1) / STREAM_GRID * STREAM_UNIT)  // of a threadgroup at most

// The layout of threadgroup memory: stages first, unless weights are resident.
#if STREAM_RESIDENT
#define STREAM_DIGITS 0
#else
#define STREAM_SCALES (STREAM_STAGES * STREAM_STAGE)      // [rows][groups] scales for each strip, then its biases
#define STREAM_DIGITS (STREAM_SCALES + STREAM_SHELVES * STREAM_SHELF)  // uint [K / 128][3 digits][4 lanes][8]
#endif
#define STREAM_FACTORS (STREAM_DIGITS + MATVEC_K * 3)     // float [K / 64][2], of the two upper digits and of the lowest one
#define STREAM_HALF_SUMS (STREAM_FACTORS + MATVEC_K / 8)  // float [K / 64], half the sum of the columns
#define STREAM_ZEROS (STREAM_HALF_SUMS + MATVEC_K / 16)   // 32 bytes
#define STREAM_SUMS (STREAM_ZEROS + 32)                   // float [PLANES][SIMDS][FLUSH]
#define STREAM_MEMORY(planes) (STREAM_SUMS + (planes) * STREAM_SIMDS * STREAM_FLUSH * 4)

// The number of floats for partial sums of squares.
#define STREAM_SQUARES (MATVEC_SUM ? 2 * STREAM_SIMDS : STREAM_SIMDS)

// Returns the first row of a threadgroup.
inline int stream_first(int group) { return int(long(group) * STREAM_UNITS / STREAM_GRID) * STREAM_UNIT; }

// The addresses of a row in device memory.
struct stream_place {
  device const uchar* codes;
  device const uchar* scales;
  device const uchar* biases;
};

inline void stream_row(device const uint* w, device const WEIGHT_SCALE* scales, device const WEIGHT_SCALE* biases, long row, thread stream_place& p) {
  p.codes = (device const uchar*)w + row * (STREAM_PIECE * WEIGHT_BITS / 8);
  p.scales = (device const uchar*)(scales + row * (STREAM_PIECE / WEIGHT_GROUP));
  p.biases = (device const uchar*)(biases + row * (STREAM_PIECE / WEIGHT_GROUP));
}

// A strip: count rows from row on of weight number which. at is its first row, counted over all weights.
struct stream_strip {
  int at, end;
  int which, row, count;
  int number;  // among the strips of a threadgroup
};

inline void stream_look(thread stream_strip& strip, int most) {
  int left = MATVEC_N0 - strip.at;
  strip.which = 0;
  strip.row = strip.at;
  if (left <= 0) {
    strip.which = 1;
    strip.row = -left;
    left += MATVEC_N1;
    if (left <= 0) {
      strip.which = 2;
      strip.row = -left;
      left += MATVEC_N2;
      if (left <= 0) {
        strip.which = 3;
        strip.row = -left;
        left += MATVEC_N3;
      }
    }
  }
  strip.count = min(min(most, left), strip.end - strip.at);
}

// Reads 8 columns of a vector.
inline void stream_read(device const float* x, int take, thread float* out) {
  const float4 low = ((device const float4*)x)[2 * take];
  const float4 high = ((device const float4*)x)[2 * take + 1];
  UNROLL for (int i = 0; i < 4; i++) {
    out[i] = low[i];
    out[4 + i] = high[i];
  }
}

// Reads the norm's weights of 8 columns.
inline void stream_factors(device const MATVEC_NORM_T* norm, int take, thread float* out) {
#if MATVEC_NORM == 1 || MATVEC_NORM == 2
#if MATVEC_HEAD
  UNROLL for (int i = 0; i < 8; i++) out[i] = float(norm[(8 * take + i) % MATVEC_HEAD]);
#else
  UNROLL for (int i = 0; i < 8; i++) out[i] = float(norm[8 * take + i]);
#endif
#endif
}

// Makes the digits of 8 columns and, together with the lanes that have the rest of the same 64 columns, their scale and
// sum. With own false it writes nothing.
inline void stream_digits(thread const float* v, int take, bool own, threadgroup uchar* memory) {
  uint largest = 0u;
  float sum = 0.0f;
  UNROLL for (int i = 0; i < 8; i++) {
    largest = max(largest, as_type<uint>(v[i]) & 0x7fffffffu);
    sum += v[i];
  }
  UNROLL for (ushort distance = 1; distance < 8; distance *= 2) {
    largest = max(largest, simd_shuffle_xor(largest, distance));
    sum += simd_shuffle_xor(sum, distance);
  }
  // Numbers below 2^(e+1) times 2^(21-e) are below 2^22. An infinity or a NaN is in the sum, which enters every row.
  const uint exponent = max(largest >> 23, 32u);
  const float scale = as_type<float>((275u - exponent) << 23);
  uint d[8];
  UNROLL for (int i = 0; i < 8; i++) {
    const uint integer = as_type<uint>(v[i] * scale + 12582912.0f) - 0x4b400000u;  // 1.5 * 2^23 leaves no fraction bits
    d[i] = (integer + 0x00808080u) ^ 0x00808080u;                                  // the bytes are signed digits from -128 to 127
  }
  if (!own) return;
  threadgroup uint* to = (threadgroup uint*)(memory + STREAM_DIGITS) + (take / 16 * 12 + take % 16 / 4) * 8 + take % 4 * 2;
  UNROLL for (int g = 0; g < 3; g++) {
    const int shift = 16 - 8 * g;
    // 4-bit codes of even columns and of odd columns are multiplied separately.
    const int next = WEIGHT_BITS == 4 ? 2 : 1;
    UNROLL for (int h = 0; h < 2; h++) {
      const int first = WEIGHT_BITS == 4 ? h : 4 * h;
      uint word = 0u;
      UNROLL for (int i = 0; i < 4; i++) word |= ((d[first + next * i] >> shift) & 255u) << (8 * i);
      to[g * 32 + h] = word;
    }
  }
  if (take % 8 == 0) {
    const float unit = as_type<float>((exponent - 21u) << 23);
    threadgroup float* factors = (threadgroup float*)(memory + STREAM_FACTORS) + take / 8 * 2;
    factors[0] = unit * 256.0f;
    factors[1] = unit * 0.00390625f;
    ((threadgroup float*)(memory + STREAM_HALF_SUMS))[take / 8] = sum * 0.5f;
  }
}

// The operands from which the vector is computed, with MATVEC_SUM. No kernel writes before and scale. out gets the
// vector.
struct stream_sum {
  device const float* before;
  device const float* residual;
  device const float* scale;
  device float* out;
};

// What a lane has read of a segment of the vector, and of the factors of its elements.
struct stream_part {
  float v[STREAM_TAKES][8];
#if MATVEC_SUM
  float before[STREAM_TAKES][8];
  float residual[STREAM_TAKES][8];
  float scale;
#endif
#if MATVEC_HEAD
  float gates[STREAM_TAKES][8];
#endif
#if MATVEC_NORM == 1 || MATVEC_NORM == 2
  float factors[STREAM_TAKES][8];
#endif
};

// Returns the 8 columns that a lane takes as number i of its simdgroup's columns in a segment. Where there are too few
// columns, some are taken twice; own is false for the second lane.
inline int stream_take(int segment, int simd, int lane, int i, thread bool& own) {
  const int at = i * 32 + lane;
  own = at < STREAM_OWN * 16;
  return (segment * STREAM_CHUNKS + simd * STREAM_OWN) * 16 + (own ? at : at - 16);
}

// Sets a vector of zeros.
inline void stream_nothing(thread stream_part& part) {
  UNROLL for (int i = 0; i < STREAM_TAKES; i++) {
    UNROLL for (int j = 0; j < 8; j++) {
      part.v[i][j] = 0.0f;
#if MATVEC_HEAD
      part.gates[i][j] = 0.0f;
#endif
    }
  }
}

inline void stream_read_factors(device const MATVEC_NORM_T* norm, int segment, int simd, int lane, thread stream_part& part) {
#if MATVEC_NORM == 1 || MATVEC_NORM == 2
  bool own;
  UNROLL for (int i = 0; i < STREAM_TAKES; i++) stream_factors(norm, stream_take(segment, simd, lane, i, own), part.factors[i]);
#endif
}

inline void stream_read_part(device const float* x, device const float* gate, int segment, int simd, int lane, thread stream_part& part) {
  bool own;
  UNROLL for (int i = 0; i < STREAM_TAKES; i++) {
    const int take = stream_take(segment, simd, lane, i, own);
    stream_read(x, take, part.v[i]);
#if MATVEC_HEAD
    stream_read(gate, take, part.gates[i]);
#elif STREAM_SCORED
    const float score = gate[take * 8 / STREAM_PIECE];
    UNROLL for (int j = 0; j < 8; j++) part.v[i][j] *= score;
#endif
  }
}

#if MATVEC_SUM
// Reads the weights of the norm in the sum.
inline void stream_read_before(thread const stream_sum& sum, int simd, int lane, thread stream_part& part) {
  bool own;
  UNROLL for (int i = 0; i < STREAM_TAKES; i++) stream_read(sum.before, stream_take(0, simd, lane, i, own), part.before[i]);
  part.scale = MATVEC_SUM == 2 ? sum.scale[0] : 1.0f;
}

// Reads the residual, and returns a simdgroup's sum of the squares of x.
inline float stream_read_residual(thread const stream_sum& sum, int simd, int lane, thread stream_part& part) {
  float square = 0.0f;
  UNROLL for (int i = 0; i < STREAM_TAKES; i++) {
    bool own;
    stream_read(sum.residual, stream_take(0, simd, lane, i, own), part.residual[i]);
    UNROLL for (int j = 0; j < 8; j++) square += own ? part.v[i][j] * part.v[i][j] : 0.0f;
  }
  return simd_sum(square);
}

// Computes the vector from what was read, with the squares of all simdgroups. One threadgroup writes it to out.
inline void stream_add(thread const stream_sum& sum, threadgroup const float* squares, bool writes, int simd, int lane, thread stream_part& part) {
  float total = 0.0f;
  UNROLL for (int i = 0; i < STREAM_SIMDS; i++) total += squares[i];
  const float factor = precise::rsqrt(total / float(MATVEC_K) + MATVEC_SUM_EPS);
  UNROLL for (int i = 0; i < STREAM_TAKES; i++) {
    bool own;
    const int take = stream_take(0, simd, lane, i, own);
    thread float* v = part.v[i];
    UNROLL for (int j = 0; j < 8; j++) v[j] = (v[j] * (factor * part.before[i][j]) + part.residual[i][j]) * part.scale;
    if (MATVEC_SUM_KEPT && writes && own) {
      UNROLL for (int h = 0; h < 2; h++) ((device float4*)sum.out)[2 * take + h] = float4(v[4 * h], v[4 * h + 1], v[4 * h + 2], v[4 * h + 3]);
    }
  }
}
#endif

// Applies the norm's weights to what was read and makes digits of it. The norm's factor, which needs all squares, is
// applied to the results. Adds the squares of the elements to square.
inline void stream_make(int segment, int simd, int lane, thread stream_part& part, threadgroup uchar* memory,
                        thread float& square) {
  UNROLL for (int i = 0; i < STREAM_TAKES; i++) {
    bool own;
    const int take = stream_take(segment, simd, lane, i, own);
    thread float* v = part.v[i];
#if MATVEC_HEAD
    float total = 0.0f;
    UNROLL for (int j = 0; j < 8; j++) total += v[j] * v[j];
    UNROLL for (ushort distance = 1; distance < MATVEC_HEAD / 8; distance *= 2) total += simd_shuffle_xor(total, distance);
    const float factor = precise::rsqrt(total / float(MATVEC_HEAD) + MATVEC_EPS);
    UNROLL for (int j = 0; j < 8; j++) v[j] *= factor * port_activate(MATVEC_GATE, part.gates[i][j]);
#elif MATVEC_NORM
    UNROLL for (int j = 0; j < 8; j++) square += own ? v[j] * v[j] : 0.0f;
#endif
#if MATVEC_NORM == 1 || MATVEC_NORM == 2
    UNROLL for (int j = 0; j < 8; j++) v[j] *= part.factors[i][j];
#endif
    stream_digits(v, take, own, memory);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// The digits and factors by which a lane multiplies 128 columns.
struct stream_columns {
  uint digits[8];
  float factor, half_sum;
};

inline void stream_columns_of(int chunk, int lane, threadgroup const uchar* memory, thread stream_columns& out) {
  const int column = lane / 4;
  const int quarter = lane % 4;
  const bool has = quarter < 2 ? column < 3 : column >= 4 && column < 7;
  threadgroup const uchar* from = memory + (has ? STREAM_DIGITS + ((chunk * 3 + column % 4) * 4 + quarter) * 32 : STREAM_ZEROS);
  UNROLL for (int i = 0; i < 2; i++) {
    const uint4 words = ((threadgroup const uint4*)from)[i];
    UNROLL for (int j = 0; j < 4; j++) out.digits[4 * i + j] = words[j];
  }
  out.factor = ((threadgroup const float*)(memory + STREAM_FACTORS))[chunk * 4 + quarter];
  out.half_sum = ((threadgroup const float*)(memory + STREAM_HALF_SUMS))[chunk * 2 + quarter / 2];
}

// Finishes count rows from row first on, with the threads that multiply: adds up the simdgroups' sums, stored as
// STREAM_SUMS says, and applies the norm's factor from the simdgroups' squares.
template <int PLANES, class Product>
inline void stream_finish(thread Product& product, int first, int count, int thread_index, threadgroup const float* kept, threadgroup const float* squares) {
  float factor = 1.0f;
#if MATVEC_NORM && !MATVEC_HEAD
  float total = 0.0f;
  UNROLL for (int i = 0; i < STREAM_SIMDS; i++) total += squares[i];
  factor = precise::rsqrt(total / float(MATVEC_K) + MATVEC_EPS);
#endif
  for (int r = thread_index; r < count; r += STREAM_THREADS) {
    float out[PLANES];
    UNROLL for (int p = 0; p < PLANES; p++) {
      out[p] = 0.0f;
      UNROLL for (int i = 0; i < STREAM_SIMDS; i++) out[p] += kept[(p * STREAM_SIMDS + i) * STREAM_FLUSH + r];
      out[p] *= factor;
    }
    product.end(first + r, out);
  }
}
