#include "port.h"
#include "weights.h"
#include "product.h"
#include "stream.h"
#include "lanes.h"
#include "epilogue.h"
// Computes the products of matmul_direct.metal for up to 8 rows of x, with the same buffers. Results differ by roundings. Weights are
// copied to threadgroup memory through a ring of stages, as in a product of one vector (ring.h). So they arrive at the speed of
// device memory.
//
// A threadgroup has STREAM_SIMDS simdgroups that multiply, and one that copies. A simdgroup multiplies the same columns of every
// strip of weights, so these columns of x stay in its registers. Before the first strip x is copied to threadgroup memory, from
// where simdgroups read it. The simdgroup that copies also adds up the sums of a strip, while the other simdgroups multiply the next
// strip. After the last strip the simdgroups that multiply add up.
//
// Codes are not dequantized before they are multiplied. For a group with scale s and bias b:
//   sum (s code + b) x = s sum code x + b sum x
// In the first sum only the fp32 additions round. The second terms of all groups together are a product of their own: biases times the
// sums of x, or scales where no biases are stored. These sums are split into ROWS_TERMS bf16 numbers. No weight is rounded.
//
// A code of 4 bits with nothing else in its 16 bits is a number in bf16: the subnormal code * 2^-133, or code * 2^-129 where it stands four
// bits further up. A tensor core takes these as they are. Columns of x are multiplied by 2^64 for codes of the first kind, and by 2^60 for
// the others. So all sums are code * x * ROWS_UNIT, and are divided by ROWS_UNIT at the end. Of the eight codes of a word four must be shifted.
//
// A step of a tensor core has columns of one group only. A lane has a quarter of a group: 16 consecutive columns.
//
// Where rows of weights are long, ROWS_SHARES threadgroups share the columns of a strip, so that their columns of x fit into
// registers. The threadgroup that is done last adds up the sums of all of them, always in the same order.
//
// The grid is (STREAM_GRID * ROWS_SHARES, blocks of rows of x).
#ifndef MATMUL_K
#define MATMUL_K 256                                     // columns
#define MATMUL_BM 8                                      // rows of x of a block, at most 8
#endif
#ifndef ROWS_SHARES
#define ROWS_SHARES 1                                    // threadgroups that share a strip, with STREAM_COLUMNS columns each
#endif
#define ROWS_TILES (STREAM_STRIP / 16)
#define ROWS_UNIT (WEIGHT_BITS == 4 ? 1.0f / 590295810358705651712.0f : 1.0f)  // 2^-69 or 1
#define ROWS_BIAS (WEIGHT_BIASES ? 1.0f : -float(1 << (WEIGHT_BITS - 1)))  // the bias of a group is so many times its stored bias, or its scale
#define ROWS_TERMS 3
#define ROWS_OWN (STREAM_OWN * 2)                        // groups of a simdgroup: at most 16, as many as one step of a tensor core takes
#define ROWS_AFFINE (MATVEC_K / WEIGHT_GROUP * 2)        // bytes of a row's scales
#define ROWS_PIECE (STREAM_STRIP / STREAM_PLANES / 4)    // rows of a weight that are copied together: a quarter of its rows in a stage
// Bytes from one piece to the next one. Lanes that read at the same time read rows of different pieces. The gap after each piece puts
// these rows into different banks.
#define ROWS_PITCH (ROWS_PIECE * STREAM_ROW + (WEIGHT_BITS == 4 ? 32 : 64))
#define ROWS_SCALES (4 * STREAM_PLANES * ROWS_PITCH)     // where the scales of a stage begin, [rows][groups]; its biases follow
#define ROWS_BIASES (ROWS_SCALES + STREAM_STRIP * ROWS_AFFINE)
#define ROWS_STAGE (ROWS_SCALES + STREAM_STRIP * (1 + WEIGHT_BIASES) * ROWS_AFFINE)
#define ROWS_X_PITCH (STREAM_COLUMNS * 2 + 32)           // bytes from one row of x to the next, so that banks differ
#define ROWS_RING (STREAM_STAGES * ROWS_STAGE)
#ifndef ROWS_X                                           // where x is copied to at first: after the ring, or into its last stages
#define ROWS_X ((ROWS_RING + 127) / 128 * 128)
#endif
#define ROWS_FREE (ROWS_X / ROWS_STAGE < STREAM_STAGES ? ROWS_X / ROWS_STAGE : STREAM_STAGES)  // stages before x
#define ROWS_BEHIND (ROWS_X + MATMUL_BM * ROWS_X_PITCH)
#define ROWS_SUMS (((ROWS_RING > ROWS_BEHIND ? ROWS_RING : ROWS_BEHIND) + 127) / 128 * 128)  // float [2][SIMDS][8][SUMS_PITCH]: sums of two strips in turns
#define ROWS_SUMS_PITCH (STREAM_STRIP + 4)               // so that banks differ
#define ROWS_KEPT (STREAM_SIMDS * 8 * ROWS_SUMS_PITCH)
#define ROWS_MEMORY (ROWS_SUMS + 2 * ROWS_KEPT * 4)
#define ROWS_RESULTS (ROWS_TILES * 4)                    // sums of a lane
#define ROWS_THREADS (STREAM_THREADS + 32)

// One weight.
struct rows_one {
  device const uint* w;
  device const WEIGHT_SCALE* scales;
  device const WEIGHT_SCALE* biases;
  device const float* extra;
  device MATMUL_OUT* y;
  device float* partial;
  device uint* arrivals;
  void place(int at, int plane, thread stream_place& p) thread { stream_row(w, scales, biases, at, p); }
  void end(int row, int col, thread const float* out) thread { matmul_write(y, extra, row, col, out[0]); }
};

// A gated pair of weights.
struct rows_pair {
  device const uint* w[2];
  device const WEIGHT_SCALE* scales[2];
  device const WEIGHT_SCALE* biases[2];
  device MATMUL_OUT* y;
  device float* partial;  // absent, as arrivals are
  device uint* arrivals;
  void place(int at, int plane, thread stream_place& p) thread {
    stream_row(plane ? w[1] : w[0], plane ? scales[1] : scales[0], plane ? biases[1] : biases[0], at, p);
  }
  void end(int row, int col, thread const float* out) thread { matmul_write_glu(y, row, col, out[0], out[1]); }
};

// What a lane keeps of a row of x. numbers are its columns, in the order in which it multiplies them. totals are the sums of x over
// groups times ROWS_BIAS and ROWS_UNIT, split into ROWS_TERMS bf16 numbers.
struct rows_of_x {
  uint4 numbers[STREAM_OWN][4];
  uint totals[ROWS_TERMS * 2];
};

// Splits a and b into ROWS_TERMS bf16 numbers each, the one with the leading bits first. A word has one number of a and one of b.
inline void rows_split(float a, float b, thread uint* out) {
  UNROLL for (int term = 0; term < ROWS_TERMS; term++) {
    const uint word = port_pack_bf16(a, b);
    out[term * 2] = word;
    a -= port_bf16_low(word);
    b -= port_bf16_high(word);
  }
}

// Starts to copy the threadgroup's columns of the first count rows of x, with one simdgroup.
inline void rows_copy(device const bfloat* x, int count, int lane, threadgroup uchar* to, threadgroup port_transfer* arrived) {
  if (lane == 0) port_transfer_expect(arrived, uint(count * STREAM_COLUMNS * 2));
  simdgroup_barrier(mem_flags::mem_none);
  if (lane < count) port_transfer_shared(to + lane * ROWS_X_PITCH, (device const uchar*)(x + long(lane) * MATMUL_K), STREAM_COLUMNS * 2, arrived);
  simdgroup_barrier(mem_flags::mem_none);
}

// Reads the rows of x, and adds them up by group, with a tensor core: its other operand has ones in one row and zeros in all others,
// so that row of the product is the sums of a group. A lane gets the sums of groups 2j, 2j + 1, 2j + 8 and 2j + 9 of row lane / 4 of x,
// with j = lane % 4. scratch is 128 floats.
inline void rows_read(threadgroup const uchar* x, int count, int simd, int lane, threadgroup float* scratch, thread rows_of_x& rows) {
  threadgroup const uchar* from = x + min(lane / 4, count - 1) * ROWS_X_PITCH + simd * STREAM_OWN * 256 + lane % 4 / 2 * 16;
  UNROLL for (int own = 0; own < STREAM_OWN; own++) {
    // A group is eight pieces of eight columns, of which a lane has pieces 2j and 2j + 1. lanes.h says where they stand.
    UNROLL for (int i = 0; i < 4; i++) rows.numbers[own][i] = *(threadgroup const uint4*)(from + own * 256 + lane % 2 * 128 + i % 2 * 64 + i / 2 * 32);
  }
  float sums[4][4];
  UNROLL for (int i = 0; i < 16; i++) sums[i / 4][i % 4] = 0.0f;
  UNROLL for (int group = 0; group < ROWS_OWN; group++) {
    const uint ones = lane / 4 == group % 8 ? 0x3f803f80u : 0u;
    UNROLL for (int i = 0; i < 4; i++) {
      const uint4 v = rows.numbers[group / 2][group % 2 * 2 + i / 2];
      port_mma_bf16(sums[i], group < 8 ? ones : 0u, group < 8 ? 0u : ones, group < 8 ? ones : 0u, group < 8 ? 0u : ones, v[i % 2 * 2], v[i % 2 * 2 + 1]);
    }
  }
  UNROLL for (int e = 0; e < 4; e++) {
    scratch[(lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2] = (sums[0][e] + sums[1][e]) + (sums[2][e] + sums[3][e]);
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  UNROLL for (int eight = 0; eight < 2; eight++) {
    const int at = (lane % 4 * 2 + eight * 8) * 8 + lane / 4;
    rows_split(scratch[at] * (ROWS_BIAS * ROWS_UNIT), scratch[at + 8] * (ROWS_BIAS * ROWS_UNIT), rows.totals + eight);
  }
#if WEIGHT_BITS == 4
  UNROLL for (int i = 0; i < STREAM_OWN * 16; i++) {
    const uint factor = i % 2 ? 0x5d805d80u : 0x5f805f80u;  // 2^60 or 2^64, twice
    rows.numbers[i / 16][i / 4 % 4][i % 4] = port_fma_pair(rows.numbers[i / 16][i / 4 % 4][i % 4], factor, 0x80008000u);
  }
#endif
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Fills rows with zeros.
inline void rows_nothing(thread rows_of_x& rows) {
  UNROLL for (int i = 0; i < STREAM_OWN * 4; i++) rows.numbers[i / 4][i % 4] = uint4(0, 0, 0, 0);
  UNROLL for (int i = 0; i < ROWS_TERMS * 2; i++) rows.totals[i] = 0u;
}

// Returns which row of a weight in a stage a lane has, for eight rows that a step multiplies. The row is in piece lane / 4 % 4. eight
// is the number of these eight rows; in a pair of weights, eights of both weights take turns.
template <int PLANES>
inline int rows_row(int eight, int lane) { return lane / 4 % 4 * ROWS_PIECE + eight / PLANES * 2 + lane / 16; }

// Reads a lane's codes of a group of a row: 16 consecutive columns.
#define ROWS_WORDS (WEIGHT_BITS / 2)
inline void rows_codes(threadgroup const uchar* from, thread uint* out) {
#if WEIGHT_BITS == 4
  const uint2 words = *(threadgroup const uint2*)from;
  UNROLL for (int i = 0; i < 2; i++) out[i] = words[i];
#else
  const uint4 words = *(threadgroup const uint4*)from;
  UNROLL for (int i = 0; i < 4; i++) out[i] = words[i];
#endif
}

// Returns codes i and i + 4 of eight codes in bf16. Those of 4 bits are multiplied by 2^-133, or 2^-129 where i is odd.
inline uint rows_pair_of(thread const uint* codes, int eight, int i) {
#if WEIGHT_BITS == 4
  return (codes[eight] >> (i / 2 * 8)) & (i % 2 ? 0x00f000f0u : 0x000f000fu);
#else
  return port_pack_bf16(port_byte_float(codes[eight * 2], i), port_byte_float(codes[eight * 2 + 1], i));
#endif
}

// Adds to the sums of two rows the products of a simdgroup's biases, or scales where there are none, with sums of x. first and second
// are the biases or scales of the two rows, terms the sums (rows_of_x).
inline void rows_affine(threadgroup const uchar* first, threadgroup const uchar* second, int lane, thread const uint* terms, thread float* sums) {
  const int low = lane % 4 * 2, high = low + 8;
  const int at = low < ROWS_OWN ? low * 2 : 0, behind = high < ROWS_OWN ? high * 2 : 0;  // terms are zeros for groups that do not exist
  uint words[4];
  UNROLL for (int i = 0; i < 4; i++) words[i] = *(threadgroup const uint*)((i % 2 ? second : first) + (i < 2 ? at : behind));
  UNROLL for (int term = 0; term < ROWS_TERMS; term++) port_mma_bf16(sums, words[0], words[1], words[2], words[3], terms[term * 2], terms[term * 2 + 1]);
}

// Adds to sums [TILES][4] the products of a simdgroup's columns of a stage with the rows of x.
template <int PLANES>
inline void rows_multiply(threadgroup const uchar* stage, thread const rows_of_x& rows, int share, int simd, int lane, thread float* sums) {
  UNROLL for (int tile = 0; tile < ROWS_TILES; tile++) {
    threadgroup const uchar* scales[2];
    threadgroup const uchar* codes[2];
    UNROLL for (int h = 0; h < 2; h++) {
      const int row = rows_row<PLANES>(2 * tile + h, lane), plane = PLANES == 1 ? 0 : h;
      scales[h] = stage + ROWS_SCALES + (plane * 4 * ROWS_PIECE + row) * ROWS_AFFINE + (share * STREAM_CHUNKS + simd * STREAM_OWN) * 4;
      codes[h] = stage + plane * 4 * ROWS_PITCH + row * STREAM_ROW + lane / 4 % 4 * (ROWS_PITCH - ROWS_PIECE * STREAM_ROW) + (simd * STREAM_OWN * 128 + lane % 4 * 16) * WEIGHT_BITS / 8;
    }
    thread float* out = sums + tile * 4;
    const int biases = WEIGHT_BIASES ? ROWS_BIASES - ROWS_SCALES : 0;
    rows_affine(scales[0] + biases, scales[1] + biases, lane, rows.totals, out);
    UNROLL for (int own = 0; own < STREAM_OWN; own++) {
      uint scale[2];  // each has the scales of two groups
      UNROLL for (int h = 0; h < 2; h++) scale[h] = *(threadgroup const uint*)(scales[h] + own * 4);
      UNROLL for (int group = 0; group < 2; group++) {
        uint words[2][ROWS_WORDS];
        UNROLL for (int h = 0; h < 2; h++) rows_codes(codes[h] + (own * 128 + group * 64) * WEIGHT_BITS / 8, words[h]);
        float products[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        UNROLL for (int i = 0; i < 4; i++) {
          const uint4 v = rows.numbers[own][group * 2 + i / 2];
          const int u = i % 2 * 2;
          port_mma_bf16(products, rows_pair_of(words[0], i / 2, u), rows_pair_of(words[1], i / 2, u), rows_pair_of(words[0], i / 2, u + 1),
                        rows_pair_of(words[1], i / 2, u + 1), v[u], v[u + 1]);
        }
        UNROLL for (int e = 0; e < 4; e++) out[e] += (group == 0 ? port_bf16_low(scale[e / 2]) : port_bf16_high(scale[e / 2])) * products[e];
      }
    }
  }
}

// Stores a simdgroup's sums of a strip in kept, divided by ROWS_UNIT, and then sets them to zero.
inline void rows_keep(thread float* sums, int simd, int lane, threadgroup float* kept) {
  UNROLL for (int i = 0; i < ROWS_RESULTS; i++) {
    const int tile = i / 4, e = i % 4;
    kept[(simd * 8 + lane % 4 * 2 + e % 2) * ROWS_SUMS_PITCH + tile * 16 + e / 2 * 8 + lane / 4] = sums[i] * (1.0f / ROWS_UNIT);
    sums[i] = 0.0f;
  }
}

// Adds up the sums of all simdgroups for a strip, with threads threads. The product gets the results; where threadgroups share
// columns, they go to partial instead. A thread takes one row of each of the four pieces at a time.
template <int PLANES, class Product>
inline void rows_finish(thread Product& product, thread const stream_strip& strip, int row0, int count, int thread_index, int threads, threadgroup const float* kept) {
  for (int i = thread_index; i < count * ROWS_PIECE; i += threads) {
    const int row = i / ROWS_PIECE, first = i % ROWS_PIECE;
    float4 out[PLANES];
    UNROLL for (int p = 0; p < PLANES; p++) {
      threadgroup const float* sums = kept + row * ROWS_SUMS_PITCH + (PLANES == 1 ? first * 4 : first / 2 * 16 + p * 8 + first % 2 * 4);
      out[p] = *(threadgroup const float4*)sums;
      UNROLL for (int s = 1; s < STREAM_SIMDS; s++) out[p] = out[p] + *(threadgroup const float4*)(sums + s * 8 * ROWS_SUMS_PITCH);
    }
    UNROLL for (int piece = 0; piece < 4; piece++) {
      const int r = piece * ROWS_PIECE + first;
      if (r >= strip.count) continue;
#if ROWS_SHARES > 1
      product.partial[row * STREAM_ALL + strip.at + r] = out[0][piece];
#else
      float of[PLANES];
      UNROLL for (int p = 0; p < PLANES; p++) of[p] = out[p][piece];
      product.end(row0 + row, strip.at + r, of);
#endif
    }
  }
}

// Advances strip to the next strip. In the simdgroup that copies (copies is true) it first starts to copy share number share of the
// strip to stage number slot.
template <int PLANES, class Product>
inline void rows_start(thread Product& product, thread stream_strip& strip, int share, bool copies, int slot, int lane, threadgroup uchar* memory, threadgroup port_transfer* arrived) {
  if (strip.at >= strip.end) return;
  if (copies) {
    threadgroup port_transfer* to = arrived + slot;
    if (lane == 0) port_transfer_expect(to, uint(PLANES * strip.count * (STREAM_ROW + (1 + WEIGHT_BIASES) * ROWS_AFFINE)));
    simdgroup_barrier(mem_flags::mem_none);
    const int plane = PLANES == 1 ? 0 : lane / 16, own = PLANES == 1 ? lane : lane % 16;
    stream_place from;
    product.place(strip.at, plane, from);
    threadgroup uchar* stage = memory + slot * ROWS_STAGE;
    threadgroup uchar* affine = stage + plane * 4 * ROWS_PIECE * ROWS_AFFINE;
#if ROWS_SHARES > 1
    // Codes are copied row by row. Scales and biases are copied for all columns, since those of a share are too small to copy alone.
    UNROLL for (int first = 0; first < STREAM_STRIP; first += 32) {
      const int r = first + lane;
      if (r < strip.count) port_transfer_copy(stage + r / ROWS_PIECE * ROWS_PITCH + r % ROWS_PIECE * STREAM_ROW, from.codes + long(r) * (MATVEC_K * WEIGHT_BITS / 8) + share * STREAM_ROW, STREAM_ROW, to);
      simdgroup_barrier(mem_flags::mem_none);
    }
    if (lane < 1 + WEIGHT_BIASES) port_transfer_shared(affine + (lane == 0 ? ROWS_SCALES : ROWS_BIASES), lane == 0 ? from.scales : from.biases, uint(strip.count * ROWS_AFFINE), to);
#else
    // Four lanes copy the four pieces of codes. The next lane copies scales, and the one after it biases.
    const int rows = own < 4 ? min(strip.count - own * ROWS_PIECE, ROWS_PIECE) : strip.count;
    if (own < 5 + WEIGHT_BIASES && rows > 0) {
      port_transfer_copy(own < 4 ? stage + (plane * 4 + own) * ROWS_PITCH : affine + (own == 4 ? ROWS_SCALES : ROWS_BIASES),
                         own < 4 ? from.codes + own * ROWS_PIECE * STREAM_ROW : own == 4 ? from.scales : from.biases, uint(rows * (own < 4 ? STREAM_ROW : ROWS_AFFINE)), to);
    }
#endif
  }
  strip.at += strip.count;
  if (strip.at < strip.end) stream_look(strip, STREAM_STRIP / PLANES);
}

// Runs a product of a block of rows of x.
template <int PLANES, class Product>
inline void rows_run(thread Product& product, uint3 group, int thread_index, device const bfloat* x, device const int* step, threadgroup uchar* memory, threadgroup port_transfer* arrived, threadgroup uint* flag) {
  static_assert(PLANES != STREAM_PLANES || ROWS_MEMORY <= STREAM_BYTES, "STREAM_BYTES");
  static_assert(STREAM_STRIP % 16 == 0 && STREAM_AHEAD < STREAM_STAGES && STREAM_AHEAD <= ROWS_FREE && ROWS_X % 128 == 0, "STREAM_STRIP and STREAM_STAGES");
  static_assert(STREAM_OWN * STREAM_SIMDS * 128 == STREAM_COLUMNS && STREAM_COLUMNS * ROWS_SHARES == MATVEC_K && ROWS_OWN <= 16, "STREAM_COLUMNS");
  static_assert(ROWS_SHARES == 1 || STREAM_PLANES == 1, "ROWS_SHARES");
  const int row0 = int(group.y) * MATMUL_BM;
  const int count = min(step[STEP_TOKENS] - row0, MATMUL_BM);
  if (count <= 0) return;
  const int share = int(group.x) % ROWS_SHARES, place = int(group.x) / ROWS_SHARES;
  x += long(row0) * MATMUL_K + share * STREAM_COLUMNS;
  if (ROWS_SHARES > 1) product.partial += long(int(group.y) * ROWS_SHARES + share) * MATMUL_BM * STREAM_ALL;
  const int lane = thread_index % 32;
  const int simd = simd_broadcast_first(thread_index / 32);  // so that the compiler knows that all lanes have the same value
  const bool copies = simd == STREAM_SIMDS;
  stream_strip strip;  // the strip that is multiplied
  strip.at = stream_first(place);
  strip.end = min(stream_first(place + 1), STREAM_ALL);
  strip.number = 0;
  stream_look(strip, STREAM_STRIP / PLANES);
  stream_strip next = strip;  // the strip that is copied
  rows_of_x rows;
  rows_nothing(rows);
  float sums[ROWS_RESULTS];
  UNROLL for (int i = 0; i < ROWS_RESULTS; i++) sums[i] = 0.0f;
  threadgroup float* kept = (threadgroup float*)(memory + ROWS_SUMS);
  if (copies && lane == 0) port_transfer_init(arrived, STREAM_STAGES + 1);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  UNROLL for (int i = 0; i < STREAM_AHEAD; i++) rows_start<PLANES>(product, next, share, copies, i, lane, memory, arrived);
  int slot = 0;
  int round = 0;
  int odd = 0;  // which half of kept has the sums of the strip
  // Turn -1 is the warm-up that ring.h describes: it multiplies whatever threadgroup memory contains.
  int turn = group.x != ~0u ? -1 : 0;
  NOUNROLL for (; strip.at < strip.end; turn++) {
    const bool rehearsal = turn < 0;
    if (turn == 0) {
      port_wait();
      if (copies) rows_copy(x, count, lane, memory + ROWS_X, arrived + STREAM_STAGES);
      UNROLL for (int i = STREAM_AHEAD; i < ROWS_FREE; i++) rows_start<PLANES>(product, next, share, copies, i, lane, memory, arrived);
    }
#if !PORT_TRANSFERS
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    if (!copies) {
      if (turn == 0) {
        port_transfer_wait(arrived + STREAM_STAGES, 0);
        rows_read(memory + ROWS_X, count, simd, lane, kept + simd * 8 * ROWS_SUMS_PITCH, rows);
      }
      if (!rehearsal) port_transfer_wait(arrived + slot, uint(round));
      rows_multiply<PLANES>(memory + (rehearsal ? STREAM_STAGES - 1 : slot) * ROWS_STAGE, rows, share, simd, lane, sums);
      rows_keep(sums, simd, lane, kept + odd * ROWS_KEPT);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (rehearsal) continue;
    const stream_strip done = strip;
    strip.at += strip.count;
    if (strip.at < strip.end) stream_look(strip, STREAM_STRIP / PLANES);
    if (turn == 0) {  // x is in registers now: fill the stages where it was
      UNROLL for (int i = ROWS_FREE; i < STREAM_STAGES; i++) rows_start<PLANES>(product, next, share, copies, i, lane, memory, arrived);
    }
    rows_start<PLANES>(product, next, share, copies, slot, lane, memory, arrived);  // fill the stage that this turn has read
    slot++;
    if (slot == STREAM_STAGES) {
      slot = 0;
      round++;
    }
    const bool last = strip.at >= strip.end;
    if (copies != last) rows_finish<PLANES>(product, done, row0, count, last ? thread_index : lane, last ? STREAM_THREADS : 32, kept + odd * ROWS_KEPT);
    odd = 1 - odd;
  }
#if ROWS_SHARES > 1
  if (!port_last(product.arrivals + int(group.y) * STREAM_GRID + place, ROWS_SHARES, uint(thread_index), flag)) return;
  const int first = stream_first(place), all = min(stream_first(place + 1), STREAM_ALL) - first;
  device const float* sums_of = product.partial - share * (MATMUL_BM * STREAM_ALL) + first;
  for (int i = thread_index; i < count * all; i += ROWS_THREADS) {
    const int row = i / all, r = i % all;
    float out[PLANES];
    out[0] = 0.0f;
    UNROLL for (int s = 0; s < ROWS_SHARES; s++) out[0] += sums_of[(s * MATMUL_BM + row) * STREAM_ALL + r];
    product.end(row0 + row, first + r, out);
  }
#endif
}

// y [T, N] = x W^T; x [T, K] in the order of lanes. With ROWS_SHARES above 1 it uses partial [T / BM][SHARES][BM][N], and
// arrivals [T / BM][GRID], which are zeros before and after. Else both are absent.
// grid: GRID SHARES, T / BM
// arguments: matmul
[[max_total_threads_per_threadgroup(PORT_BOUND(ROWS_THREADS, STREAM_ROOM))]]
kernel void matmul_stream(device const uint* w [[buffer(0)]],
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
  TG_MEMORY(memory, STREAM_BYTES);
  TG_ARRAY(port_transfer, arrived, STREAM_STAGES + 1);
  TG_ARRAY(uint, flag, 1);
  rows_one product = {w, scales, biases, extra, y, partial, arrivals};
  rows_run<1>(product, group, int(thread_index), x, step, memory, arrived, flag);
}

// y [T, N] = activation(x gate^T) * (x up^T); x [T, K] in the order of lanes.
// grid: GRID, T / BM
// arguments: matmul_glu
[[max_total_threads_per_threadgroup(PORT_BOUND(ROWS_THREADS, STREAM_ROOM))]]
kernel void matmul_stream_glu(device const uint* w0 [[buffer(0)]],
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
  TG_MEMORY(memory, STREAM_BYTES);
  TG_ARRAY(port_transfer, arrived, STREAM_STAGES + 1);
  TG_ARRAY(uint, flag, 1);
  rows_pair product = {{w0, w1}, {scales0, scales1}, {biases0, biases1}, y, 0, 0};
  rows_run<2>(product, group, int(thread_index), x, step, memory, arrived, flag);
}
