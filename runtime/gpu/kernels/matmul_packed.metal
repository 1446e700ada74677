#include "port.h"
#include "weights.h"
#include "lanes.h"
#include "epilogue.h"
// Computes the products of matmul.metal for 17 rows of x and more, with codes of 4 bits. Results differ by roundings. Weights go from
// device memory to the registers that multiply them, as in matmul_direct.metal. Rows of x are copied to threadgroup memory, into
// PACKED_STAGES stages. There port_group_multiply reads them.
//
// Four simdgroups are a group. A group multiplies 64 rows of a weight; each of its simdgroups has 16 of them. A block is 128
// columns. Lane 4g + q has columns 32q to 32q + 31 of rows g and g + 8 of a block. A word of codes is eight of these columns, called
// a, b, ... h. Step 2i of a block multiplies columns a, e, b, f of word i of every lane, and step 2i + 1 columns c, g, d, h: in these
// pairs codes come out of a word. matmul_prepare packs x in the order of the steps: [tile of PACKED_EIGHTS * 8 rows][block][word]
// [a, b, c or d][row][lane of four][that column and the one four further].
//
// A threadgroup has PACKED_SETS groups. Each group has PACKED_TILES times 64 rows of a weight, or of each weight of a gated pair
// (PACKED_PLANES). Groups share the rows of x. They wait for each other only at the counters of stages.
//
// With PACKED_RING a simdgroup copies the codes of its own rows to threadgroup memory, pieces of 256 columns, and reads blocks from there
// into registers one by one. Lanes next to each other copy whole lines of a row. Scales and biases are copied for PACKED_SPAN pieces at a
// time. Nobody else reads them, so a simdgroup waits for nobody else.
//
// The grid is (tiles of rows of x, threadgroups). The blocks of all tiles of columns of y are one sequence, tile after tile. Each
// threadgroup has PACKED_EACH consecutive blocks of it, so that all multiprocessors have the same amount of work. Where several
// threadgroups have blocks of one tile, each writes its sums to device memory, simdgroup by simdgroup, and the last one adds up the
// sums of all. It adds them in the order of columns, so the result does not depend on which one is the last.
#define PORT_WAITS
#ifndef MATMUL_K
#define MATMUL_K 256                    // columns: a multiple of 128
#endif
#ifndef PACKED_EIGHTS
#define PACKED_EIGHTS 4                 // eights of rows of x in a tile: 4, 8 or 16
#define PACKED_SETS 1
#define PACKED_TILES 1
#define PACKED_STAGES 3                 // at least 3: while block n is multiplied, the stage that had block n - 2 is filled
#define PACKED_AHEAD 1                  // blocks of codes read ahead
#define PACKED_PLANES 1                 // 2 for a gated pair of weights
#define PACKED_EACH 2
#endif
#ifndef PACKED_RING
#define PACKED_RING 0                   // pieces of codes in threadgroup memory, or 0 where codes are read into registers
#endif
#ifndef PACKED_SPAN
#define PACKED_SPAN 2                   // pieces whose scales and biases are copied together
#endif
#define PACKED_ROWS (PACKED_EIGHTS * 8)
#define PACKED_GROUP (PACKED_TILES * PACKED_PLANES)  // a group has so many times 64 rows of weights
#define PACKED_COLUMNS (PACKED_SETS * PACKED_TILES * 64)
#define PACKED_SIMDS (PACKED_SETS * 4)
#define PACKED_BLOCKS (MATMUL_K / 128)               // blocks of a tile
// Whether the number of blocks of every part of a tile is a multiple of PACKED_AHEAD.
#define PACKED_EVEN (PACKED_EACH % PACKED_AHEAD == 0 && PACKED_BLOCKS % PACKED_AHEAD == 0)
#define PACKED_ALL ((MATMUL_N + PACKED_COLUMNS - 1) / PACKED_COLUMNS * PACKED_BLOCKS)
#define PACKED_STAGE (PACKED_ROWS * 256)             // bytes of x for a block
#define PACKED_SUMS (PACKED_EIGHTS * 4)              // sums of a lane for 64 rows of weights
#define PACKED_LEFT (PACKED_GROUP * PACKED_EIGHTS)   // a lane has so many times four sums
// A multiprocessor has registers for two threadgroups of one group each.
#define PACKED_BOUND PORT_BOUND(PACKED_SIMDS * 32, PACKED_SETS > 1 ? 1 : 2)

#define PACKED_PIECES (MATMUL_K / 256)               // pieces of a tile
#define PACKED_OWN (PACKED_GROUP * 16)               // rows of a simdgroup
#define PACKED_CODES (PACKED_OWN * 128)              // bytes of codes of a piece
#define PACKED_AFFINES (PACKED_OWN * PACKED_SPAN * 16)  // bytes of scales and biases of PACKED_SPAN pieces
#define PACKED_SPANS ((PACKED_RING + PACKED_SPAN - 2) / PACKED_SPAN + 1 + (PACKED_PIECES % PACKED_SPAN != 0))
#define PACKED_OF_SIMD (PACKED_RING > 0 ? PACKED_RING * PACKED_CODES + PACKED_SPANS * PACKED_AFFINES : 0)
#define PACKED_MEMORY (PACKED_STAGES * PACKED_STAGE + PACKED_SIMDS * PACKED_OF_SIMD)

// The scales or biases of a block of a row.
#if WEIGHT_GROUP == 32
typedef uint2 packed_affine;
#elif WEIGHT_GROUP == 64
typedef uint packed_affine;
#else
typedef ushort packed_affine;
#endif

// A lane's part of a block of a row: its 32 codes, and what dequantizes them, or all scales and biases of the block.
struct packed_codes {
  uint4 codes;
#if PACKED_RING
  port_affine affine;
#else
  packed_affine scales;
  packed_affine biases;
#endif
};

// A weight, or a place in a weight.
struct packed_weights {
  device const uint* w;
  device const WEIGHT_SCALE* scales;
  device const WEIGHT_SCALE* biases;
};

#if !PACKED_RING
// Returns the scale or the bias of a lane's 32 columns, twice.
inline uint packed_twice(packed_affine all, int lane) {
#if WEIGHT_GROUP == 32
  return port_twice(all.x, all.y, lane % 4);
#elif WEIGHT_GROUP == 64
  return port_twice(all, all, lane % 4 / 2);
#else
  return uint(all) * 0x10001u;
#endif
}
#endif

// Returns eight of a lane's weights of a row, those of word i.
inline uint4 packed_numbers(thread const packed_codes& from, int i, int lane) {
#if PACKED_RING
  return port_dequant_pairs(from.codes[i], from.affine);
#else
  const uint scale = packed_twice(from.scales, lane);
  return port_dequant_pairs(from.codes[i], port_affine_of(scale, WEIGHT_BIASES ? packed_twice(from.biases, lane) : port_bias_of(scale)));
#endif
}

// Returns the first row of weights of a lane in a tile.
inline int packed_row(int tile, int thread_index) {
  return tile * PACKED_COLUMNS + thread_index / 128 * (PACKED_TILES * 64) + thread_index / 32 % 4 * 16 + thread_index % 32 / 4;
}

// Moves p from the beginning of a weight to a lane's columns of a block of a row.
inline void packed_find(thread packed_weights& p, int row, int block, int lane) {
  p.w += long(row) * WEIGHT_WORDS(MATMUL_K) + block * WEIGHT_WORDS(128) + lane % 4 * WEIGHT_WORDS(32);
  const long group = long(row) * (MATMUL_K / WEIGHT_GROUP) + block * (128 / WEIGHT_GROUP);
  p.scales += group;
  p.biases += group;
}

#if !PACKED_RING
// Moves the places in all weights on by PACKED_AHEAD blocks.
inline void packed_skip(thread packed_weights* p) {
  UNROLL for (int i = 0; i < PACKED_PLANES; i++) {
    p[i].w += PACKED_AHEAD * WEIGHT_WORDS(128);
    p[i].scales += PACKED_AHEAD * (128 / WEIGHT_GROUP);
    p[i].biases += PACKED_AHEAD * (128 / WEIGHT_GROUP);
  }
}

// Reads a lane's codes of all its rows in one block. from is a place in row number row; the block is ahead blocks after it.
inline void packed_read(thread const packed_weights* from, int row, int ahead, thread packed_codes* out) {
  UNROLL for (int i = 0; i < PACKED_GROUP * 2; i++) {
    const int more = i / 2 / PACKED_PLANES * 64 + i % 2 * 8;
    const int rows = MATMUL_N % PACKED_COLUMNS == 0 ? more : min(more, MATMUL_N - 1 - row);
    const int group = rows * (MATMUL_K / WEIGHT_GROUP) + ahead * (128 / WEIGHT_GROUP), plane = i / 2 % PACKED_PLANES;
    out[i].codes = port_read_once((device const uint4*)(from[plane].w + rows * WEIGHT_WORDS(MATMUL_K) + ahead * WEIGHT_WORDS(128)));
    out[i].scales = *(device const packed_affine*)(from[plane].scales + group);
    if (WEIGHT_BIASES) out[i].biases = *(device const packed_affine*)(from[plane].biases + group);
  }
}
#else
// Where a piece of codes is.
struct packed_place {
  int tile, piece;  // its tile, and its number in the tile
  int slot, span;   // where its codes and its scales are in the memory of a simdgroup
};

// Sets p to the place of a threadgroup's first piece, the one with a block of all tiles.
inline void packed_begin(int block, thread packed_place& p) {
  p.tile = block / PACKED_BLOCKS;
  p.piece = block % PACKED_BLOCKS / 2;
  p.slot = 0;
  p.span = 0;
}

// Moves p on to the next piece.
inline void packed_next(thread packed_place& p) {
  p.slot = p.slot == PACKED_RING - 1 ? 0 : p.slot + 1;
  p.piece++;
  if (p.piece == PACKED_PIECES) {
    p.piece = 0;
    p.tile++;
  }
  if (p.piece % PACKED_SPAN == 0) p.span = p.span == PACKED_SPANS - 1 ? 0 : p.span + 1;
}

// Starts to copy the codes of a piece of a simdgroup's rows to its memory. The scales and biases of PACKED_SPAN pieces are copied with
// the first of them, and with the first piece of all (first).
inline void packed_bring(thread const packed_weights* weights, thread const packed_place& p, bool first, int thread_index, threadgroup uchar* own) {
  const int lane = thread_index % 32, row = packed_row(p.tile, thread_index) - lane / 4;
  threadgroup uchar* codes = own + p.slot * PACKED_CODES + lane / 8 * 128 + ((lane % 8) ^ (lane / 8 % 2 * 4)) * 16;
  UNROLL for (int i = 0; i < PACKED_OWN / 4; i++) {
    const int r = row + i / 4 / PACKED_PLANES * 64 + i % 4 * 4 + lane / 8, near = MATMUL_N % PACKED_COLUMNS == 0 ? r : min(r, MATMUL_N - 1);
    port_copy(codes + i * 512, weights[i / 4 % PACKED_PLANES].w + long(near) * WEIGHT_WORDS(MATMUL_K) + (p.piece * 32 + lane % 8 * 4), true);
  }
  if (first || p.piece % PACKED_SPAN == 0) {
    threadgroup uchar* affines = own + (PACKED_RING * PACKED_CODES + p.span * PACKED_AFFINES);
    const int place = p.piece / PACKED_SPAN * PACKED_SPAN + lane % PACKED_SPAN;
    UNROLL for (int i = 0; i < PACKED_OWN * PACKED_SPAN / 32; i++) {
      const int first_row = i * (32 / PACKED_SPAN), part = first_row / 16;
      const int r = row + part / PACKED_PLANES * 64 + first_row % 16 + lane / PACKED_SPAN, near = MATMUL_N % PACKED_COLUMNS == 0 ? r : min(r, MATMUL_N - 1);
      const long group = long(near) * (MATMUL_K / 64) + min(place, PACKED_PIECES - 1) * 4;
      threadgroup uchar* to = affines + (first_row * PACKED_SPAN + lane) * 16;
      port_copy_half(to, weights[part % PACKED_PLANES].scales + group, place < PACKED_PIECES);
      if (WEIGHT_BIASES) port_copy_half(to + 8, weights[part % PACKED_PLANES].biases + group, place < PACKED_PIECES);
    }
  }
}

// Reads a lane's codes of all its rows in a block: half 0 or 1 of a piece.
inline void packed_take(threadgroup const uchar* own, thread const packed_place& p, int odd, int lane, thread packed_codes* out) {
  threadgroup const uchar* codes = own + p.slot * PACKED_CODES + lane / 4 * 128 + lane % 4 * 16 + ((lane / 4) ^ odd) % 2 * 64;
  threadgroup const uchar* affines = own + (PACKED_RING * PACKED_CODES + p.span * PACKED_AFFINES) + lane / 4 * (PACKED_SPAN * 16) + p.piece % PACKED_SPAN * 16;
  const int group = odd * 2 + lane % 4 / 2;
  UNROLL for (int i = 0; i < PACKED_GROUP * 2; i++) {
    out[i].codes = *(threadgroup const uint4*)(codes + i * 1024);
    const uint4 all = *(threadgroup const uint4*)(affines + i * (PACKED_SPAN * 128));
    const uint scale = port_twice(all.x, all.y, group);
    out[i].affine = port_affine_of(scale, WEIGHT_BIASES ? port_twice(all.z, all.w, group) : port_bias_of(scale));
  }
}
#endif

// The stages of x of a threadgroup, whose blocks are numbered from 0.
struct packed_stages {
  device const uchar* x;  // a tile of rows
  int begin, blocks;      // the number of its first block among the blocks of all tiles, and how many blocks it has
  threadgroup uchar* memory;
  threadgroup port_transfer* full;
  threadgroup port_arrivals* empty;
};

// Starts to copy the rows of x of a block to its stage, as soon as the stage is free. One simdgroup calls it.
inline void packed_copy(thread const packed_stages& stages, int number, int lane) {
  const uint stage = uint(number) % PACKED_STAGES;
  if (number >= PACKED_STAGES) port_arrivals_wait(stages.empty + stage, uint(number) / PACKED_STAGES - 1);
  if (lane != 0) return;
  port_transfer_expect(stages.full + stage, PACKED_STAGE);
  port_transfer_shared(stages.memory + stage * PACKED_STAGE, stages.x + long((stages.begin + number) % PACKED_BLOCKS) * PACKED_STAGE, PACKED_STAGE, stages.full + stage);
}

// Adds to sums [PACKED_GROUP][PACKED_SUMS] the products of word i of a lane's codes with a block of x, for part t of its group, which
// is 64 rows of a weight. a gets the dequantized codes. The tensor cores may still read a after the return.
inline void packed_word(thread const packed_codes* codes, int i, int t, threadgroup const uchar* x, int lane, thread uint4* a, thread float* sums) {
  UNROLL for (int r = 0; r < 2; r++) {
    a[r] = packed_numbers(codes[2 * t + r], i, lane);
  }
  port_group_begin();
  UNROLL for (int h = 0; h < 2; h++) {
    port_group_multiply<PACKED_EIGHTS>(sums + t * PACKED_SUMS, a[0][2 * h], a[1][2 * h], a[0][2 * h + 1], a[1][2 * h + 1], x, (2 * i + h) * PACKED_ROWS * 32, lane);
  }
  port_group_end();
}

// Adds to sums the products of a lane's group with a block of x. The last of them may still run after the return.
inline void packed_block(thread const packed_stages& stages, int number, thread const packed_codes* codes, int thread_index, thread float* sums) {
  const int lane = thread_index % 32, next = number - 2 + PACKED_STAGES;
  threadgroup const uchar* x = stages.memory + uint(number) % PACKED_STAGES * PACKED_STAGE;
  uint4 a[2][2];  // dequantized codes of two steps in turns: those of the step before may still be read
  port_transfer_wait(stages.full + uint(number) % PACKED_STAGES, uint(number) / PACKED_STAGES);
  UNROLL for (int s = 0; s < 4 * PACKED_GROUP; s++) {
    port_group_wait<1>();  // also at the first step: products of the block before may still read a
    if (s == 1) {  // this simdgroup has done block number - 1, and perhaps all have done block number - 2
      if (number > 0) port_arrive(stages.empty + uint(number - 1) % PACKED_STAGES, uint(lane));
      if (thread_index < 32 && number >= 2 && next < stages.blocks) packed_copy(stages, next, lane);
    }
    packed_word(codes, s / PACKED_GROUP, s % PACKED_GROUP, x, lane, a[s % 2], sums);
  }
}

// Returns where threadgroup number number of the grid leaves a lane's sums of the tile that it begins with (part 0) or ends with
// (part 1): [PACKED_LEFT][lane] of float4.
inline device float4* packed_sums(device float* left, uint3 group, uint3 groups, int number, int part, int thread_index) {
  const long at = ((long(group.x) * groups.y + number) * 2 + part) * PACKED_SIMDS + thread_index / 32;
  return (device float4*)left + at * (PACKED_LEFT * 32) + thread_index % 32;
}

// Replaces a lane's sums of blocks first to last - 1 of a tile by the sums of the whole tile, and returns true. Where threadgroups
// share the tile and this simdgroup is not the last one, it leaves its sums in device memory, and returns false.
inline bool packed_join(thread float* sums, int tile, int first, int last, device float* left, device uint* arrivals, uint3 group, uint3 groups, int thread_index) {
  if (first == 0 && last == PACKED_BLOCKS) return true;
  device float4* out = packed_sums(left, group, groups, int(group.y), first == 0, thread_index);
  UNROLL for (int i = 0; i < PACKED_LEFT; i++) out[i * 32] = float4(sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]);
  const int start = tile * PACKED_BLOCKS, begin = start / PACKED_EACH, end = (start + PACKED_BLOCKS - 1) / PACKED_EACH;
  const int counter = (int(group.x) * (PACKED_ALL / PACKED_BLOCKS) + tile) * PACKED_SIMDS + thread_index / 32;
  if (!port_simd_last(arrivals + counter, uint(end - begin + 1), uint(thread_index % 32))) return false;
  UNROLL for (int i = 0; i < 4 * PACKED_LEFT; i++) sums[i] = 0.0f;
  NOUNROLL for (int number = begin; number <= end; number++) {
    device const float4* in = packed_sums(left, group, groups, number, number * PACKED_EACH <= start, thread_index);
    UNROLL for (int i = 0; i < PACKED_LEFT; i++) {
      const float4 v = in[i * 32];
      UNROLL for (int e = 0; e < 4; e++) sums[4 * i + e] += v[e];
    }
  }
  return true;
}

// Does f for every sum of a lane: i is its number, vector its row of x, and col its column of y. It skips those that do not exist.
#define PACKED_RESULTS(f)                                                                           \
  UNROLL for (int i = 0; i < PACKED_TILES * PACKED_SUMS; i++) {                                     \
    const int at = i % PACKED_SUMS, col = row + i / PACKED_SUMS * 64 + at / 2 % 2 * 8;              \
    const int vector = at / 4 * 8 + lane % 4 * 2 + at % 2;                                          \
    if (vector < vectors && col < MATMUL_N) f;                                                      \
  }

// Writes a lane's results for vectors rows of x, from row0 on.
inline void packed_write(thread float* sums, device MATMUL_OUT* y, device const float* extra, int row0, int vectors, int row, int lane) {
#if PACKED_PLANES == 2
  PACKED_RESULTS(matmul_write_glu(y, row0 + vector, col, sums[i / PACKED_SUMS * 2 * PACKED_SUMS + at], sums[(i / PACKED_SUMS * 2 + 1) * PACKED_SUMS + at]))
#else
  // All reads of extra come first, since the compiler cannot know that writes to y do not change extra.
  PACKED_RESULTS(sums[i] = matmul_result(extra, row0 + vector, col, sums[i]))
  PACKED_RESULTS(matmul_store(y, row0 + vector, col, sums[i]))
#endif
}

// Multiplies the blocks of a threadgroup. It writes the tiles of which it has all blocks, and the shared tiles that it finishes last.
inline void packed_products(thread const packed_weights* weights, device const bfloat* x, device float* left, device uint* arrivals,
                            device MATMUL_OUT* y, device const float* extra, device const int* step, uint3 group, uint3 groups, int thread_index,
                            threadgroup uchar* memory, threadgroup port_transfer* full, threadgroup port_arrivals* empty) {
  const int lane = thread_index % 32, begin = int(group.y) * PACKED_EACH, end = min(begin + PACKED_EACH, PACKED_ALL);
  packed_stages stages;
  stages.x = (device const uchar*)x + long(group.x) * (PACKED_ROWS * MATMUL_K * 2);
  stages.begin = begin;
  stages.blocks = end - begin;
  stages.memory = memory;
  stages.full = full;
  stages.empty = empty;
  if (thread_index == 0) {
    port_transfer_init(full, PACKED_STAGES);
    port_arrivals_init(empty, PACKED_STAGES, PACKED_SIMDS);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
#if PACKED_RING
  threadgroup uchar* own = memory + PACKED_STAGES * PACKED_STAGE + thread_index / 32 * PACKED_OF_SIMD;
  packed_place taken, brought;             // the next pieces that are multiplied and copied
  packed_begin(begin, taken);
  packed_begin(begin, brought);
  int rest = (end + 1) / 2 - begin / 2;                       // pieces to be copied
  NOUNROLL for (int i = 0; i < PACKED_RING; i++, rest--) {
    if (rest > 0) packed_bring(weights, brought, i == 0, thread_index, own);
    port_copies_end();
    packed_next(brought);
  }
#endif
  int last = 0;
  NOUNROLL for (int done = begin; done < end; done += last - done % PACKED_BLOCKS) {  // a tile, or a part of a tile
    const int tile = done / PACKED_BLOCKS, first = done % PACKED_BLOCKS, number = done - begin - first;  // of the tile's first block
    const int row = packed_row(tile, thread_index);
    last = min(first + end - done, PACKED_BLOCKS);
    float sums[PACKED_GROUP * PACKED_SUMS];
    UNROLL for (int i = 0; i < PACKED_GROUP * PACKED_SUMS; i++) sums[i] = 0.0f;
#if !PACKED_RING
    const int near = MATMUL_N % PACKED_COLUMNS == 0 ? row : min(row, MATMUL_N - 1);
    packed_weights from[PACKED_PLANES];
    UNROLL for (int i = 0; i < PACKED_PLANES; i++) {
      from[i].w = weights[i].w;
      from[i].scales = weights[i].scales;
      from[i].biases = weights[i].biases;
      packed_find(from[i], near, first, lane);
    }
    packed_codes codes[PACKED_AHEAD][PACKED_GROUP * 2];
    UNROLL for (int j = 0; j < PACKED_AHEAD; j++) {
      if (PACKED_EVEN || first + j < last) packed_read(from, near, j, codes[j]);
    }
#endif
    if (done == begin) {
      port_wait();
      NOUNROLL for (int i = 0; thread_index < 32 && i < min(PACKED_STAGES, stages.blocks); i++) packed_copy(stages, i, lane);
    }
#if PACKED_RING
    // The loop takes a piece at a time and waits for the products of both its blocks together. Of the piece that a threadgroup begins
    // or ends with it may have one block alone.
    NOUNROLL for (int block = first - first % 2; block < last; block += 2) {
      packed_codes even[PACKED_GROUP * 2];
      packed_codes odd[PACKED_GROUP * 2];
      port_copies_arrived<PACKED_RING - 1>();
      simdgroup_barrier(mem_flags::mem_threadgroup);
      packed_take(own, taken, 0, lane, even);
      if (block >= first) packed_block(stages, number + block, even, thread_index, sums);
      packed_take(own, taken, 1, lane, odd);
      if (block + 1 < last) {
        simdgroup_barrier(mem_flags::mem_threadgroup);
        if (rest > 0) packed_bring(weights, brought, false, thread_index, own);
        port_copies_end();
        packed_next(brought);
        packed_next(taken);
        rest--;
        packed_block(stages, number + block + 1, odd, thread_index, sums);
      }
      port_group_wait<0>();
    }
    port_group_taken<PACKED_GROUP * PACKED_SUMS>(sums);
#else
    int block = first;
    NOUNROLL for (; block + PACKED_AHEAD <= last; block += PACKED_AHEAD) {
      packed_skip(from);
      UNROLL for (int j = 0; j < PACKED_AHEAD; j++) {
        packed_block(stages, number + block + j, codes[j], thread_index, sums);
        if (block + j + PACKED_AHEAD < last) packed_read(from, near, j, codes[j]);
      }
    }
    port_group_wait<0>();
    port_group_taken<PACKED_GROUP * PACKED_SUMS>(sums);
    UNROLL for (int j = 0; j < PACKED_AHEAD - 1; j++) {
      if (!PACKED_EVEN && block + j < last) {
        packed_block(stages, number + block + j, codes[j], thread_index, sums);
        port_group_wait<0>();
        port_group_taken<PACKED_GROUP * PACKED_SUMS>(sums);
      }
    }
#endif
    UNROLL for (int i = 0; i < PACKED_GROUP * PACKED_SUMS; i++) sums[i] *= PORT_DEQUANT_UNIT;
    if (packed_join(sums, tile, first, last, left, arrivals, group, groups, thread_index)) {
      const int row0 = int(group.x) * PACKED_ROWS;
      packed_write(sums, y, extra, row0, min(PACKED_ROWS, step[STEP_TOKENS] - row0), row, lane);
    }
  }
}

// y [T, N] = x W^T; x [T, K], packed.
// grid: T / (8 EIGHTS), N / (64 SETS TILES) * K / 128 / EACH
// arguments: matmul
[[max_total_threads_per_threadgroup(PACKED_BOUND)]]
kernel void matmul_packed(device const uint* w [[buffer(0)]],
                          device const WEIGHT_SCALE* scales [[buffer(1)]],
                          device const WEIGHT_SCALE* biases [[buffer(2)]],
                          device const bfloat* x [[buffer(3)]],
                          device const float* extra [[buffer(4)]],
                          device MATMUL_OUT* y [[buffer(5)]],
                          device const int* step [[buffer(6)]],
                          device float* partial [[buffer(7)]],
                          device uint* arrivals [[buffer(8)]],
                          uint3 group [[threadgroup_position_in_grid]],
                          uint3 groups [[threadgroups_per_grid]],
                          uint thread_index [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, PACKED_MEMORY);
  TG_ARRAY(port_transfer, full, PACKED_STAGES);
  TG_ARRAY(port_arrivals, empty, PACKED_STAGES);
  packed_weights weights[PACKED_PLANES];
  UNROLL for (int i = 0; i < PACKED_PLANES; i++) {
    weights[i].w = w;
    weights[i].scales = scales;
    weights[i].biases = biases;
  }
  packed_products(weights, x, partial, arrivals, y, extra, step, group, groups, int(thread_index), memory, full, empty);
}

// y [T, N] = activation(x gate^T) * (x up^T); x [T, K], packed.
// grid: T / (8 EIGHTS), N / (64 SETS TILES) * K / 128 / EACH
[[max_total_threads_per_threadgroup(PACKED_BOUND)]]
kernel void matmul_packed_glu(device const uint* w0 [[buffer(0)]],
                              device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                              device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                              device const uint* w1 [[buffer(3)]],
                              device const WEIGHT_SCALE* scales1 [[buffer(4)]],
                              device const WEIGHT_SCALE* biases1 [[buffer(5)]],
                              device const bfloat* x [[buffer(6)]],
                              device float* partial [[buffer(7)]],
                              device uint* arrivals [[buffer(8)]],
                              device MATMUL_OUT* y [[buffer(9)]],
                              device const int* step [[buffer(10)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint3 groups [[threadgroups_per_grid]],
                              uint thread_index [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, PACKED_MEMORY);
  TG_ARRAY(port_transfer, full, PACKED_STAGES);
  TG_ARRAY(port_arrivals, empty, PACKED_STAGES);
  packed_weights weights[2];
  weights[0].w = w0;
  weights[0].scales = scales0;
  weights[0].biases = biases0;
  weights[1].w = w1;
  weights[1].scales = scales1;
  weights[1].biases = biases1;
  packed_products(weights, x, partial, arrivals, y, partial, step, group, groups, int(thread_index), memory, full, empty);
}
