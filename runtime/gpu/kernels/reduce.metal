#include "port.h"
// Reductions of rows of REDUCE_N numbers, and softmax, in fp32. The simdgroups of a threadgroup share a row.
#ifndef REDUCE_N
#define REDUCE_N 64
#define REDUCE_HEADS 1        // rows of a token
#define REDUCE_TOKEN 64       // elements from one token to the next, and from one row of a token to the next
#define REDUCE_ROW 64
#define REDUCE_SIMDGROUPS 1
#define REDUCE_KIND 0         // 0: sum, 1: mean, 2: max, 3: min, 4: argmax, 5: argmin
#define REDUCE_OUT_T float
#endif
#define REDUCE_THREADS (REDUCE_SIMDGROUPS * 32)

// Compares candidates for the extremum: the first of equal ones wins. A NaN wins against all where the value of the
// extremum is asked for, and loses against all where its index is.
inline bool reduce_better(float v, int at, float than, int than_at) {
#if REDUCE_KIND < 4
  return v > than || (v != v && than == than);
#else
  return v > than || (v == v && than != than) || ((v == than || (v != v && than != than)) && at < than_at);
#endif
}

// x: rows at the strides above; out [T][HEADS].
// grid: rows
[[max_total_threads_per_threadgroup(REDUCE_THREADS)]]
kernel void reduce(device const float* x [[buffer(0)]],
                   device REDUCE_OUT_T* out [[buffer(1)]],
                   device const int* step [[buffer(2)]],
                   uint row [[threadgroup_position_in_grid]],
                   uint tid [[thread_index_in_threadgroup]],
                   uint sg [[simdgroup_index_in_threadgroup]],
                   uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(float, part, REDUCE_SIMDGROUPS);
  TG_ARRAY(int, place, REDUCE_SIMDGROUPS);
  if (int(row) >= step[STEP_TOKENS] * REDUCE_HEADS) return;
  x += long(int(row) / REDUCE_HEADS) * REDUCE_TOKEN + int(row) % REDUCE_HEADS * REDUCE_ROW;
#if REDUCE_KIND < 2
  float sum = 0.0f;
  for (int i = int(tid); i < REDUCE_N; i += REDUCE_THREADS) sum += x[i];
  sum = simd_sum(sum);
  if (lane == 0) part[sg] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid == 0) {
    for (int i = 1; i < REDUCE_SIMDGROUPS; i++) sum += part[i];
    out[row] = REDUCE_KIND == 1 ? sum / float(REDUCE_N) : sum;
  }
#else
  const float sign = REDUCE_KIND == 3 || REDUCE_KIND == 5 ? -1.0f : 1.0f;
  int at = min(int(tid), REDUCE_N - 1);
  float best = sign * x[at];
  for (int i = int(tid) + REDUCE_THREADS; i < REDUCE_N; i += REDUCE_THREADS) {
    const float v = sign * x[i];
    if (reduce_better(v, i, best, at)) {
      best = v;
      at = i;
    }
  }
  UNROLL for (int w = 16; w > 0; w /= 2) {
    const float v = simd_shuffle_xor(best, ushort(w));
    const int i = simd_shuffle_xor(at, ushort(w));
    if (reduce_better(v, i, best, at)) {
      best = v;
      at = i;
    }
  }
  if (lane == 0) {
    part[sg] = best;
    place[sg] = at;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid == 0) {
    for (int i = 1; i < REDUCE_SIMDGROUPS; i++) {
      if (reduce_better(part[i], place[i], best, at)) {
        best = part[i];
        at = place[i];
      }
    }
    out[row] = REDUCE_KIND < 4 ? REDUCE_OUT_T(sign * best) : REDUCE_OUT_T(at);
  }
#endif
}

// y [T][HEADS][N] = e^(x - max) over its sum. y may be x where the rows are dense.
// grid: rows
[[max_total_threads_per_threadgroup(REDUCE_THREADS)]]
kernel void softmax(device const float* x [[buffer(0)]],
                    device float* y [[buffer(1)]],
                    device const int* step [[buffer(2)]],
                    uint row [[threadgroup_position_in_grid]],
                    uint tid [[thread_index_in_threadgroup]],
                    uint sg [[simdgroup_index_in_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(float, part, 2 * REDUCE_SIMDGROUPS);
  if (int(row) >= step[STEP_TOKENS] * REDUCE_HEADS) return;
  x += long(int(row) / REDUCE_HEADS) * REDUCE_TOKEN + int(row) % REDUCE_HEADS * REDUCE_ROW;
  y += long(row) * REDUCE_N;
  float top = x[min(int(tid), REDUCE_N - 1)];
  for (int i = int(tid) + REDUCE_THREADS; i < REDUCE_N; i += REDUCE_THREADS) top = max(top, x[i]);
  top = simd_max(top);
  if (lane == 0) part[sg] = top;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = 0; i < REDUCE_SIMDGROUPS; i++) top = max(top, part[i]);
  float sum = 0.0f;
  for (int i = int(tid); i < REDUCE_N; i += REDUCE_THREADS) sum += precise::exp(x[i] - top);
  sum = simd_sum(sum);
  if (lane == 0) part[REDUCE_SIMDGROUPS + sg] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sum = 0.0f;
  for (int i = 0; i < REDUCE_SIMDGROUPS; i++) sum += part[REDUCE_SIMDGROUPS + i];
  for (int i = int(tid); i < REDUCE_N; i += REDUCE_THREADS) y[i] = precise::exp(x[i] - top) / sum;
}
