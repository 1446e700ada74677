#include "port.h"
#include "weights.h"
#include "product.h"
#include "matvec.h"
#include "conv.h"
// y = x W^T for up to 8 rows of x, with stored weights W [N, K]: one weight with an epilogue; up to four weights with
// the same x, and a convolution of the first one's results; a gated pair. Rows of y from step[STEP_TOKENS] on are not
// written.

#define MATVEC_GROUPS(n) (((n) + MATVEC_BLOCK - 1) / MATVEC_BLOCK)

// Returns the number of rows of x.
inline int matvec_vectors(device const int* step) {
#if MATVEC_M == 1
  return 1;
#else
  port_wait();
  return min(step[STEP_TOKENS], MATVEC_M);
#endif
}

[[max_total_threads_per_threadgroup(MATVEC_THREADS)]]
kernel void matvec(device const uint* w [[buffer(0)]],
                   device const WEIGHT_SCALE* scales [[buffer(1)]],
                   device const WEIGHT_SCALE* biases [[buffer(2)]],
                   device const float* x [[buffer(3)]],
                   device const MATVEC_NORM_T* norm [[buffer(4)]],  // absent: x
                   device const float* gate [[buffer(5)]],  // absent: x
                   device const float* extra [[buffer(6)]],  // absent: x
                   device float* y [[buffer(7)]],
                   device const int* step [[buffer(8)]],
                   uint group [[threadgroup_position_in_grid]],
                   uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, stage, MATVEC_STAGE);
  TG_ARRAY(float, shared, MATVEC_SHARED(1));
  matvec_place at;
  matvec_find(at, thread_index);
  const int row0 = int(group) * MATVEC_BLOCK + matvec_row(at);
  const int vectors = matvec_vectors(step);
  float sums[MATVEC_OUTS];
  float squares[MATVEC_M];
  float out[1];
  matvec_sums<1, 1>(w, scales, biases, w, scales, biases, MATVEC_N0, row0, step, x, x, vectors, norm, stage, at, sums, squares, gate);
  // The operand of the epilogue is loaded while the sums are added up.
  const int row = row0 + at.lane / MATVEC_M;
  const int vector = at.lane % MATVEC_M;
  const long to = long(vector) * MATVEC_N0 + row;
  const bool is = at.lane < MATVEC_OUTS && row < MATVEC_N0 && vector < vectors;
  const float term = is ? matvec_extra(extra, to, row) : 0.0f;
  if (!matvec_finish<1>(sums, squares, shared, at, out) || !is) return;
  y[to] = matvec_end(out[0], term);
}

// Up to four weights. The thread that has a result finishes it. A result of weight 0 that is a channel of the
// convolution becomes the last row of the channel's state, and the convolution's output goes to conv_y. With CONV_SLOTS
// the state lies in a slot of a pool, by the tables entries [CONV_SLOTS][3] and writes [1] of a call of several
// sequences.
[[max_total_threads_per_threadgroup(MATVEC_THREADS)]]
kernel void matvec_many(device const uint* w0 [[buffer(0)]],
                        device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                        device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                        device float* y0 [[buffer(3)]],
                        device const uint* w1 [[buffer(4)]],  // absent: w0
                        device const WEIGHT_SCALE* scales1 [[buffer(5)]],
                        device const WEIGHT_SCALE* biases1 [[buffer(6)]],
                        device float* y1 [[buffer(7)]],  // absent: y0
                        device const uint* w2 [[buffer(8)]],  // absent: w0
                        device const WEIGHT_SCALE* scales2 [[buffer(9)]],
                        device const WEIGHT_SCALE* biases2 [[buffer(10)]],
                        device float* y2 [[buffer(11)]],  // absent: y0
                        device const uint* w3 [[buffer(12)]],  // absent: w0
                        device const WEIGHT_SCALE* scales3 [[buffer(13)]],
                        device const WEIGHT_SCALE* biases3 [[buffer(14)]],
                        device float* y3 [[buffer(15)]],  // absent: y0
                        device const float* x [[buffer(16)]],
                        device const MATVEC_NORM_T* norm [[buffer(17)]],  // absent: x
                        device const CONV_WEIGHT_T* conv_w [[buffer(18)]],  // absent: w0
                        device const uchar* reset [[buffer(19)]],  // absent: conv_w
                        device const CONV_STATE_T* state [[buffer(20)]],  // absent: w0
                        device float* conv_y [[buffer(21)]],  // absent: w0
                        device CONV_STATE_T* next [[buffer(22)]],  // absent: w0
                        device float* activated [[buffer(23)]],  // absent: w0
                        device const int* entries [[buffer(24)]],  // absent: w0
                        device const int* writes [[buffer(25)]],  // absent: w0
                        device const int* step [[buffer(26)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, stage, MATVEC_STAGE);
  TG_ARRAY(float, shared, MATVEC_SHARED(1));
  matvec_place at;
  matvec_find(at, thread_index);
  int block = int(group);
  int which = 0;
  int rows = MATVEC_N0;
  if (block >= MATVEC_GROUPS(MATVEC_N0)) {
    block -= MATVEC_GROUPS(MATVEC_N0);
    which = 1;
    rows = MATVEC_N1;
    w0 = w1;
    scales0 = scales1;
    biases0 = biases1;
    y0 = y1;
    if (block >= MATVEC_GROUPS(MATVEC_N1)) {
      block -= MATVEC_GROUPS(MATVEC_N1);
      which = 2;
      rows = MATVEC_N2;
      w0 = w2;
      scales0 = scales2;
      biases0 = biases2;
      y0 = y2;
      if (block >= MATVEC_GROUPS(MATVEC_N2)) {
        block -= MATVEC_GROUPS(MATVEC_N2);
        which = 3;
        rows = MATVEC_N3;
        w0 = w3;
        scales0 = scales3;
        biases0 = biases3;
        y0 = y3;
      }
    }
  }
  const int row0 = block * MATVEC_BLOCK + matvec_row(at);
  const int vectors = matvec_vectors(step);
  float sums[MATVEC_OUTS];
  float squares[MATVEC_M];
  float out[1];
#if MATVEC_CONV
  const int c = row0 + at.lane;
  const bool channel = which == 0 && at.split == 0 && at.lane < MATVEC_ROWS && c < CONV_CHANNELS;
  float past[CONV_TAPS];
  float taps[CONV_TAPS];
  conv_place place;
#if MATVEC_CONV_EARLY
  if (channel) {
    conv_find(reset, entries, writes, step, place);
    conv_rows(state + conv_slot(place.from), c, past);
  }
#endif
#endif
  matvec_sums<1, 1>(w0, scales0, biases0, w0, scales0, biases0, rows, row0, step, x, x, vectors, norm, stage, at, sums, squares);
#if MATVEC_CONV
  if (channel) {
#if !MATVEC_CONV_EARLY
    conv_find(reset, entries, writes, step, place);
    conv_rows(state + conv_slot(place.from), c, past);
#endif
    conv_taps(conv_w, c, taps);
  }
#endif
  if (!matvec_finish<1>(sums, squares, shared, at, out)) return;
  const int row = row0 + at.lane / MATVEC_M;
  const int vector = at.lane % MATVEC_M;
  if (row < rows && vector < vectors) y0[long(vector) * rows + row] = out[0];
#if MATVEC_CONV
  if (channel) conv_advance(next, c, place, out[0], past, taps, conv_y);
#endif
  if (vector < vectors) matvec_activate(activated, which, row, vector, out[0]);
}

[[max_total_threads_per_threadgroup(MATVEC_THREADS)]]
kernel void matvec_glu(device const uint* w0 [[buffer(0)]],
                       device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                       device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                       device const uint* w1 [[buffer(3)]],
                       device const WEIGHT_SCALE* scales1 [[buffer(4)]],
                       device const WEIGHT_SCALE* biases1 [[buffer(5)]],
                       device const float* x [[buffer(6)]],
                       device const MATVEC_NORM_T* norm [[buffer(7)]],  // absent: x
                       device float* y [[buffer(8)]],
                       device const int* step [[buffer(9)]],
                       uint group [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, stage, MATVEC_STAGE);
  TG_ARRAY(float, shared, MATVEC_SHARED(2));
  matvec_place at;
  matvec_find(at, thread_index);
  const int row0 = int(group) * MATVEC_BLOCK + matvec_row(at);
  const int vectors = matvec_vectors(step);
  float sums[2 * MATVEC_OUTS];
  float squares[MATVEC_M];
  float out[2];
  matvec_sums<2, 1>(w0, scales0, biases0, w1, scales1, biases1, MATVEC_N0, row0, step, x, x, vectors, norm, stage, at, sums, squares);
  if (!matvec_finish<2>(sums, squares, shared, at, out)) return;
  const int row = row0 + at.lane / MATVEC_M;
  const int vector = at.lane % MATVEC_M;
  if (row < MATVEC_N0 && vector < vectors) {
    y[long(vector) * MATVEC_N0 + row] = port_activate(MATVEC_ACTIVATION, out[0]) * out[1];
  }
}
