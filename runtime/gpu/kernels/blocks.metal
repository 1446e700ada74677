#include "port.h"
// Caches in blocks: keys or values of many sequences in one pool [HEADS][units][ROWS][D]. Row t of a call stands at
// positions[t] of the sequence of number sequences[t]; below 0 it is of none. Position p of a sequence lies in row
// p mod ROWS of block blocks[sequence][p / ROWS mod COLUMNS].
#ifndef BLOCK_D
#define BLOCK_D 64        // width of a head
#define BLOCK_HEADS 1
#define BLOCK_ROWS 64     // positions of a block
#define BLOCK_COLUMNS 1   // blocks that the table has for a sequence
#define BLOCK_X_TOKEN 64  // elements of x from one row to the next and from one head to the next
#define BLOCK_X_HEAD 64
#define BLOCK_T float
#endif

// x: heads of rows at the strides above. step: the rows, and the units of the pool in the place of a position.
// grid: T · HEADS · D / 256
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
