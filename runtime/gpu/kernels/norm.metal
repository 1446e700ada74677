#include "port.h"
#include "lanes.h"
// RMS normalization (Zhang and Sennrich, arXiv:1910.07467) of rows, with what stands around it in a block:
//
//   v = x                          v = v / rms(v) · pre    where NORM_PRE
//   v = v + residual               where NORM_ADD
//   v = v · scale[0]               where NORM_SCALE
//   sum = v                        where NORM_SUM
//   out = v / rms(v) · weight · activation(gate)           where NORM_OUT; weight where NORM_WEIGHT
//
// with rms(v) = √(mean(v²) + eps). A token has NORM_HEADS rows of NORM_N elements. NORM_SIMDGROUPS simdgroups
// share a row; where one is enough, a threadgroup takes NORM_ROWS rows. A thread takes NORM_VEC elements at a time and
// reads all that it needs before it uses any: one row is over sooner than two reads of memory, one behind the other.
#ifndef NORM_N
#define NORM_N 256
#define NORM_HEADS 1
#define NORM_SIMDGROUPS 1
#define NORM_ROWS 1
#define NORM_VEC 4          // 4, or 1 where N, a stride or an operand is not a multiple of 4 elements
#define NORM_X_TOKEN 256   // elements from one token to the next, and from one row of a token to the next
#define NORM_X_HEAD 256
#define NORM_GATE_TOKEN 256
#define NORM_GATE_HEAD 256
#define NORM_EPS 1e-6f
#define NORM_PRE_EPS 1e-6f
#define NORM_PRE 0
#define NORM_ADD 0
#define NORM_SCALE 0
#define NORM_SUM 0
#define NORM_OUT 1
#define NORM_WEIGHT 1
#define NORM_ACTIVATION ACTIVATION_NONE
#define NORM_GATED 0
#define NORM_PRE_T float
#define NORM_SCALE_T float
#define NORM_WEIGHT_T float
#endif
#ifndef NORM_LANES         // out is bf16 in the order of lanes: rows of 128 elements, or of a multiple or a part of it
#define NORM_LANES 0
#endif
#ifndef NORM_OUT_T
#define NORM_OUT_T float
#endif
#ifndef NORM_EIGHTS        // not 0: out is bf16, packed in tiles of NORM_EIGHTS * 8 rows; a token is one row, of a multiple of 128 elements
#define NORM_EIGHTS 0
#endif
#define PORT_WAITS
#define NORM_THREADS (NORM_SIMDGROUPS * 32)
#define NORM_RUNS (NORM_EIGHTS ? 8 : 1)  // runs of NORM_VEC elements of an item; a thread takes one item at a time
#define NORM_EACH ((NORM_N / NORM_VEC / NORM_RUNS + NORM_THREADS - 1) / NORM_THREADS * NORM_RUNS)  // runs of a thread

// NORM_VEC elements.
inline void norm_read(device const float* from, thread float* v) {
#if NORM_VEC == 4
  const float4 f = *(device const float4*)from;
  UNROLL for (int j = 0; j < 4; j++) v[j] = f[j];
#else
  v[0] = from[0];
#endif
}
inline void norm_read(device const bfloat* from, thread float* v) {
#if NORM_VEC == 4
  const uint2 f = *(device const uint2*)from;
  UNROLL for (int j = 0; j < 2; j++) {
    v[2 * j] = port_bf16_low(f[j]);
    v[2 * j + 1] = port_bf16_high(f[j]);
  }
#else
  v[0] = float(from[0]);
#endif
}
inline void norm_write(device float* to, thread const float* v) {
#if NORM_VEC == 4
  *(device float4*)to = float4(v[0], v[1], v[2], v[3]);
#else
  to[0] = v[0];
#endif
}

inline void norm_write(device bfloat* to, thread const float* v) {
  UNROLL for (int j = 0; j < NORM_VEC; j++) to[j] = bfloat(v[j]);
}

// Returns the first element of run number i of a thread. Its first item has number first; its items are THREADS apart.
// A packed item has two runs for each of four lanes (lanes.h).
inline int norm_at(int first, int i) {
  const int item = first + i / NORM_RUNS * NORM_THREADS;
  return NORM_EIGHTS ? lanes_column(item, i % 8 / 2) + i % 2 * 4 : item * NORM_VEC;
}

// The elements of a row that a thread has: EACH runs of VEC elements. After the end of the row they are zeros.
#define NORM_EACH_RUN                                                                         \
  UNROLL for (int i = 0, at = norm_at(first, 0); i < NORM_EACH; i++, at = norm_at(first, i)) \
    if ((i / NORM_RUNS + 1) * NORM_THREADS * NORM_RUNS * NORM_VEC <= NORM_N || at < NORM_N)
#define NORM_EACH_ELEMENT UNROLL for (int j = 0; j < NORM_VEC; j++)

// Returns the sum of the squares of v over the threads of a row. A call uses one half of part, and the next call the
// other, so that a barrier between the two calls suffices.
inline float norm_squares(thread const float v[NORM_EACH][NORM_VEC], threadgroup float* part, uint sg, uint lane) {
  float sum = 0.0f;
  UNROLL for (int i = 0; i < NORM_EACH; i++) {
    NORM_EACH_ELEMENT sum += v[i][j] * v[i][j];
  }
  sum = simd_sum(sum);
#if NORM_SIMDGROUPS > 1
  if (lane == 0) part[sg] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  sum = simd_sum(lane < NORM_SIMDGROUPS ? part[lane] : 0.0f);
#endif
  return sum;
}

// x: rows at the strides above; pre, weight [N]; residual, sum, out [T][HEADS][N]; scale [1]; gate: rows at its
// strides; step. Unused operands may be any buffer; sum may be residual. No kernel writes pre, scale and weight. grid:
// rows / NORM_ROWS
[[max_total_threads_per_threadgroup(NORM_SIMDGROUPS * NORM_ROWS * 32)]]
kernel void norm(device const float* x [[buffer(0)]],
                 device const NORM_PRE_T* pre [[buffer(1)]],  // absent: x
                 device const float* residual [[buffer(2)]],  // absent: x
                 device const NORM_SCALE_T* scale [[buffer(3)]],  // absent: x
                 device const NORM_WEIGHT_T* weight [[buffer(4)]],  // absent: x
                 device const float* gate [[buffer(5)]],  // absent: x
                 device float* sum [[buffer(6)]],  // absent: x
                 device NORM_OUT_T* out [[buffer(7)]],  // absent: x
                 device const int* step [[buffer(8)]],
                 uint group [[threadgroup_position_in_grid]],
                 uint sg [[simdgroup_index_in_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(float, part, 2 * NORM_SIMDGROUPS);
  const int row = int(group) * NORM_ROWS + (NORM_ROWS > 1 ? int(sg) : 0);
  const int first = int(NORM_ROWS > 1 ? lane : sg * 32 + lane);
  float v[NORM_EACH][NORM_VEC];
#if NORM_PRE
  float before[NORM_EACH][NORM_VEC];
  NORM_EACH_RUN norm_read(pre + at, before[i]);
#endif
#if NORM_OUT && NORM_WEIGHT
  float after[NORM_EACH][NORM_VEC];
  NORM_EACH_RUN norm_read(weight + at, after[i]);
#endif
#if NORM_SCALE
  const float times = float(scale[0]);
#endif
  const int rows = step[STEP_TOKENS] * NORM_HEADS;  // the host wrote it before the sequence
  port_wait();
  if (row >= rows) return;
  x += long(row / NORM_HEADS) * NORM_X_TOKEN + (row % NORM_HEADS) * NORM_X_HEAD;
  gate += long(row / NORM_HEADS) * NORM_GATE_TOKEN + (row % NORM_HEADS) * NORM_GATE_HEAD;
  residual += long(row) * NORM_N;
  sum += long(row) * NORM_N;
  if (!NORM_LANES && !NORM_EIGHTS) out += long(row) * NORM_N;
  UNROLL for (int i = 0; i < NORM_EACH; i++) {
    NORM_EACH_ELEMENT v[i][j] = 0.0f;
  }
  NORM_EACH_RUN norm_read(x + at, v[i]);
#if NORM_ADD
  float other[NORM_EACH][NORM_VEC];
  NORM_EACH_RUN norm_read(residual + at, other[i]);
#endif
#if NORM_OUT && NORM_GATED
  float gates[NORM_EACH][NORM_VEC];
  NORM_EACH_RUN norm_read(gate + at, gates[i]);
#endif
#if NORM_PRE
  const float rms = precise::rsqrt(norm_squares(v, part, sg, lane) / float(NORM_N) + NORM_PRE_EPS);
  NORM_EACH_RUN {
    NORM_EACH_ELEMENT v[i][j] *= rms * before[i][j];
  }
#endif
#if NORM_ADD
  NORM_EACH_RUN {
    NORM_EACH_ELEMENT v[i][j] += other[i][j];
  }
#endif
#if NORM_SCALE
  UNROLL for (int i = 0; i < NORM_EACH; i++) {
    NORM_EACH_ELEMENT v[i][j] *= times;
  }
#endif
#if NORM_SUM
  NORM_EACH_RUN norm_write(sum + at, v[i]);
#endif
#if NORM_OUT
  const float factor = precise::rsqrt(norm_squares(v, part + NORM_SIMDGROUPS, sg, lane) / float(NORM_N) + NORM_EPS);
  NORM_EACH_RUN {
    NORM_EACH_ELEMENT {
      v[i][j] *= factor;
#if NORM_WEIGHT
      v[i][j] *= after[i][j];
#endif
#if NORM_GATED
      v[i][j] *= port_activate(NORM_ACTIVATION, gates[i][j]);
#endif
    }
#if NORM_EIGHTS
    if (i % 8 == 7) lanes_pack(out, row, first + i / 8 * NORM_THREADS, NORM_N, NORM_EIGHTS, v[i - 7]);
#elif NORM_LANES
    NORM_EACH_ELEMENT out[lanes_place(row * NORM_N + at + j)] = NORM_OUT_T(v[i][j]);
#else
    norm_write(out + at, v[i]);
#endif
  }
#endif
}
