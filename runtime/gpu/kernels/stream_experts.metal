#include "port.h"
#include "weights.h"
#include "router.h"
#include "product.h"
#include "mixture.h"
#include "stream.h"
#include "hold.h"
// experts_choose and experts_join of experts.metal, for one token: the same buffers, the same results, weights that are all
// copied to threadgroup memory.
//
// Both choose the experts, for the second need not wait for the first one's results to have its weights copied: it starts when
// the logits are there, as the first one releases it after its wait.
#define PORT_RELEASES

#ifndef EXPERTS_SLOTS  // a threadgroup's rows of a part, or one more than it has: 1, 2, 4 or 8
#define EXPERTS_SLOTS 4
#endif

// What a threadgroup chooses with.
struct stream_choice {
  device const float* logits;
  threadgroup uint* list;
  threadgroup int* list_places;
  threadgroup int* count;
  threadgroup uint* keys;
  threadgroup int* places;
  void choose(int simd, int lane) thread { router_choose(logits, lane, simd, STREAM_SIMDS, list, list_places, count, keys, places); }
  // The number of the expert that is a part of the token.
  int expert(int part) thread { return EXPERTS_SHARED && part == 0 ? 0 : places[part - EXPERTS_SHARED]; }
};

// The parts' gates and ups. A threadgroup has the same rows of all parts: so all have equally much to wait for. Its
// rows are numbered as slots, EXPERTS_SLOTS for each part.
struct stream_lift {
  stream_choice choice;
  device const uint* w[2];
  device const WEIGHT_SCALE* scales[2];
  device const WEIGHT_SCALE* biases[2];
  device const uint* v[2];
  device const WEIGHT_SCALE* vscales[2];
  device const WEIGHT_SCALE* vbiases[2];
  device float* y;
  int row, own;  // of every part: the first, and how many
  int base;      // the threadgroup's first slot
  int rows(int count) thread { return count / EXPERTS_SLOTS * own; }
  void begin(int slot, int end) thread {}
  // The place of a part's first row.
  void place(int part, int plane, thread stream_place& p) thread {
    const bool apart = EXPERTS_SHARED && part == 0;
    stream_row(apart ? (plane ? v[1] : v[0]) : plane ? w[1] : w[0], apart ? (plane ? vscales[1] : vscales[0]) : plane ? scales[1] : scales[0],
               apart ? (plane ? vbiases[1] : vbiases[0]) : plane ? biases[1] : biases[0], long(choice.expert(part)) * EXPERTS_N + row, p);
  }
  void copy(int first, int count, int simd, int lane, threadgroup uchar* memory, threadgroup port_transfer* arrived) thread {
    choice.choose(simd, lane);
    // Few copies are fast: one for the scales of all rows of a part, but one for each row's codes, so that rows meet different banks.
    const int affine = 2 * (1 + WEIGHT_BIASES) * EXPERTS_PARTS;
    for (int from = 0; from < affine; from += 32 * STREAM_SIMDS) {
      const int c = from + lane * STREAM_SIMDS + simd;
      const int part = min(c, affine - 1) / (2 * (1 + WEIGHT_BIASES));
      const int what = c / 2 % (1 + WEIGHT_BIASES);
      const int slot = part * EXPERTS_SLOTS;
      stream_place p;
      place(part, c % 2, p);
      if (c < affine) {
        port_transfer_copy(hold_affine(memory, slot / 8, slot % 8 + c % 2 * 8) + what * 16 * HOLD_SCALES, what ? p.biases : p.scales, uint(own * HOLD_SCALES),
                           arrived + slot / 8);
      }
      simdgroup_barrier(mem_flags::mem_none);
    }
    const int codes = 2 * EXPERTS_PARTS * EXPERTS_SLOTS;
    for (int from = 0; from < codes; from += 32 * STREAM_SIMDS) {
      const int c = from + lane * STREAM_SIMDS + simd;
      const int slot = min(c, codes - 1) / 2;
      const int at = slot % EXPERTS_SLOTS;
      stream_place p;
      place(slot / EXPERTS_SLOTS, c % 2, p);
      if (c < codes && at < own) port_transfer_copy(hold_codes(memory, slot / 8, slot % 8 + c % 2 * 8), p.codes + at * HOLD_ROW, HOLD_ROW, arrived + slot / 8);
      simdgroup_barrier(mem_flags::mem_none);
    }
    // Not before: what the next kernel has copied would come between.
    port_release();
  }
  void end(int at, thread const float* out) thread {
    const int slot = at - base;
    const int of = slot % EXPERTS_SLOTS;
    if (of < own) y[slot / EXPERTS_SLOTS * EXPERTS_N + row + of] = port_activate(EXPERTS_ACTIVATION, out[0]) * out[1];
  }
};

[[max_total_threads_per_threadgroup(PORT_BOUND(STREAM_THREADS, STREAM_ROOM))]]
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
  TG_ARRAY(float, squares, STREAM_SQUARES);
  TG_ARRAY(uint, list, ROUTER_LIST);
  TG_ARRAY(int, list_places, ROUTER_LIST);
  TG_ARRAY(int, count, 1);
  TG_ARRAY(uint, keys, ROUTER_TOP);
  TG_ARRAY(int, places, ROUTER_TOP);
  const int row = int(group.x) * EXPERTS_N / STREAM_GRID;
  const int own = int(group.x + 1) * EXPERTS_N / STREAM_GRID - row;
  stream_lift product = {{logits, list, list_places, count, keys, places},
                         {w0, w1},
                         {scales0, scales1},
                         {biases0, biases1},
                         {v0, v1},
                         {vscales0, vscales1},
                         {vbiases0, vbiases1},
                         y,
                         row,
                         own,
                         int(group.x) * EXPERTS_PARTS * EXPERTS_SLOTS};
  hold_run<2>(product, int(group.x), int(thread_index), x, norm, x, memory, arrived, squares);
  if (group.x == 0 && thread_index >= STREAM_THREADS - 32) mixture_write(logits, gates, keys, places, 0, int(thread_index % 32), experts, scores);
}

// The parts' downs, side by side: a simdgroup for each part.
struct stream_fall {
  stream_choice choice;
  device const uint* w;
  device const WEIGHT_SCALE* scales;
  device const WEIGHT_SCALE* biases;
  device const uint* v;
  device const WEIGHT_SCALE* vscales;
  device const WEIGHT_SCALE* vbiases;
  device const float* extra;
  device float* y;
  int rows(int count) thread { return count; }
  void begin(int row, int end) thread {}
  void copy(int first, int count, int simd, int lane, threadgroup uchar* memory, threadgroup port_transfer* arrived) thread {
    choice.choose(simd, lane);
    const bool apart = EXPERTS_SHARED && simd == 0;
    stream_place from;
    stream_row(apart ? v : w, apart ? vscales : scales, apart ? vbiases : biases, long(choice.expert(simd)) * EXPERTS_N + first, from);
    threadgroup uchar* affine = hold_affine(memory, 0, 0) + simd * (16 * (1 + WEIGHT_BIASES) * HOLD_SCALES);
    if (lane < 2 + WEIGHT_BIASES) {
      port_transfer_copy(lane == 0 ? hold_codes(memory, 0, 16 * simd) : affine + (lane - 1) * (16 * HOLD_SCALES),
                         lane == 0 ? from.codes : lane == 1 ? from.scales : from.biases, uint(count * (lane == 0 ? HOLD_PITCH : HOLD_SCALES)), arrived);
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

[[max_total_threads_per_threadgroup(PORT_BOUND(STREAM_THREADS, STREAM_ROOM))]]
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
                        device const float* logits [[buffer(11)]],
                        device const int* step [[buffer(12)]],
                        uint3 group [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, STREAM_BYTES);
  TG_ARRAY(port_transfer, arrived, STREAM_STAGES);
  TG_ARRAY(float, squares, STREAM_SQUARES);
  TG_ARRAY(uint, list, ROUTER_LIST);
  TG_ARRAY(int, list_places, ROUTER_LIST);
  TG_ARRAY(int, count, 1);
  TG_ARRAY(uint, keys, ROUTER_TOP);
  TG_ARRAY(int, places, ROUTER_TOP);
  port_release();
  stream_fall product = {{logits, list, list_places, count, keys, places}, w, scales, biases, v, vscales, vbiases, extra, y};
  hold_run<1>(product, int(group.x), int(thread_index), x, (device const MATVEC_NORM_T*)x, scores, memory, arrived, squares);
}
