#include "port.h"
#include "weights.h"
#include "router.h"
#include "mixture.h"
#include "product.h"
#include "stream.h"
// experts_choose and experts_join of experts.metal, for one token: the same buffers, the same results, weights that
// are copied to threadgroup memory beside the work. Those of the shared expert are before anything is known of the token.

// The experts' gates and ups: part number band, N0 = EXPERTS_N rows of it.
struct stream_choice {
  device const uint* w[2];
  device const WEIGHT_SCALE* scales[2];
  device const WEIGHT_SCALE* biases[2];
  device const uint* v[2];
  device const WEIGHT_SCALE* vscales[2];
  device const WEIGHT_SCALE* vbiases[2];
  device const float* logits;
  device float* y;
  threadgroup uint* list;
  threadgroup int* list_places;
  threadgroup uint* keys;
  threadgroup int* places;
  bool chosen;
  // Chooses the experts, by one simdgroup.
  void choose(int lane) thread {
    port_wait();
    const int n = router_shorten(logits, lane, list, list_places);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    router_rank(list, list_places, n, lane, 0, 1, keys, places);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    chosen = true;
  }
  void begin(int row, int end) thread {}
  void ready(thread const stream_strip& strip, int lane) thread {
    if (strip.end > EXPERTS_SHARED * EXPERTS_N) choose(lane);
  }
  void copy(thread const stream_strip& strip, int segment, int lane, int lanes, threadgroup uchar* stage, threadgroup uchar* shelf,
            threadgroup port_transfer* arrived) thread {
    const bool apart = EXPERTS_SHARED && strip.band == 0;
    const int row = strip.row + (apart ? 0 : places[strip.band - EXPERTS_SHARED] * EXPERTS_N);
    const bool up = lane >= lanes / 2;
    device const uint* from = apart ? (up ? v[1] : v[0]) : up ? w[1] : w[0];
    device const WEIGHT_SCALE* s = apart ? (up ? vscales[1] : vscales[0]) : up ? scales[1] : scales[0];
    device const WEIGHT_SCALE* b = apart ? (up ? vbiases[1] : vbiases[0]) : up ? biases[1] : biases[0];
    stream_copy(from, s, b, row, strip.count, segment, up ? STREAM_STRIP / 2 : 0, 0, lane % (lanes / 2), lanes / 2, stage, shelf, arrived);
  }
  void end(int row, thread const float* out) thread { y[row] = port_activate(EXPERTS_ACTIVATION, out[0]) * out[1]; }
};

[[max_total_threads_per_threadgroup(PORT_BOUND(STREAM_THREADS + 32, STREAM_ROOM))]]
kernel void stream_choose(device const uint* w0 [[buffer(0)]],
                          device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                          device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                          device const uint* w1 [[buffer(3)]],
                          device const WEIGHT_SCALE* scales1 [[buffer(4)]],
                          device const WEIGHT_SCALE* biases1 [[buffer(5)]],
                          device const uint* v0 [[buffer(6)]],
                          device const WEIGHT_SCALE* vscales0 [[buffer(7)]],
                          device const WEIGHT_SCALE* vbiases0 [[buffer(8)]],
                          device const uint* v1 [[buffer(9)]],
                          device const WEIGHT_SCALE* vscales1 [[buffer(10)]],
                          device const WEIGHT_SCALE* vbiases1 [[buffer(11)]],
                          device const uint* d [[buffer(12)]],
                          device const WEIGHT_SCALE* dscales [[buffer(13)]],
                          device const WEIGHT_SCALE* dbiases [[buffer(14)]],
                          device const uint* e [[buffer(15)]],
                          device const WEIGHT_SCALE* escales [[buffer(16)]],
                          device const WEIGHT_SCALE* ebiases [[buffer(17)]],
                          device const float* logits [[buffer(18)]],
                          device const float* gates [[buffer(19)]],
                          device const float* x [[buffer(20)]],
                          device const MATVEC_NORM_T* norm [[buffer(21)]],
                          device int* experts [[buffer(22)]],
                          device float* scores [[buffer(23)]],
                          device float* y [[buffer(24)]],
                          device const int* step [[buffer(25)]],
                          uint3 group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, STREAM_BYTES);
  TG_ARRAY(port_transfer, arrived, STREAM_STAGES);
  TG_ARRAY(float, squares, STREAM_SIMDS);
  TG_ARRAY(uint, list, ROUTER_LIST);
  TG_ARRAY(int, list_places, ROUTER_LIST);
  TG_ARRAY(uint, keys, ROUTER_TOP);
  TG_ARRAY(int, places, ROUTER_TOP);
  stream_choice product = {{w0, w1}, {scales0, scales1}, {biases0, biases1}, {v0, v1}, {vscales0, vscales1}, {vbiases0, vbiases1},
                           logits, y, list, list_places, keys, places, false};
  stream_run<2>(product, int(group.x), int(thread_index), x, norm, x, x, memory, arrived, squares);
  if (group.x == 0 && thread_index >= STREAM_THREADS) {
    const int lane = int(thread_index % 32);
    if (!product.chosen) product.choose(lane);
    experts_write(keys, places, logits, gates, 0, lane, experts, scores);
  }
}

// The experts' downs, side by side.
struct stream_sum {
  device const uint* w;
  device const WEIGHT_SCALE* scales;
  device const WEIGHT_SCALE* biases;
  device const uint* v;
  device const WEIGHT_SCALE* vscales;
  device const WEIGHT_SCALE* vbiases;
  device const int* experts;
  device const float* extra;
  device float* y;
  int expert;  // the lane's
  void begin(int row, int end) thread {}
  void ready(thread const stream_strip& strip, int lane) thread {
    port_wait();
    expert = clamp(experts[min(lane, EXPERTS_PARTS - 1)], 0, MATVEC_EXPERTS - 1);
  }
  void copy(thread const stream_strip& strip, int segment, int lane, int lanes, threadgroup uchar* stage, threadgroup uchar* shelf,
            threadgroup port_transfer* arrived) thread {
    // Codes of all parts first, then scales, then biases.
    const int copies = EXPERTS_PARTS * (2 + WEIGHT_BIASES);
    for (int first = 0; first < copies; first += 32) {
      const int part = (first + lane) % EXPERTS_PARTS;
      const int what = (first + lane) / EXPERTS_PARTS;
      const bool apart = EXPERTS_SHARED && part == 0;
      const int of = simd_shuffle(expert, ushort(part));
      const int row = strip.row + (apart ? 0 : of * EXPERTS_N);
      if (first + lane < copies) {
        stream_copy(apart ? v : w, apart ? vscales : scales, apart ? vbiases : biases, row, strip.count, segment, 0, part, what, 2 + WEIGHT_BIASES,
                    stage, shelf, arrived);
      }
    }
  }
  void end(int row, thread const float* out) thread {
#if EXPERTS_RESIDUAL
    y[row] = out[0] + extra[row];
#else
    y[row] = out[0];
#endif
  }
};

[[max_total_threads_per_threadgroup(PORT_BOUND(STREAM_THREADS + 32, STREAM_ROOM))]]
kernel void stream_join(device const uint* w [[buffer(0)]],
                        device const WEIGHT_SCALE* scales [[buffer(1)]],
                        device const WEIGHT_SCALE* biases [[buffer(2)]],
                        device const uint* v [[buffer(3)]],
                        device const WEIGHT_SCALE* vscales [[buffer(4)]],
                        device const WEIGHT_SCALE* vbiases [[buffer(5)]],
                        device const int* experts [[buffer(6)]],
                        device const float* scores [[buffer(7)]],
                        device const float* x [[buffer(8)]],
                        device const float* extra [[buffer(9)]],
                        device float* y [[buffer(10)]],
                        device const int* step [[buffer(11)]],
                        uint3 group [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, STREAM_BYTES);
  TG_ARRAY(port_transfer, arrived, STREAM_STAGES);
  TG_ARRAY(float, squares, STREAM_SIMDS);
  stream_sum product = {w, scales, biases, v, vscales, vbiases, experts, extra, y, -1};
  stream_run<1>(product, int(group.x), int(thread_index), x, (device const MATVEC_NORM_T*)x, x, scores, memory, arrived, squares);
}
