#include "port.h"
#include "weights.h"
#include "router.h"
#include "product.h"
#include "mixture.h"
#include "stream.h"
#include "resident.h"
// experts_choose and experts_join of experts.metal, with the same buffers and the same results. All weights are copied to
// threadgroup memory before they are multiplied. The grid is (threadgroups of a token, tokens): each token has
// threadgroups of its own, of which some run beside each other on a multiprocessor.
//
// Where there is room, the second kernel starts when the first has chosen the experts (RATIONALE.md "How does the
// experts' second product know its weights before the first one is done?"). All of its copies are in flight at once,
// since little else is read then.
#define PORT_RELEASES

#ifndef EXPERTS_TOKENS  // that the launch is made for: 1, or more if there may be fewer
#define EXPERTS_TOKENS 1
#endif
#ifndef EXPERTS_SLOTS  // slots of a threadgroup for the rows of a part, some may be empty: 1, 2, 4 or 8
#define EXPERTS_SLOTS 4
#endif
#define LIFT_PARTS (8 / EXPERTS_SLOTS)                         // of a strip
#define LIFT_COPIES (16 + LIFT_PARTS * 2 * (1 + WEIGHT_BIASES))  // for a strip: one for each row's codes, so that rows meet different banks, one for the scales of all rows of a part

// The gate and up matrices of all parts. A threadgroup has the same rows of every part, so that all threadgroups wait
// for the same amount. Its rows are numbered as slots, EXPERTS_SLOTS for each part.
struct stream_lift {
  device const uint* w[2];
  device const WEIGHT_SCALE* scales[2];
  device const WEIGHT_SCALE* biases[2];
  device const uint* v[2];
  device const WEIGHT_SCALE* vscales[2];
  device const WEIGHT_SCALE* vbiases[2];
  device const float* logits;
  device const ROUTER_SCALES_T* expert_scales;
  device const float* gates;
  device int* experts;
  device float* scores;
  device float* y;
  threadgroup uint* list;
  threadgroup int* list_places;
  threadgroup int* count;
  threadgroup uint* keys;
  threadgroup int* places;
  int row, own;  // of every part: the first row, and their number
  int base;      // the threadgroup's first slot
  int token;
  int rows(int count) thread { return count / EXPERTS_SLOTS * own; }
  void begin(int slot, int end) thread {}
  void meet(int slot, int end) thread {}
  // Returns the address of the first row of a part.
  void place(int part, int plane, thread stream_place& p) thread {
    const bool apart = EXPERTS_SHARED && part == 0;
    stream_row(apart ? (plane ? v[1] : v[0]) : plane ? w[1] : w[0], apart ? (plane ? vscales[1] : vscales[0]) : plane ? scales[1] : scales[0],
               apart ? (plane ? vbiases[1] : vbiases[0]) : plane ? biases[1] : biases[0], (apart ? 0 : long(places[part - EXPERTS_SHARED]) * EXPERTS_N) + row, p);
  }
  void find(int simd, int lane) thread {
    router_choose(logits, lane, simd, RESIDENT_SIMDS, list, list_places, count, keys, places);
    if (base != 0) {
      port_release();
    } else if (simd == 0) {
      mixture_experts(places, token, lane, experts);
    }
  }
  void copy(int first, int count, int copier, int lane, threadgroup uchar* memory, threadgroup port_transfer* arrived) thread {
    NOUNROLL for (int strip = 0; strip * LIFT_PARTS < EXPERTS_PARTS; strip++) {
      NOUNROLL for (int c = lane * RESIDENT_COPIERS + copier; c < LIFT_COPIES; c += 32 * RESIDENT_COPIERS) {
        const bool codes = c < 16;
        const int slot = codes ? c / 2 : (c - 16) / (2 * (1 + WEIGHT_BIASES)) * EXPERTS_SLOTS;
        const int at = slot % EXPERTS_SLOTS;
        const int part = strip * LIFT_PARTS + slot / EXPERTS_SLOTS;
        if (part >= EXPERTS_PARTS || at >= own) continue;
        const bool biases = WEIGHT_BIASES && (c - 16) / 2 % 2 != 0;
        const int to = slot + c % 2 * 8;
        stream_place from;
        place(part, c % 2, from);
        port_transfer_copy(codes ? resident_codes(memory, strip, to) : resident_affine(memory, strip, to) + biases * (16 * RESIDENT_SCALES),
                           codes ? from.codes + at * RESIDENT_ROW : biases ? from.biases : from.scales, uint(codes ? RESIDENT_ROW : own * RESIDENT_SCALES), arrived + strip);
      }
    }
    if (base == 0 && copier == 0) mixture_scores(logits, expert_scales, gates, keys, places, token, lane, scores);
  }
  void end(int at, thread const float* out) thread {
    const int slot = at - base;
    const int of = slot % EXPERTS_SLOTS;
    if (of < own) y[slot / EXPERTS_SLOTS * EXPERTS_N + row + of] = port_activate(EXPERTS_ACTIVATION, out[0]) * out[1];
  }
};

// arguments: experts_choose
[[max_total_threads_per_threadgroup(PORT_BOUND(RESIDENT_SIMDS * 32, STREAM_ROOM))]]
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
                          device const ROUTER_SCALES_T* expert_scales [[buffer(19)]],
                          device const float* gates [[buffer(20)]],
                          device const float* x [[buffer(21)]],
                          device const MATVEC_NORM_T* norm [[buffer(22)]],
                          device int* experts [[buffer(23)]],
                          device float* scores [[buffer(24)]],
                          device float* y [[buffer(25)]],
                          device const int* step [[buffer(26)]],
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
  const int token = EXPERTS_TOKENS == 1 ? 0 : int(group.y);
  if (EXPERTS_TOKENS > 1 && token >= step[STEP_TOKENS]) return;
  const int row = int(group.x) * EXPERTS_N / STREAM_GRID;
  const int own = int(group.x + 1) * EXPERTS_N / STREAM_GRID - row;
  stream_lift product = {{w0, w1},
                         {scales0, scales1},
                         {biases0, biases1},
                         {v0, v1},
                         {vscales0, vscales1},
                         {vbiases0, vbiases1},
                         logits + long(token) * ROUTER_EXPERTS,
                         expert_scales,
                         gates,
                         experts,
                         scores,
                         y + long(token) * (EXPERTS_PARTS * EXPERTS_N),
                         list,
                         list_places,
                         count,
                         keys,
                         places,
                         row,
                         own,
                         int(group.x) * EXPERTS_PARTS * EXPERTS_SLOTS,
                         token};
  resident_run<2>(product, int(group.x), int(thread_index), x + long(token) * MATVEC_K, norm, x, memory, arrived, squares);
}

// The down matrices of the parts, concatenated by columns: each simdgroup has a part.
struct stream_fall {
  device const int* experts;
  device const uint* w;
  device const WEIGHT_SCALE* scales;
  device const WEIGHT_SCALE* biases;
  device const uint* v;
  device const WEIGHT_SCALE* vscales;
  device const WEIGHT_SCALE* vbiases;
  device const float* extra;
  device float* y;
  float residual;  // of a thread's row
  int rows(int count) thread { return count; }
  void begin(int row, int end) thread {}
  void meet(int row, int end) thread {
#if EXPERTS_RESIDUAL
    if (row < end) residual = extra[row];
#endif
  }
  void find(int simd, int lane) thread {}
  void copy(int first, int count, int copier, int lane, threadgroup uchar* memory, threadgroup port_transfer* arrived) thread {
    const int kinds = 2 + WEIGHT_BIASES;
    NOUNROLL for (int c = lane * RESIDENT_COPIERS + copier; c < kinds * EXPERTS_PARTS; c += 32 * RESIDENT_COPIERS) {
      const int part = c / kinds;
      const int what = c % kinds;
      const bool apart = EXPERTS_SHARED && part == 0;
      const int expert = clamp(port_published(experts + part), 0, MATVEC_EXPERTS - 1);
      stream_place from;
      stream_row(apart ? v : w, apart ? vscales : scales, apart ? vbiases : biases, (apart ? 0 : long(expert) * EXPERTS_N) + first, from);
      threadgroup uchar* affine = resident_affine(memory, 0, 0) + part * (16 * (1 + WEIGHT_BIASES) * RESIDENT_SCALES);
      port_transfer_copy(what == 0 ? resident_codes(memory, 0, 16 * part) : affine + (what - 1) * (16 * RESIDENT_SCALES),
                         what == 0 ? from.codes : what == 1 ? from.scales : from.biases, uint(count * (what == 0 ? RESIDENT_PITCH : RESIDENT_SCALES)), arrived);
    }
  }
  void end(int row, thread const float* out) thread {
#if EXPERTS_RESIDUAL
    y[row] = out[0] + residual;
#else
    y[row] = out[0];
#endif
  }
};

// arguments: experts_join
[[max_total_threads_per_threadgroup(PORT_BOUND(RESIDENT_SIMDS * 32, STREAM_ROOM))]]
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
  TG_ARRAY(float, squares, STREAM_SQUARES);
  port_release();
  const int token = EXPERTS_TOKENS == 1 ? 0 : int(group.y);
  if (EXPERTS_TOKENS > 1 && token >= step[STEP_TOKENS]) return;
  stream_fall product = {experts + token * EXPERTS_PARTS, w, scales, biases, v, vscales, vbiases, extra + long(token) * EXPERTS_N, y + long(token) * EXPERTS_N};
  resident_run<1>(product, int(group.x), int(thread_index), x + long(token) * MATVEC_K, (device const MATVEC_NORM_T*)x, scores + token * EXPERTS_PARTS, memory, arrived, squares);
}
