#include "port.h"
// Applies a function to up to three operands and the index of an element, over a strided box of four dims: functions,
// copies, slices, transposes, broadcasts, casts, fills. The host defines the function as EW_F(a, b, c), and the
// conversion of its result, of type EW_T, to the output's type as EW_CAST(v). Dims, strides and first elements are
// expressions of tokens and position. a, b, c: the operands; missing ones may be any buffer. grid: elements / 256
[[max_total_threads_per_threadgroup(256)]]
kernel void elementwise(device const EW_A_T* x0 [[buffer(0)]],  // absent: out
                        device const EW_B_T* x1 [[buffer(1)]],  // absent: x0
                        device const EW_C_T* x2 [[buffer(2)]],  // absent: x1
                        device EW_OUT_T* out [[buffer(3)]],
                        device const int* step [[buffer(4)]],
                        uint thread_index [[thread_position_in_grid]]) {
  const int tokens = step[STEP_TOKENS];
  const int position = step[STEP_POSITION];
  const int index = int(thread_index);
  if (index >= EW_COUNT || position < 0) return;
#if EW_DENSE
  const int at_a = index;
  const int at_b = index;
  const int at_c = index;
  const int at_out = index;
#else
  int rest = index;
  const int i3 = rest % (EW_D3);
  rest /= (EW_D3);
  const int i2 = rest % (EW_D2);
  rest /= (EW_D2);
  const int i1 = rest % (EW_D1);
  const int i0 = rest / (EW_D1);
  const int at_a = EW_AT_A;
  const int at_b = EW_AT_B;
  const int at_c = EW_AT_C;
  const int at_out = EW_AT_OUT;
#endif
  EW_T a = EW_T(0);
  EW_T b = EW_T(0);
  EW_T c = EW_T(0);
#if EW_ARITY > 0
  a = EW_T(x0[at_a]);
#endif
#if EW_ARITY > 1
  b = EW_T(x1[at_b]);
#endif
#if EW_ARITY > 2
  c = EW_T(x2[at_c]);
#endif
  out[at_out] = EW_CAST(EW_F(a, b, c));
}
