#include "port.h"
#include "weights.h"
#include "router.h"
#include "product.h"
#include "mixture.h"
#include "raw.h"
// Computes what experts_choose of experts.metal computes, for up to 8 tokens, with the same buffers. Results differ, since x is
// rounded to bf16. The weights of an expert are read once for all tokens that use it.
//
// Every threadgroup first chooses the experts of all tokens. There are as many threadgroups as the device runs at once. They divide
// the steps of all chosen experts, and of the shared one, evenly among each other. A step is eight rows of an expert's gate matrix
// and the same eight rows of its up matrix. It multiplies them with all tokens, also with those that do not use the expert: a tile
// of vectors has eight columns anyway.
//
// A simdgroup takes RAW_COLUMNS columns of every row, and keeps these columns of all tokens in registers. It reads the weights of
// ONCE_DEPTH steps ahead, also across the end of an expert. After every ONCE_DEPTH steps there is one barrier, and then the threads
// add up the sums of all simdgroups.
#define PORT_WAITS
#define PORT_RELEASES

#ifndef ONCE_GROUPS         // threadgroups
#define ONCE_GROUPS 4
#endif
#ifndef ONCE_DEPTH          // steps whose weights are read ahead: 1 to 4
#define ONCE_DEPTH 1
#endif
#ifndef ONCE_ROOM           // threadgroups that one multiprocessor must have registers for
#define ONCE_ROOM 1
#endif
#define ONCE_WIDE (MATVEC_K / RAW_COLUMNS)            // simdgroups
#define ONCE_THREADS (ONCE_WIDE * 32)
#define ONCE_STEPS (EXPERTS_N / 8)                    // steps of an expert
#define ONCE_TOKENS 8
#define ONCE_PAIRS (ONCE_TOKENS * EXPERTS_TOP)
#define ONCE_CHOOSERS (ONCE_WIDE < 8 ? ONCE_WIDE : 8)  // simdgroups that choose experts, each for one token at a time
#define ONCE_LISTS (ONCE_CHOOSERS * 2 * ROUTER_LIST)
#define ONCE_WORDS (ONCE_TOKENS / 4)                  // words with one byte for each token
#define ONCE_SUMS 128                                 // sums that a simdgroup makes in a step: 16 rows times eight vectors
#define ONCE_KEPT (2 * ONCE_DEPTH * ONCE_WIDE * ONCE_SUMS)

// Chooses the experts of all tokens, with all threads. keys and places [ONCE_TOKENS * EXPERTS_TOP] get what router_rank returns.
// table [ROUTER_EXPERTS][ONCE_TOKENS], all zeros before, gets 1 + the rank of the expert among the experts of the token.
inline void once_rank(device const float* logits, int tokens, int simd, int lane, threadgroup uint* lists, threadgroup uint* keys, threadgroup int* places, threadgroup uchar* table) {
  threadgroup uint* list = lists + simd * 2 * ROUTER_LIST;
  threadgroup int* at = (threadgroup int*)(list + ROUTER_LIST);
  if (simd >= ONCE_CHOOSERS) return;
  NOUNROLL for (int token = simd; token < tokens; token += ONCE_CHOOSERS) {
    threadgroup uint* own = keys + token * EXPERTS_TOP;
    threadgroup int* chosen = places + token * EXPERTS_TOP;
    const int count = router_shorten(logits + long(token) * ROUTER_EXPERTS, lane, list, at);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (count <= 32) {  // nearly always: each lane finds the rank of one candidate
      const uint key = lane < count ? list[lane] : 0u;
      int rank = 0;
      UNROLL for (int i = 0; i < 32; i++) {
        const uint other = simd_shuffle(key, ushort(i));
        rank += other > key || (other == key && i > lane) ? 1 : 0;
      }
      if (lane < count && rank < EXPERTS_TOP) {
        own[rank] = key;
        chosen[rank] = at[lane];
      }
    } else {
      router_rank(list, at, count, lane, 0, 1, own, chosen);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    if (lane < EXPERTS_TOP) table[chosen[lane] * ONCE_TOKENS + token] = uchar(lane + 1);
  }
}

// Lists the experts that at least one token has chosen, with all threads, and returns how many they are. slots gets the row of
// table of each listed expert.
inline int once_list(threadgroup const uint* table, int thread_index, threadgroup int* totals, threadgroup int* list, threadgroup uint* slots) {
  const int lane = thread_index % 32;
  const int simd = thread_index / 32;
  int count = 0;
  NOUNROLL for (int base = 0; base < ROUTER_EXPERTS; base += ONCE_WIDE * 32) {
    const int expert = base + thread_index;
    uint mine[ONCE_WORDS];
    uint any = 0u;
    UNROLL for (int i = 0; i < ONCE_WORDS; i++) {
      mine[i] = expert < ROUTER_EXPERTS ? table[expert * ONCE_WORDS + i] : 0u;
      any |= mine[i];
    }
    const uint all = port_ballot(any != 0u);
    if (lane == 0) totals[simd] = int(popcount(all));
    threadgroup_barrier(mem_flags::mem_threadgroup);
    int at = count + int(popcount(all & ((1u << lane) - 1u)));
    UNROLL for (int s = 0; s < ONCE_WIDE; s++) {
      at += s < simd ? totals[s] : 0;
      count += totals[s];
    }
    if (any != 0u) {
      list[at] = expert;
      UNROLL for (int i = 0; i < ONCE_WORDS; i++) slots[at * ONCE_WORDS + i] = mine[i];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  return count;
}

// The gate and up matrices of the experts.
struct once_lift {
  device const uint* w[2];
  device const WEIGHT_SCALE* scales[2];
  device const WEIGHT_SCALE* biases[2];
  device const uint* v[2];
  device const WEIGHT_SCALE* vscales[2];
  device const WEIGHT_SCALE* vbiases[2];
  device float* y;
  threadgroup const int* list;
  threadgroup const uint* slots;
  threadgroup const float* factors;  // 1 / RMS of each token, with MATVEC_NORM
  int tokens;
  // Starts to read the 16 rows of a step. The lower eight are of the gate matrix, the upper eight of the up matrix.
  void read(int step, int simd, int lane, thread raw_rows& to) thread {
    const int at = step / ONCE_STEPS;
    const bool apart = EXPERTS_SHARED && at == 0;
    const uint row = uint((apart ? 0 : list[at - EXPERTS_SHARED] * EXPERTS_N) + step % ONCE_STEPS * 8 + lane / 4);
    UNROLL for (int upper = 0; upper < 2; upper++) {
      raw_read(apart ? v[upper] : w[upper], apart ? vscales[upper] : scales[upper], apart ? vbiases[upper] : biases[upper], row, MATVEC_K, simd * RAW_COLUMNS, lane, upper, to);
    }
  }
  // Writes the result of one row of a step for a token, if the token uses the expert. gate and up are the two products.
  void end(int step, int token, int row, float gate, float up) thread {
    const int at = step / ONCE_STEPS;
    const bool apart = EXPERTS_SHARED && at == 0;
    const int place = apart ? 1 : int(((threadgroup const uchar*)(slots + (at - EXPERTS_SHARED) * ONCE_WORDS))[token]);
    if (place == 0 || token >= tokens) return;
    const int part = apart ? 0 : place - 1 + EXPERTS_SHARED;
    const float factor = MATVEC_NORM ? factors[token] : 1.0f;
    y[(long(token) * EXPERTS_PARTS + part) * EXPERTS_N + step % ONCE_STEPS * 8 + row] = port_activate(EXPERTS_ACTIVATION, gate * factor) * (up * factor);
  }
};

// Runs steps begin to end - 1. vectors and totals are the parameters x and totals of raw_multiply. memory has ONCE_KEPT floats.
inline void once_run(thread once_lift& product, int begin, int end, thread const uint* vectors, thread const float* totals, threadgroup float* memory, int simd, int lane) {
  raw_rows ahead[ONCE_DEPTH];
  UNROLL for (int d = 0; d < ONCE_DEPTH; d++) {
    if (begin + d < end) product.read(begin + d, simd, lane, ahead[d]);
  }
  int side = 0;
  NOUNROLL for (int first = begin; first < end; first += ONCE_DEPTH) {
    threadgroup float* kept = memory + side * (ONCE_KEPT / 2);
    UNROLL for (int d = 0; d < ONCE_DEPTH; d++) {
      if (first + d < end) {
        float own[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        raw_multiply(ahead[d], vectors, totals, own);
        if (first + d + ONCE_DEPTH < end) product.read(first + d + ONCE_DEPTH, simd, lane, ahead[d]);
        *(threadgroup float4*)(kept + (d * ONCE_WIDE + simd) * ONCE_SUMS + lane * 4) = float4(own[0], own[1], own[2], own[3]);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // While one simdgroup adds up here, another one may already write to the other half of memory.
    NOUNROLL for (int i = simd * 32 + lane; i < min(ONCE_DEPTH, end - first) * ONCE_SUMS; i += ONCE_THREADS) {
      const int d = i / ONCE_SUMS;
      threadgroup const float* from = kept + d * (ONCE_WIDE * ONCE_SUMS) + i % ONCE_SUMS;
      float sum = 0.0f;
      UNROLL for (int s = 0; s < ONCE_WIDE; s++) sum += from[s * ONCE_SUMS];
      const float up = simd_shuffle_xor(sum, 2);
      if (i % 4 < 2) product.end(first + d, i / 4 % 4 * 2 + i % 2, i % ONCE_SUMS / 16, sum, up);
    }
    side = 1 - side;
  }
}

// Reads 64 columns of a token, 16 of each of four groups from column on, and writes them to out in the order of raw_multiply. With a
// norm it multiplies them by the norm's weights, and returns the sum of their squares before that; else it returns 0.
inline float once_vector(device const float* x, device const MATVEC_NORM_T* norm, int column, thread uint* out) {
  float square = 0.0f;
  UNROLL for (int i = 0; i < 8; i++) {  // eight columns at a time
    const int at = column + i / 2 * 64 + i % 2 * 8;
    float v[8];
    UNROLL for (int h = 0; h < 2; h++) {
      const float4 four = port_four(x + at + h * 4);
      UNROLL for (int e = 0; e < 4; e++) {
        v[h * 4 + e] = four[e];
        if (MATVEC_NORM) square += four[e] * four[e];
      }
#if MATVEC_NORM == 1 || MATVEC_NORM == 2
      const float4 factor = port_four(norm + at + h * 4);
      UNROLL for (int e = 0; e < 4; e++) v[h * 4 + e] *= factor[e];
#endif
    }
    UNROLL for (int e = 0; e < 4; e++) out[i * 4 + e] = port_pack_bf16(v[e], v[e + 4]);
  }
  return square;
}

// Writes the chosen experts and their scores, both [T, PARTS], with all threads of one threadgroup. It publishes the experts, so that
// the next kernel may read them before its wait.
inline void once_write(device const float* logits, device const ROUTER_SCALES_T* expert_scales, device const float* gates, threadgroup const uint* keys, threadgroup const int* places,
                       int tokens, int simd, int lane, device int* experts, device float* scores) {
  for (int i = simd * 32 + lane; i < tokens * EXPERTS_PARTS; i += ONCE_THREADS) {
    const int part = i % EXPERTS_PARTS;
    experts[i] = EXPERTS_SHARED && part == 0 ? 0 : places[i / EXPERTS_PARTS * EXPERTS_TOP + part - EXPERTS_SHARED];
  }
  port_publish();
  NOUNROLL for (int token = simd; token < tokens; token += ONCE_WIDE) {
    mixture_scores(logits + long(token) * ROUTER_EXPERTS, expert_scales, gates, keys + token * EXPERTS_TOP, places + token * EXPERTS_TOP, token, lane, scores);
  }
  threadgroup_barrier(mem_flags::mem_none);
}

// grid: ONCE_GROUPS
// arguments: experts_choose
[[max_total_threads_per_threadgroup(PORT_BOUND(ONCE_THREADS, ONCE_ROOM))]]
kernel void once_choose(device const uint* w0 [[buffer(0)]],
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
                        uint group [[threadgroup_position_in_grid]],
                        uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, memory, ONCE_KEPT > ONCE_LISTS ? ONCE_KEPT : ONCE_LISTS);  // first the lists of candidates, then sums
  TG_ARRAY(uint, table, ROUTER_EXPERTS * ONCE_WORDS);
  TG_ARRAY(uint, keys, ONCE_PAIRS);
  TG_ARRAY(int, places, ONCE_PAIRS);
  TG_ARRAY(int, list, ONCE_PAIRS);
  TG_ARRAY(uint, slots, ONCE_PAIRS * ONCE_WORDS);
  TG_ARRAY(int, counts, ONCE_WIDE);
  TG_ARRAY(float, squares, ONCE_WIDE * ONCE_TOKENS);
  TG_ARRAY(float, factors, ONCE_TOKENS);
  const int lane = thread_index % 32;
  const int simd = simd_broadcast_first(thread_index / 32);
  for (int i = thread_index; i < ROUTER_EXPERTS * ONCE_WORDS; i += ONCE_THREADS) table[i] = 0u;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  port_wait();
  const int tokens = min(step[STEP_TOKENS], ONCE_TOKENS);
  uint vectors[32];
  float square = once_vector(x + long(min(lane / 4, tokens - 1)) * MATVEC_K, norm, simd * RAW_COLUMNS + lane % 4 * 16, vectors);
  square += simd_shuffle_xor(square, 1);
  square += simd_shuffle_xor(square, 2);
  if (MATVEC_NORM && lane % 4 == 0) squares[simd * ONCE_TOKENS + lane / 4] = square;
  once_rank(logits, tokens, simd, lane, (threadgroup uint*)memory, keys, places, (threadgroup uchar*)table);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (MATVEC_NORM && thread_index < ONCE_TOKENS) {
    float sum = 0.0f;
    UNROLL for (int s = 0; s < ONCE_WIDE; s++) sum += squares[s * ONCE_TOKENS + thread_index];
    factors[thread_index] = precise::rsqrt(sum / float(MATVEC_K) + MATVEC_EPS);
  }
  const int count = once_list(table, thread_index, counts, list, slots);
  if (group == 0) once_write(logits, expert_scales, gates, keys, places, tokens, simd, lane, experts, scores);
  port_release();
  float totals[8];
  raw_totals(vectors, totals);
  const int all = (count + EXPERTS_SHARED) * ONCE_STEPS;
  once_lift product = {{w0, w1}, {scales0, scales1}, {biases0, biases1}, {v0, v1}, {vscales0, vscales1}, {vbiases0, vbiases1}, y, list, slots, factors, tokens};
  once_run(product, int(group) * all / ONCE_GROUPS, int(group + 1) * all / ONCE_GROUPS, vectors, totals, memory, simd, lane);
}
