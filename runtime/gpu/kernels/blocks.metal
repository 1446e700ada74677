#include "port.h"
// Block-wise caches: the keys or values of many sequences in one pool [HEADS][units][ROWS][D]. Row t of a call is at
// position positions[t] of sequence sequences[t]; a negative number says that it belongs to no sequence. Position p of
// a sequence lies in row p mod ROWS of block blocks[sequence][p / ROWS mod COLUMNS].
#ifndef BLOCK_D
#define BLOCK_D 64        // width of a head
#define BLOCK_HEADS 1
#define BLOCK_ROWS 64     // positions of a block
#define BLOCK_COLUMNS 1   // blocks that the table has for a sequence
#define BLOCK_X_TOKEN 64  // elements of x from one row to the next and from one head to the next
#define BLOCK_X_HEAD 64
#define BLOCK_T float
#define BLOCK_GROUP 32    // codes of 8 bits that share a scale
#endif

// block_write copies rows of x into the pool. x: heads of rows at the strides above. step has the number of rows, and
// the number of units of the pool in place of a position. grid: T · HEADS · D / 256
[[max_total_threads_per_threadgroup(256)]]
kernel void block_write(device const float* x [[buffer(0)]],
                        device const int* positions [[buffer(1)]],
                        device const int* sequences [[buffer(2)]],
                        device const int* blocks [[buffer(3)]],
                        device BLOCK_T* pool [[buffer(4)]],
                        device const int* step [[buffer(5)]],
                        uint i [[thread_position_in_grid]]) {
  const int row = int(i / uint(BLOCK_D));
  const int d = int(i % uint(BLOCK_D));
  const int t = row / BLOCK_HEADS;
  if (t >= step[STEP_TOKENS]) return;
  const int position = positions[t];
  if (position < 0) return;
  const int head = row % BLOCK_HEADS;
  const int block = blocks[long(sequences[t]) * BLOCK_COLUMNS + position / BLOCK_ROWS % BLOCK_COLUMNS];
  const long to = (long(head) * step[STEP_POSITION] + block) * BLOCK_ROWS + position % BLOCK_ROWS;
  pool[to * BLOCK_D + d] = BLOCK_T(x[long(t) * BLOCK_X_TOKEN + head * BLOCK_X_HEAD + d]);
}

#define BLOCK_GROUPS (BLOCK_D / BLOCK_GROUP)
#define BLOCK_WORDS (BLOCK_D / 4 + (BLOCK_GROUPS + 1) / 2)

// block_write for a pool [HEADS][units][ROWS][WORDS] of codes of 8 bits: of each row the codes, four to a word, and after
// them the scales of groups, bf16, two to a word. A simdgroup writes a group.
// grid: T · HEADS · GROUPS / 8
// arguments: block_write
[[max_total_threads_per_threadgroup(256)]]
kernel void block_write_codes(device const float* x [[buffer(0)]],
                              device const int* positions [[buffer(1)]],
                              device const int* sequences [[buffer(2)]],
                              device const int* blocks [[buffer(3)]],
                              device BLOCK_T* pool [[buffer(4)]],
                              device const int* step [[buffer(5)]],
                              uint i [[thread_position_in_grid]]) {
  const int lane = int(i % 32u);
  const int group = int(i / 32u) % BLOCK_GROUPS;
  const int row = int(i / 32u) / BLOCK_GROUPS;
  const int t = row / BLOCK_HEADS;
  if (t >= step[STEP_TOKENS]) return;
  const int position = positions[t];
  if (position < 0) return;
  const int head = row % BLOCK_HEADS;
  const int block = blocks[long(sequences[t]) * BLOCK_COLUMNS + position / BLOCK_ROWS % BLOCK_COLUMNS];
  const long place = (long(head) * step[STEP_POSITION] + block) * BLOCK_ROWS + position % BLOCK_ROWS;
  device uint* to = (device uint*)(pool + place * BLOCK_WORDS);
  const int d = group * BLOCK_GROUP + min(lane, BLOCK_GROUP - 1);
  const float v = x[long(t) * BLOCK_X_TOKEN + head * BLOCK_X_HEAD + d];
  // For magnitudes, the order of the bit patterns is the order of the numbers, with NaN above all.
  const int high = simd_max(int(as_type<uint>(v) & 0x7fffffffu));
  uint scale = 0x7fc0u;
  if (high <= 0x7f800000) scale = (as_type<uint>(as_type<float>(uint(high)) * (1.0f / 127.0f)) + 0xffffu) >> 16;
  const float s = as_type<float>(scale << 16);
  int code = 0;
  if (s > 0.0f && s <= 3.4028234e38f) {
    const float rounded = v / s + 12582912.0f;  // 1.5 · 2^23: the sum has no bits for fractions
    code = clamp(int(rounded - 12582912.0f), -127, 127);
  }
  uint word = (uint(code) & 0xffu) << (8 * (lane % 4));
  word |= simd_shuffle_xor(word, ushort(1));
  word |= simd_shuffle_xor(word, ushort(2));
  if (lane < BLOCK_GROUP && lane % 4 == 0) to[d / 4] = word;
  if (lane == 0) {
    device ushort* scales = (device ushort*)(to + BLOCK_D / 4);
    scales[group] = ushort(scale);
    if (BLOCK_GROUPS % 2 == 1 && group == BLOCK_GROUPS - 1) scales[group + 1] = ushort(0);
  }
}
