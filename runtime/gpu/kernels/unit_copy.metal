#include "port.h"
// Copies units within a pool [OUTER][units][UNIT], one copy after the other. A thread does all copies for its piece of
// a unit, so that a copy may read what the one before it wrote.
#ifndef UNIT_PARTS
#define UNIT_PARTS 1   // of a unit that lie one after the other
#define UNIT_COUNT 1   // units of the pool
#define UNIT_T uint4   // a part
#endif

// pool [OUTER][COUNT][PARTS]; pairs [T][2], from a unit to another; one with a negative number is none.
// grid: PARTS / 256, OUTER
[[max_total_threads_per_threadgroup(256)]]
kernel void unit_copy(device UNIT_T* pool [[buffer(0)]],
                      device const int* pairs [[buffer(1)]],
                      device const int* step [[buffer(2)]],
                      uint3 at [[thread_position_in_grid]]) {
  if (int(at.x) >= UNIT_PARTS) return;
  pool += long(at.y) * (long(UNIT_COUNT) * UNIT_PARTS) + int(at.x);
  const int count = step[STEP_TOKENS];
  for (int n = 0; n < count; n++) {
    const int from = pairs[2 * n];
    const int to = pairs[2 * n + 1];
    if (from >= 0 && to >= 0) pool[long(to) * UNIT_PARTS] = pool[long(from) * UNIT_PARTS];
  }
}
