#include "port.h"
#include "weights.h"
#include "router.h"
#include "product.h"
#include "matvec.h"
#include "mixture.h"
// Mixtures of experts for a few tokens: the weights of each token's experts are read for that token alone. experts_up
// computes activation(gate x) * (up x) for a token and one of its experts. experts_down adds up the experts' second
// products, weighted by their scores. Weights are stacks: gate and up [E, I, H], down [E, H, I].
//
// experts_choose is an experts_up that also chooses the experts, and experts_join is the experts_down after it. The
// parts of a token are its experts. With EXPERTS_SHARED a shared expert stands before them, with weights of its own and
// the sigmoid of a gate as its score.

// The kernel after experts_choose starts when the experts are chosen, and may read their numbers before its wait.
#define PORT_RELEASES

#ifndef EXPERTS_AHEAD     // 1: experts_choose prefetches the weights that experts_down reads
#define EXPERTS_AHEAD 0
#endif
#ifndef EXPERTS_TOKENS    // that the launch is made for
#define EXPERTS_TOKENS 2
#endif

// Reports whether there is a token with this number. With EXPERTS_TOKENS 1 there always is, so step need not be read.
inline bool experts_token(int token, device const int* step) { return EXPERTS_TOKENS == 1 || token < step[STEP_TOKENS]; }

[[max_total_threads_per_threadgroup(MATVEC_THREADS)]]
kernel void experts_up(device const uint* w0 [[buffer(0)]],
                       device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                       device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                       device const uint* w1 [[buffer(3)]],
                       device const WEIGHT_SCALE* scales1 [[buffer(4)]],
                       device const WEIGHT_SCALE* biases1 [[buffer(5)]],
                       device const int* experts [[buffer(6)]],
                       device const float* x [[buffer(7)]],
                       device const MATVEC_NORM_T* norm [[buffer(8)]],  // absent: x
                       device float* y [[buffer(9)]],
                       device const int* step [[buffer(10)]],
                       uint3 group [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, stage, MATVEC_STAGE);
  TG_ARRAY(float, shared, MATVEC_SHARED(2));
  port_release();
  port_wait();
  const int pair = int(group.y);
  if (!experts_token(pair / EXPERTS_TOP, step)) return;
  matvec_place at;
  matvec_find(at, thread_index);
  const int row0 = int(group.x) * MATVEC_BLOCK + matvec_row(at);
  const long before = long(clamp(experts[pair], 0, MATVEC_EXPERTS - 1)) * EXPERTS_N;
  const long words = before * WEIGHT_WORDS(MATVEC_K);
  const long affine = before * (MATVEC_K / WEIGHT_GROUP);
  float sums[2 * MATVEC_OUTS];
  float squares[1];
  float out[2];
  matvec_sums<2, 1>(w0 + words, scales0 + affine, biases0 + affine, w1 + words, scales1 + affine, biases1 + affine, EXPERTS_N, row0,
                    experts, x, x + long(pair / EXPERTS_TOP) * MATVEC_K, 1, norm, stage, at, sums, squares);
  if (!matvec_finish<2>(sums, squares, shared, at, out)) return;
  const int row = row0 + at.lane;
  if (row < EXPERTS_N) y[long(pair) * EXPERTS_N + row] = port_activate(EXPERTS_ACTIVATION, out[0]) * out[1];
}

// experts_choose: experts_up that chooses experts by logits [T, ROUTER_EXPERTS], with ROUTER_SCALED by the experts'
// scales [ROUTER_EXPERTS] too; with EXPERTS_SHARED it has gates [T] and the shared expert's weights v0 and v1 [I, H].
// The grid is (blocks of rows, tokens' parts). Every threadgroup chooses for itself, except for those of the shared
// expert, which read weights while they wait for the logits. The first threadgroup of a token writes the chosen experts
// and scores [T, EXPERTS_PARTS]. d and e [H, I] are the down matrices of the stack and of the shared expert.
[[max_total_threads_per_threadgroup(MATVEC_THREADS)]]
kernel void experts_choose(device const uint* w0 [[buffer(0)]],
                           device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                           device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                           device const uint* w1 [[buffer(3)]],
                           device const WEIGHT_SCALE* scales1 [[buffer(4)]],
                           device const WEIGHT_SCALE* biases1 [[buffer(5)]],
                           device const uint* v0 [[buffer(6)]],  // absent: w0
                           device const WEIGHT_SCALE* vscales0 [[buffer(7)]],
                           device const WEIGHT_SCALE* vbiases0 [[buffer(8)]],
                           device const uint* v1 [[buffer(9)]],  // absent: w1
                           device const WEIGHT_SCALE* vscales1 [[buffer(10)]],
                           device const WEIGHT_SCALE* vbiases1 [[buffer(11)]],
                           device const uint* d [[buffer(12)]],
                           device const WEIGHT_SCALE* dscales [[buffer(13)]],
                           device const WEIGHT_SCALE* dbiases [[buffer(14)]],
                           device const uint* e [[buffer(15)]],  // absent: d
                           device const WEIGHT_SCALE* escales [[buffer(16)]],
                           device const WEIGHT_SCALE* ebiases [[buffer(17)]],
                           device const float* logits [[buffer(18)]],
                           device const ROUTER_SCALES_T* expert_scales [[buffer(19)]],  // absent: logits
                           device const float* gates [[buffer(20)]],  // absent: logits
                           device const float* x [[buffer(21)]],
                           device const MATVEC_NORM_T* norm [[buffer(22)]],  // absent: x
                           device int* experts [[buffer(23)]],
                           device float* scores [[buffer(24)]],
                           device float* y [[buffer(25)]],
                           device const int* step [[buffer(26)]],
                           uint3 group [[threadgroup_position_in_grid]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, stage, MATVEC_STAGE);
  TG_ARRAY(float, shared, MATVEC_SHARED(2));
  TG_ARRAY(uint, list, ROUTER_LIST);
  TG_ARRAY(int, list_places, ROUTER_LIST);
  TG_ARRAY(int, count, 1);
  TG_ARRAY(uint, keys, ROUTER_TOP);
  TG_ARRAY(int, places, ROUTER_TOP);
  const int token = int(group.y) / EXPERTS_PARTS;
  const int part = int(group.y) % EXPERTS_PARTS;
  const bool apart = EXPERTS_SHARED && part == 0;
  const bool first = part == 0 && group.x == 0;
  device const float* from = logits + long(token) * ROUTER_EXPERTS;
  matvec_place at;
  matvec_find(at, thread_index);
  if (!apart || first) {
    port_wait();
    if (!first) port_release();
    if (!experts_token(token, step)) return;
    router_choose(from, int(thread_index % 32), int(thread_index / 32), MATVEC_SIMDS, list, list_places, count, keys, places);
    if (first && thread_index < 32) mixture_experts(places, token, int(thread_index), experts);
  } else {
    port_release();
  }
  if (apart) {
    w0 = v0;
    scales0 = vscales0;
    biases0 = vbiases0;
    w1 = v1;
    scales1 = vscales1;
    biases1 = vbiases1;
  } else {
    const long before = long(places[part - EXPERTS_SHARED]) * EXPERTS_N;
    const long words = before * WEIGHT_WORDS(MATVEC_K);
    const long affine = before * (MATVEC_K / WEIGHT_GROUP);
    w0 += words;
    scales0 += affine;
    biases0 += affine;
    w1 += words;
    scales1 += affine;
    biases1 += affine;
  }
  const int row0 = int(group.x) * MATVEC_BLOCK + matvec_row(at);
  float sums[2 * MATVEC_OUTS];
  float squares[1];
  float out[2];
  matvec_sums<2, 1>(w0, scales0, biases0, w1, scales1, biases1, EXPERTS_N, row0, step, x, x + long(token) * MATVEC_K, 1, norm, stage, at,
                    sums, squares);
  if (!experts_token(token, step)) return;
#if EXPERTS_AHEAD
  // All that this threadgroup waited for has arrived. So the memory system has time to prefetch some rows of the same
  // expert's down matrix.
  if (thread_index == 0) {
    const int groups = (EXPERTS_N + MATVEC_BLOCK - 1) / MATVEC_BLOCK;
    const int rows = (MATVEC_K + groups - 1) / groups;
    const int row = min(int(group.x) * rows, MATVEC_K);
    const int n = min(rows, MATVEC_K - row);
    const long from = row + (apart ? 0 : long(places[part - EXPERTS_SHARED]) * MATVEC_K);
    port_prefetch((apart ? e : d) + from * WEIGHT_WORDS(EXPERTS_N), uint(n) * WEIGHT_WORDS(EXPERTS_N) * 4);
#if WEIGHT_QUANTIZED
    const int scales = EXPERTS_N / WEIGHT_GROUP;
    port_prefetch((apart ? escales : dscales) + from * scales, uint(n) * scales * sizeof(WEIGHT_SCALE));
#if WEIGHT_BIASES
    port_prefetch((apart ? ebiases : dbiases) + from * scales, uint(n) * scales * sizeof(WEIGHT_SCALE));
#endif
#endif
  }
#endif
  if (first && thread_index < 32) mixture_scores(from, expert_scales, gates, keys, places, token, int(thread_index), scores);
  if (!matvec_finish<2>(sums, squares, shared, at, out)) return;
  const int row = row0 + at.lane;
  if (row < EXPERTS_N) y[long(group.y) * EXPERTS_N + row] = port_activate(EXPERTS_ACTIVATION, out[0]) * out[1];
}

// experts_sum computes a thread's share of experts_down and experts_join: for each token the sum over its parts of
// score * (down matrix of the part) * (the part's x), plus extra with EXPERTS_RESIDUAL. x is [T, EXPERTS_PARTS * I].
// w is the stack of the experts' down matrices. v is the down matrix of the shared expert, which is a token's first
// part with EXPERTS_SHARED. Without EXPERTS_SHARED v is not read.
inline void experts_sum(device const uint* w, device const WEIGHT_SCALE* scales, device const WEIGHT_SCALE* biases,
                        device const uint* v, device const WEIGHT_SCALE* vscales, device const WEIGHT_SCALE* vbiases,
                        device const int* experts, device const float* scores, device const float* x, device const float* extra, device float* y,
                        int block, int token, uint thread_index, threadgroup float* stage, threadgroup float* shared) {
  matvec_place at;
  matvec_find(at, thread_index);
  const int row0 = block * MATVEC_BLOCK + matvec_row(at);
  float sums[MATVEC_OUTS];
  float squares[1];
  float out[1];
#if EXPERTS_PARTS == 1  // with one part, matvec_sums would treat the weight as not stacked
  const long before = long(clamp(experts[token], 0, MATVEC_EXPERTS - 1)) * EXPERTS_N;
  w += before * WEIGHT_WORDS(MATVEC_K);
  scales += before * (MATVEC_K / WEIGHT_GROUP);
  biases += before * (MATVEC_K / WEIGHT_GROUP);
#endif
  matvec_sums<1, EXPERTS_PARTS>(w, scales, biases, v, vscales, vbiases, EXPERTS_N, row0, experts + token * EXPERTS_PARTS,
                                scores + token * EXPERTS_PARTS, x + long(token) * MATVEC_K, 1, (device const MATVEC_NORM_T*)x, stage, at, sums, squares);
  if (!matvec_finish<1>(sums, squares, shared, at, out)) return;
  const int row = row0 + at.lane;
  if (row >= EXPERTS_N) return;
  const long to = long(token) * EXPERTS_N + row;
#if EXPERTS_PARTS == 1
  out[0] *= scores[token];
#endif
#if EXPERTS_RESIDUAL
  out[0] += extra[to];
#endif
  y[to] = out[0];
}

// experts_down. The grid is (blocks of rows, tokens). MATVEC_K is EXPERTS_PARTS times I, since x [T, EXPERTS_PARTS * I]
// is what experts_up wrote.
[[max_total_threads_per_threadgroup(MATVEC_THREADS)]]
kernel void experts_down(device const uint* w [[buffer(0)]],
                         device const WEIGHT_SCALE* scales [[buffer(1)]],
                         device const WEIGHT_SCALE* biases [[buffer(2)]],
                         device const int* experts [[buffer(3)]],
                         device const float* scores [[buffer(4)]],
                         device const float* x [[buffer(5)]],
                         device const float* extra [[buffer(6)]],  // absent: x
                         device float* y [[buffer(7)]],
                         device const int* step [[buffer(8)]],
                         uint3 group [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, stage, MATVEC_STAGE);
  TG_ARRAY(float, shared, MATVEC_SHARED(1));
  port_release();
  port_wait();
  if (!experts_token(int(group.y), step)) return;
  experts_sum(w, scales, biases, w, scales, biases, experts, scores, x, extra, y, int(group.x), int(group.y), thread_index, stage, shared);
}

// experts_join: experts_down with a shared expert, whose down matrix is v [H, I].
[[max_total_threads_per_threadgroup(MATVEC_THREADS)]]
kernel void experts_join(device const uint* w [[buffer(0)]],
                         device const WEIGHT_SCALE* scales [[buffer(1)]],
                         device const WEIGHT_SCALE* biases [[buffer(2)]],
                         device const uint* v [[buffer(3)]],
                         device const WEIGHT_SCALE* vscales [[buffer(4)]],
                         device const WEIGHT_SCALE* vbiases [[buffer(5)]],
                         device const int* experts [[buffer(6)]],
                         device const float* scores [[buffer(7)]],
                         device const float* x [[buffer(8)]],
                         device const float* extra [[buffer(9)]],  // absent: x
                         device float* y [[buffer(10)]],
                         device const int* step [[buffer(11)]],
                         uint3 group [[threadgroup_position_in_grid]],
                         uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, stage, MATVEC_STAGE);
  TG_ARRAY(float, shared, MATVEC_SHARED(1));
  port_release();
#if EXPERTS_TOKENS == 1 && MATVEC_ALL == 1 && MATVEC_LANES * MATVEC_COLS * EXPERTS_PARTS == MATVEC_K
  // These simdgroups read the shared expert alone, and need not wait for the choice.
  if (thread_index / 32 % MATVEC_SPLIT != 0) port_wait();
#else
  port_wait();
#endif
  if (!experts_token(int(group.y), step)) return;
  experts_sum(w, scales, biases, v, vscales, vbiases, experts, scores, x, extra, y, int(group.x), int(group.y), thread_index, stage, shared);
}
