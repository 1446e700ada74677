#include "port.h"
#include "weights.h"
#include "product.h"
#include "stream.h"
#include "ring.h"
#include "resident.h"
#include "conv.h"
// The kernels of matvec.metal for one vector, with the same buffers and the same results. Weights are copied to
// threadgroup memory asynchronously: through a ring, or all of them at once (STREAM_RESIDENT). stream_sum_one and
// stream_sum_glu compute their vector first, from more buffers; they always have a ring.

#if STREAM_RESIDENT
#define STREAM_ALL_THREADS (RESIDENT_SIMDS * 32)
#else
#define STREAM_ALL_THREADS (STREAM_THREADS + 32)
#endif

template <int PLANES, class Product>
inline void stream_run(thread Product& product, uint group, uint thread_index, device const float* x, device const MATVEC_NORM_T* norm,
                       device const float* gate, thread const stream_sum& sum, threadgroup uchar* memory, threadgroup port_transfer* arrived,
                       threadgroup float* squares) {
#if STREAM_RESIDENT
  resident_run<PLANES>(product, group, thread_index, x, norm, gate, memory, arrived, squares);
#else
  ring_run<PLANES>(product, group, thread_index, x, norm, gate, sum, memory, arrived, squares);
#endif
}

// The copies of a product with resident weights.
#if STREAM_RESIDENT
#define STREAM_COPIES(planes)                                                                                                               \
  int rows(int count) thread { return count; }                                                                                             \
  void find(int simd, int lane) thread {}                                                                                                  \
  void copy(int first, int count, int copier, int lane, threadgroup uchar* memory, threadgroup port_transfer* arrived) thread {              \
    resident_rows<planes>(*this, first, count, copier, lane, memory, arrived);                                                                    \
  }
#else
#define STREAM_COPIES(planes)
#endif

// One weight.
struct stream_one {
  device const uint* w;
  device const WEIGHT_SCALE* scales;
  device const WEIGHT_SCALE* biases;
  device const float* extra;
  device float* y;
  int early;   // the row for which a thread has read the epilogue's operand in advance
  float term;
  STREAM_COPIES(1)
  void place(int at, int plane, thread stream_place& p) thread { stream_row(w, scales, biases, at, p); }
  void begin(int row, int end) thread { early = -1; }
  void meet(int row, int end) thread {
    if (row >= end) return;
    early = row;
    term = matvec_extra(extra, row, row);
  }
  void end(int row, thread const float* out) thread { y[row] = matvec_end(out[0], row == early ? term : matvec_extra(extra, row, row)); }
};

// arguments: matvec
[[max_total_threads_per_threadgroup(PORT_BOUND(STREAM_ALL_THREADS, STREAM_ROOM))]]
kernel void stream(device const uint* w [[buffer(0)]],
                   device const WEIGHT_SCALE* scales [[buffer(1)]],
                   device const WEIGHT_SCALE* biases [[buffer(2)]],
                   device const float* x [[buffer(3)]],
                   device const MATVEC_NORM_T* norm [[buffer(4)]],
                   device const float* gate [[buffer(5)]],
                   device const float* extra [[buffer(6)]],
                   device float* y [[buffer(7)]],
                   device const int* step [[buffer(8)]],
                   uint group [[threadgroup_position_in_grid]],
                   uint thread_index [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, STREAM_BYTES);
  TG_ARRAY(port_transfer, arrived, STREAM_STAGES);
  TG_ARRAY(float, squares, STREAM_SQUARES);
  stream_one product = {w, scales, biases, extra, y};
  stream_run<1>(product, group, thread_index, x, norm, gate, stream_sum(), memory, arrived, squares);
}

// One weight, with a vector that is computed from x.
[[max_total_threads_per_threadgroup(PORT_BOUND(STREAM_ALL_THREADS, STREAM_ROOM))]]
kernel void stream_sum_one(device const uint* w [[buffer(0)]],
                           device const WEIGHT_SCALE* scales [[buffer(1)]],
                           device const WEIGHT_SCALE* biases [[buffer(2)]],
                           device const float* x [[buffer(3)]],
                           device const MATVEC_NORM_T* norm [[buffer(4)]],  // absent: x
                           device const float* extra [[buffer(5)]],  // absent: x
                           device float* y [[buffer(6)]],
                           device const float* before [[buffer(7)]],
                           device const float* residual [[buffer(8)]],
                           device const float* scale [[buffer(9)]],  // absent: x
                           device float* out [[buffer(10)]],  // absent: x
                           device const int* step [[buffer(11)]],
                           uint group [[threadgroup_position_in_grid]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, STREAM_BYTES);
  TG_ARRAY(port_transfer, arrived, STREAM_STAGES);
  TG_ARRAY(float, squares, STREAM_SQUARES);
  stream_one product = {w, scales, biases, extra, y};
  const stream_sum sum = {before, residual, scale, out};
  stream_run<1>(product, group, thread_index, x, norm, x, sum, memory, arrived, squares);
}

// Selects one of four arguments by constant indices, so that they stay in registers.
template <class T>
inline T stream_pick(thread const T* of, int which) { return which == 0 ? of[0] : which == 1 ? of[1] : which == 2 ? of[2] : of[3]; }

// Up to four weights, with a convolution of the first rows of weight 0, and activations of some rows.
struct stream_more {
  device const uint* w[4];
  device const WEIGHT_SCALE* scales[4];
  device const WEIGHT_SCALE* biases[4];
  device float* y[4];
  device const CONV_WEIGHT_T* conv_w;
  device const uchar* reset;
  device const CONV_STATE_T* state;
  device float* conv_y;
  device CONV_STATE_T* next;
  device float* activated;
  device const int* entries;
  device const int* writes;
  device const int* step;
  int early;  // the channel whose state a thread has read before the wait
  conv_place found;
  float past[CONV_TAPS];
  float taps[CONV_TAPS];
  STREAM_COPIES(1)
  void place(int at, int plane, thread stream_place& p) thread {
    stream_strip strip;
    strip.at = at;
    strip.end = STREAM_ALL;
    stream_look(strip, 1);
    stream_row(stream_pick(w, strip.which), stream_pick(scales, strip.which), stream_pick(biases, strip.which), strip.row, p);
  }
  void read(int c) thread {
#if MATVEC_CONV
    conv_find(reset, entries, writes, step, found);
    conv_rows(state + conv_slot(found.from), c, past);
    conv_taps(conv_w, c, taps);
#endif
  }
  void meet(int row, int end) thread {}
  void begin(int row, int end) thread {
    early = -1;
#if MATVEC_CONV && MATVEC_CONV_EARLY
    if (row < min(end, CONV_CHANNELS)) {
      early = row;
      read(row);
    }
#endif
  }
  void end(int at, thread const float* out) thread {
    stream_strip strip;
    strip.at = at;
    strip.end = STREAM_ALL;
    stream_look(strip, 1);
    stream_pick(y, strip.which)[strip.row] = out[0];
#if MATVEC_CONV
    if (at < CONV_CHANNELS) {
      if (early != at) read(at);
      conv_advance(next, at, found, out[0], past, taps, conv_y);
    }
#endif
    matvec_activate(activated, strip.which, strip.row, 0, out[0]);
  }
};

// arguments: matvec_many
[[max_total_threads_per_threadgroup(PORT_BOUND(STREAM_ALL_THREADS, STREAM_ROOM))]]
kernel void stream_many(device const uint* w0 [[buffer(0)]],
                        device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                        device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                        device float* y0 [[buffer(3)]],
                        device const uint* w1 [[buffer(4)]],
                        device const WEIGHT_SCALE* scales1 [[buffer(5)]],
                        device const WEIGHT_SCALE* biases1 [[buffer(6)]],
                        device float* y1 [[buffer(7)]],
                        device const uint* w2 [[buffer(8)]],
                        device const WEIGHT_SCALE* scales2 [[buffer(9)]],
                        device const WEIGHT_SCALE* biases2 [[buffer(10)]],
                        device float* y2 [[buffer(11)]],
                        device const uint* w3 [[buffer(12)]],
                        device const WEIGHT_SCALE* scales3 [[buffer(13)]],
                        device const WEIGHT_SCALE* biases3 [[buffer(14)]],
                        device float* y3 [[buffer(15)]],
                        device const float* x [[buffer(16)]],
                        device const MATVEC_NORM_T* norm [[buffer(17)]],
                        device const CONV_WEIGHT_T* conv_w [[buffer(18)]],
                        device const uchar* reset [[buffer(19)]],
                        device const CONV_STATE_T* state [[buffer(20)]],
                        device float* conv_y [[buffer(21)]],
                        device CONV_STATE_T* next [[buffer(22)]],
                        device float* activated [[buffer(23)]],
                        device const int* entries [[buffer(24)]],
                        device const int* writes [[buffer(25)]],
                        device const int* step [[buffer(26)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, STREAM_BYTES);
  TG_ARRAY(port_transfer, arrived, STREAM_STAGES);
  TG_ARRAY(float, squares, STREAM_SQUARES);
  stream_more product = {{w0, w1, w2, w3}, {scales0, scales1, scales2, scales3}, {biases0, biases1, biases2, biases3}, {y0, y1, y2, y3},
                         conv_w, reset, state, conv_y, next, activated, entries, writes, step};
  stream_run<1>(product, group, thread_index, x, norm, x, stream_sum(), memory, arrived, squares);
}

// A gated pair of weights.
struct stream_pair {
  device const uint* w[2];
  device const WEIGHT_SCALE* scales[2];
  device const WEIGHT_SCALE* biases[2];
  device float* y;
  STREAM_COPIES(2)
  void place(int at, int plane, thread stream_place& p) thread {
    stream_row(plane ? w[1] : w[0], plane ? scales[1] : scales[0], plane ? biases[1] : biases[0], at, p);
  }
  void begin(int row, int end) thread {}
  void meet(int row, int end) thread {}
  void end(int row, thread const float* out) thread { y[row] = port_activate(MATVEC_ACTIVATION, out[0]) * out[1]; }
};

// arguments: matvec_glu
[[max_total_threads_per_threadgroup(PORT_BOUND(STREAM_ALL_THREADS, STREAM_ROOM))]]
kernel void stream_glu(device const uint* w0 [[buffer(0)]],
                       device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                       device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                       device const uint* w1 [[buffer(3)]],
                       device const WEIGHT_SCALE* scales1 [[buffer(4)]],
                       device const WEIGHT_SCALE* biases1 [[buffer(5)]],
                       device const float* x [[buffer(6)]],
                       device const MATVEC_NORM_T* norm [[buffer(7)]],
                       device float* y [[buffer(8)]],
                       device const int* step [[buffer(9)]],
                       uint group [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, STREAM_BYTES);
  TG_ARRAY(port_transfer, arrived, STREAM_STAGES);
  TG_ARRAY(float, squares, STREAM_SQUARES);
  stream_pair product = {{w0, w1}, {scales0, scales1}, {biases0, biases1}, y};
  stream_run<2>(product, group, thread_index, x, norm, x, stream_sum(), memory, arrived, squares);
}

// A gated pair, with a vector that is computed from x.
[[max_total_threads_per_threadgroup(PORT_BOUND(STREAM_ALL_THREADS, STREAM_ROOM))]]
kernel void stream_sum_glu(device const uint* w0 [[buffer(0)]],
                           device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                           device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                           device const uint* w1 [[buffer(3)]],
                           device const WEIGHT_SCALE* scales1 [[buffer(4)]],
                           device const WEIGHT_SCALE* biases1 [[buffer(5)]],
                           device const float* x [[buffer(6)]],
                           device const MATVEC_NORM_T* norm [[buffer(7)]],  // absent: x
                           device float* y [[buffer(8)]],
                           device const float* before [[buffer(9)]],
                           device const float* residual [[buffer(10)]],
                           device const float* scale [[buffer(11)]],  // absent: x
                           device float* out [[buffer(12)]],  // absent: x
                           device const int* step [[buffer(13)]],
                           uint group [[threadgroup_position_in_grid]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, STREAM_BYTES);
  TG_ARRAY(port_transfer, arrived, STREAM_STAGES);
  TG_ARRAY(float, squares, STREAM_SQUARES);
  stream_pair product = {{w0, w1}, {scales0, scales1}, {biases0, biases1}, y};
  const stream_sum sum = {before, residual, scale, out};
  stream_run<2>(product, group, thread_index, x, norm, x, sum, memory, arrived, squares);
}
