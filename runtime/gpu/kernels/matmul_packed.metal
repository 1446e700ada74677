#include "port.h"
#include "weights.h"
#include "lanes.h"
#include "epilogue.h"
// The products of matmul.metal for 17 to 128 rows of x, with codes of 4 bits: the same buffers but for x, results that differ by
// roundings. Weights go from device memory to the registers that multiply them, as in matmul_direct.metal; rows of x are
// copied to threadgroup memory, PACKED_STAGES stages ahead, where port_group_multiply reads them.
//
// Four simdgroups, 64 rows of a weight, multiply together; each has 16 of the rows. Of a block of 128 columns, lane 4g + q has
// columns 32q to 32q + 31 of rows g and g + 8: a word of codes is eight of them, a, b, ... h. Step 2i + 0 of a block multiplies columns
// a, e, b, f of word i of every lane, step 2i + 1 columns c, g, d, h, since that is how pairs of codes come out of a word.
// matmul_prepare packs x in the order of these steps: [tile of PACKED_EIGHTS * 8 rows][block][word][a, b, c or d][row]
// [lane of four][that column and the one four further].
//
// The grid is (tiles of rows of x, blocks of columns of y). A threadgroup has PACKED_SETS sets of 64 columns of y. For each there are four
// simdgroups, or PACKED_SPLIT times four that share the blocks of columns of x, and as many again for the other weight of a
// gated pair.
#define PORT_WAITS
#ifndef MATMUL_K
#define MATMUL_K 256                    // columns: a multiple of 128 * PACKED_SPLIT
#endif
#ifndef PACKED_EIGHTS
#define PACKED_EIGHTS 4                 // eights of rows of x in a tile: 4, 8 or 16
#define PACKED_SETS 1
#define PACKED_SPLIT 1
#define PACKED_STAGES 2
#define PACKED_AHEAD 1                  // blocks of codes read ahead
#define PACKED_PLANES 1                 // 2 for a gated pair of weights
#endif
#define PACKED_ROWS (PACKED_EIGHTS * 8)
#define PACKED_GROUPS (PACKED_SETS * PACKED_PLANES * PACKED_SPLIT)
#define PACKED_THREADS (PACKED_GROUPS * 128)
#define PACKED_BLOCKS (MATMUL_K / 128 / PACKED_SPLIT)
#define PACKED_BLOCK (PACKED_ROWS * 256)              // bytes of x for 128 columns
#define PACKED_STAGE (PACKED_BLOCK * PACKED_SPLIT)
#define PACKED_PITCH 68                               // floats from one row of x to the next in results: 64, and 4 so that banks differ
#define PACKED_RESULTS (PACKED_GROUPS * PACKED_ROWS * PACKED_PITCH * 4)
#define PACKED_MEMORY (PACKED_STAGES * PACKED_STAGE > PACKED_RESULTS ? PACKED_STAGES * PACKED_STAGE : PACKED_RESULTS)
// Three times four simdgroups have the registers of a multiprocessor.
#define PACKED_BOUND PORT_BOUND(PACKED_THREADS, PACKED_THREADS > 384 ? 1 : 384 / PACKED_THREADS)

// What a lane has of a block of a row: 32 codes, with their scale and bias.
struct packed_codes {
  uint4 codes;
  bfloat scale;
  bfloat bias;
};

// A row of a weight, from a lane's first column on.
struct packed_row {
  device const uint* w;
  device const WEIGHT_SCALE* scales;
  device const WEIGHT_SCALE* biases;
};

inline void packed_find(thread packed_row& r, device const uint* w, device const WEIGHT_SCALE* scales, device const WEIGHT_SCALE* biases, int row, int column) {
  const long at = min(row, MATMUL_N - 1);
  r.w = w + at * WEIGHT_WORDS(MATMUL_K) + WEIGHT_WORDS(column);
  r.scales = scales + at * (MATMUL_K / WEIGHT_GROUP) + column / WEIGHT_GROUP;
  r.biases = biases + at * (MATMUL_K / WEIGHT_GROUP) + column / WEIGHT_GROUP;
}

// Reads a lane's codes of a block, the blocks of its simdgroup being counted from 0.
inline void packed_read(thread const packed_row& r, int block, thread packed_codes& out) {
  const int columns = block * PACKED_SPLIT * 128;
  out.codes = port_read_once((device const uint4*)(r.w + WEIGHT_WORDS(columns)));
  out.scale = r.scales[columns / WEIGHT_GROUP];
  out.bias = WEIGHT_BIASES ? r.biases[columns / WEIGHT_GROUP] : bfloat(float(out.scale) * -8.0f);
}

// Copies the rows of x of a block, of all simdgroups that share columns, to its stage. One thread calls it.
inline void packed_copy(device const uchar* x, int block, threadgroup uchar* memory, threadgroup port_transfer* arrived) {
  const int stage = block % PACKED_STAGES;
  port_transfer_expect(arrived + stage, PACKED_STAGE);
  port_transfer_shared(memory + stage * PACKED_STAGE, x + long(block) * PACKED_STAGE, PACKED_STAGE, arrived + stage);
}

// Adds to sums [PACKED_EIGHTS][4] the products of two rows, 8 apart, of a lane's simdgroup with a block of x.
inline void packed_block(thread const packed_codes* codes, threadgroup const uchar* x, int lane, thread float* sums) {
  uint4 a[2][2];  // of two words in turns: those of the one before may still be read
  UNROLL for (int i = 0; i < 4; i++) {
    if (i >= 2) port_group_wait<1>();
    UNROLL for (int r = 0; r < 2; r++) a[i % 2][r] = port_dequant_pairs(codes[r].codes[i], codes[r].scale, codes[r].bias);
    port_group_begin();
    UNROLL for (int h = 0; h < 2; h++) {
      port_group_multiply<PACKED_EIGHTS>(sums, a[i % 2][0][2 * h], a[i % 2][1][2 * h], a[i % 2][0][2 * h + 1], a[i % 2][1][2 * h + 1], x + (2 * i + h) * PACKED_ROWS * 32, lane);
    }
    port_group_end();
  }
}

// Leaves in results [PACKED_GROUPS][PACKED_ROWS][PACKED_PITCH] the products of the threadgroup's rows of weights with a tile of x.
// The rows are those of plane 0 or 1 as a group of four simdgroups has it.
inline void packed_multiply(device const uint* w0, device const WEIGHT_SCALE* scales0, device const WEIGHT_SCALE* biases0,
                            device const uint* w1, device const WEIGHT_SCALE* scales1, device const WEIGHT_SCALE* biases1,
                            device const bfloat* x, uint3 group, int thread_index, threadgroup uchar* memory, threadgroup port_transfer* arrived) {
  const int lane = thread_index % 32, simd = thread_index / 32, part = simd / 4 % PACKED_SPLIT;
  const bool second = PACKED_PLANES == 2 && simd / 4 / PACKED_SPLIT % 2 == 1;
  const int first = (int(group.y) * PACKED_SETS + simd / (4 * PACKED_SPLIT * PACKED_PLANES)) * 64 + simd % 4 * 16 + lane / 4;
  packed_row rows[2];
  UNROLL for (int r = 0; r < 2; r++) {
    packed_find(rows[r], second ? w1 : w0, second ? scales1 : scales0, second ? biases1 : biases0, first + r * 8, part * 128 + lane % 4 * 32);
  }
  packed_codes codes[PACKED_AHEAD][2];
  UNROLL for (int j = 0; j < PACKED_AHEAD; j++) {
    UNROLL for (int r = 0; r < 2; r++) packed_read(rows[r], min(j, PACKED_BLOCKS - 1), codes[j][r]);
  }
  float sums[PACKED_EIGHTS * 4];
  UNROLL for (int i = 0; i < PACKED_EIGHTS * 4; i++) sums[i] = 0.0f;
  device const uchar* tile = (device const uchar*)x + long(group.x) * (PACKED_ROWS * MATMUL_K * 2);
  if (thread_index == 0) port_transfer_init(arrived, PACKED_STAGES);
  port_wait();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (thread_index == 0) {
    for (int block = 0; block < min(PACKED_STAGES, PACKED_BLOCKS); block++) packed_copy(tile, block, memory, arrived);
  }
  NOUNROLL for (int begin = 0; begin < PACKED_BLOCKS; begin += PACKED_AHEAD) {
    UNROLL for (int j = 0; j < PACKED_AHEAD; j++) {
      const int block = begin + j;
      if (block >= PACKED_BLOCKS) break;
      if (block > 0 || !PORT_TRANSFERS) threadgroup_barrier(mem_flags::mem_threadgroup);  // the block before is multiplied
      const int next = block - 1 + PACKED_STAGES;
      if (thread_index == 0 && block > 0 && next < PACKED_BLOCKS) packed_copy(tile, next, memory, arrived);
      port_transfer_wait(arrived + block % PACKED_STAGES, uint(block / PACKED_STAGES));
      packed_block(codes[j], memory + block % PACKED_STAGES * PACKED_STAGE + part * PACKED_BLOCK, lane, sums);
      if (block + PACKED_AHEAD < PACKED_BLOCKS) {
        UNROLL for (int r = 0; r < 2; r++) packed_read(rows[r], block + PACKED_AHEAD, codes[j][r]);
      }
      port_group_wait<0>();
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup float* results = (threadgroup float*)memory + simd / 4 * (PACKED_ROWS * PACKED_PITCH) + simd % 4 * 16 + lane / 4;
  UNROLL for (int n = 0; n < PACKED_EIGHTS; n++) {
    UNROLL for (int e = 0; e < 4; e++) results[(n * 8 + lane % 4 * 2 + e % 2) * PACKED_PITCH + e / 2 * 8] = sums[n * 4 + e];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// The product of row number row of the tile with a column of a set, of one of its weights.
inline float packed_result(threadgroup const uchar* memory, int set, int plane, int row, int column) {
  threadgroup const float* from = (threadgroup const float*)memory + (set * PACKED_PLANES + plane) * PACKED_SPLIT * (PACKED_ROWS * PACKED_PITCH) + row * PACKED_PITCH + column;
  float sum = 0.0f;
  UNROLL for (int part = 0; part < PACKED_SPLIT; part++) sum += from[part * PACKED_ROWS * PACKED_PITCH];
  return sum;
}

// y [T, N] = x W^T; x [T, K], packed.
// grid: T / (8 EIGHTS), N / (64 SETS)
// arguments: matmul
[[max_total_threads_per_threadgroup(PACKED_BOUND)]]
kernel void matmul_packed(device const uint* w [[buffer(0)]],
                          device const WEIGHT_SCALE* scales [[buffer(1)]],
                          device const WEIGHT_SCALE* biases [[buffer(2)]],
                          device const bfloat* x [[buffer(3)]],
                          device const float* extra [[buffer(4)]],
                          device MATMUL_OUT* y [[buffer(5)]],
                          device const int* step [[buffer(6)]],
                          uint3 group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, PACKED_MEMORY);
  TG_ARRAY(port_transfer, arrived, PACKED_STAGES);
  packed_multiply(w, scales, biases, w, scales, biases, x, group, int(thread_index), memory, arrived);
  const int row0 = int(group.x) * PACKED_ROWS, rows = min(PACKED_ROWS, step[STEP_TOKENS] - row0);
  for (int i = int(thread_index); i < rows * (PACKED_SETS * 64); i += PACKED_THREADS) {
    const int row = i / (PACKED_SETS * 64), set = i / 64 % PACKED_SETS, col = (int(group.y) * PACKED_SETS + set) * 64 + i % 64;
    if (col < MATMUL_N) matmul_write(y, extra, row0 + row, col, packed_result(memory, set, 0, row, i % 64));
  }
}

// y [T, N] = activation(x gate^T) * (x up^T); x [T, K], packed.
// grid: T / (8 EIGHTS), N / (64 SETS)
// arguments: matmul_glu
[[max_total_threads_per_threadgroup(PACKED_BOUND)]]
kernel void matmul_packed_glu(device const uint* w0 [[buffer(0)]],
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
  TG_MEMORY(memory, PACKED_MEMORY);
  TG_ARRAY(port_transfer, arrived, PACKED_STAGES);
  packed_multiply(w0, scales0, biases0, w1, scales1, biases1, x, group, int(thread_index), memory, arrived);
  const int row0 = int(group.x) * PACKED_ROWS, rows = min(PACKED_ROWS, step[STEP_TOKENS] - row0);
  for (int i = int(thread_index); i < rows * (PACKED_SETS * 64); i += PACKED_THREADS) {
    const int row = i / (PACKED_SETS * 64), set = i / 64 % PACKED_SETS, col = (int(group.y) * PACKED_SETS + set) * 64 + i % 64;
    if (col < MATMUL_N) matmul_write_glu(y, row0 + row, col, packed_result(memory, set, 0, row, i % 64), packed_result(memory, set, PACKED_PLANES - 1, row, i % 64));
  }
}
