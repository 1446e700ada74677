#include "port.h"
// out[i] = f(a[i], b[i]) for tensors of up to four dims whose elements lie at strides of their own; a stride of
// 0 repeats. A thread makes one element.
#ifndef STRIDED_N
#define STRIDED_N 64         // elements
#define STRIDED_D1 1         // dims, the last innermost; the first follows from the others
#define STRIDED_D2 1
#define STRIDED_D3 64
#define STRIDED_A0 0         // strides of a, b and out
#define STRIDED_A1 0
#define STRIDED_A2 0
#define STRIDED_A3 1
#define STRIDED_B0 0
#define STRIDED_B1 0
#define STRIDED_B2 0
#define STRIDED_B3 1
#define STRIDED_O0 0
#define STRIDED_O1 0
#define STRIDED_O2 0
#define STRIDED_O3 1
#define STRIDED_A_T float
#define STRIDED_F(a, b) ((a) + (b))
#define STRIDED_ACTIVATION ACTIVATION_NONE
#endif

// grid: N / 256
[[max_total_threads_per_threadgroup(256)]]
kernel void strided(device const STRIDED_A_T* a [[buffer(0)]],
                    device const float* b [[buffer(1)]],
                    device float* out [[buffer(2)]],
                    uint i [[thread_position_in_grid]]) {
  const int at = int(i);
  if (at >= STRIDED_N) return;
  const int i3 = at % STRIDED_D3;
  const int r2 = at / STRIDED_D3;
  const int i2 = r2 % STRIDED_D2;
  const int r1 = r2 / STRIDED_D2;
  const int i1 = r1 % STRIDED_D1;
  const int i0 = r1 / STRIDED_D1;
  const float x = float(a[i0 * STRIDED_A0 + i1 * STRIDED_A1 + i2 * STRIDED_A2 + i3 * STRIDED_A3]);
  const float y = b[i0 * STRIDED_B0 + i1 * STRIDED_B1 + i2 * STRIDED_B2 + i3 * STRIDED_B3];
  out[i0 * STRIDED_O0 + i1 * STRIDED_O1 + i2 * STRIDED_O2 + i3 * STRIDED_O3] = STRIDED_F(x, y);
}
