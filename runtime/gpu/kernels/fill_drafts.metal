#include "port.h"
// Fills drafts into the tokens of a call.

// tokens and y [T]; drafts [N]; index [T]: where it is negative, the token stays.
// grid: T / 256
[[max_total_threads_per_threadgroup(256)]]
kernel void fill_drafts(device const int* tokens [[buffer(0)]],
                        device const int* drafts [[buffer(1)]],
                        device const int* index [[buffer(2)]],
                        device int* y [[buffer(3)]],
                        device const int* step [[buffer(4)]],
                        uint3 at [[thread_position_in_grid]]) {
  if (int(at.x) >= step[STEP_TOKENS]) return;
  const int draft = index[at.x];
  y[at.x] = draft >= 0 ? drafts[draft] : tokens[at.x];
}
