#include "port.h"
// Reads rows of a table by index. Negative indices count from the end; indices outside are clamped.
#ifndef GATHER_N
#define GATHER_N 64           // elements of a row
#define GATHER_ROWS 1         // of the table
#define GATHER_EACH 1         // numbers to a token
#define GATHER_T float
#define GATHER_OUT_T float
#define GATHER_CAST(v) float(v)
#define GATHER_INDEX_T int
#endif

// table [ROWS][N]; index [T][EACH]; out [T][EACH][N].
// grid: T · EACH · N / 256
[[max_total_threads_per_threadgroup(256)]]
kernel void gather_rows(device const GATHER_T* table [[buffer(0)]],
                        device const GATHER_INDEX_T* index [[buffer(1)]],
                        device GATHER_OUT_T* out [[buffer(2)]],
                        device const int* step [[buffer(3)]],
                        uint i [[thread_position_in_grid]]) {
  const int at = int(i) / GATHER_N;
  if (at >= step[STEP_TOKENS] * GATHER_EACH) return;
  int row = int(index[at]);
  if (row < 0) row += GATHER_ROWS;
  row = clamp(row, 0, GATHER_ROWS - 1);
  out[i] = GATHER_CAST(table[long(row) * GATHER_N + int(i) % GATHER_N]);
}
