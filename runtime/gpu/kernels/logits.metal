#include "port.h"
// The runtime's own sampler: changes of logits [rows, VOCAB] before a token is drawn, and log-probabilities afterwards.
// ir/eval defines them.
#ifndef LOGITS_VOCAB
#define LOGITS_VOCAB 1024
#define LOGITS_LISTED 4       // tokens in the list of a row
#define LOGITS_BIAS 1         // they have biases,
#define LOGITS_COUNTS 1       // counts and penalties
#define LOGITS_FED 1          // a token was fed that the counts leave out
#define LOGITS_MASK 1         // there are masks, so many words of 32 bits each, an even number
#define LOGITS_WORDS 32
#define LOGITS_PARTS 32       // of a row, at most 1024
#define LOGITS_EACH 32        // logits of a part
#define LOGITS_TOP 4          // tokens that a row has room for
#endif
#define LOGITS_BLOCK 1024     // logits of a threadgroup that adjusts them
#define LOGITS_SIMDGROUPS 8   // of a threadgroup that takes parts

inline float logits_penalized(float v, int all, int answer, device const float* penalties) {
  if (all > 0) v = v > 0.0f ? v / penalties[0] : v * penalties[0];
  if (answer > 0) {
    const float frequency = float(answer) * penalties[2];
    v = (v - frequency) - penalties[1];
  }
  return v;
}

// logits, out [rows, VOCAB]; ids i32 [rows, LISTED], bias f32 [rows, LISTED], counts i32 [rows, LISTED, 2], penalties f32
// [rows, 3], fed and mask_row i32 [rows], mask [masks, WORDS].
// grid: blocks of a row, rows
[[max_total_threads_per_threadgroup(256)]]
kernel void logits_adjust(device const float* logits [[buffer(0)]],
                          device const int* ids [[buffer(1)]],  // absent: logits
                          device const float* bias [[buffer(2)]],  // absent: logits
                          device const int* counts [[buffer(3)]],  // absent: logits
                          device const float* penalties [[buffer(4)]],  // absent: logits
                          device const int* fed [[buffer(5)]],  // absent: logits
                          device const uint* mask [[buffer(6)]],  // absent: logits
                          device const int* mask_row [[buffer(7)]],  // absent: logits
                          device float* out [[buffer(8)]],
                          uint3 tg [[threadgroup_position_in_grid]],
                          uint tid [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, block, LOGITS_BLOCK);
  TG_ARRAY(int, listed, 1);
  const int first = int(tg.x) * LOGITS_BLOCK;
  const int n = min(LOGITS_BLOCK, LOGITS_VOCAB - first);
  device const float* from = logits + long(tg.y) * LOGITS_VOCAB + first;
  for (int i = int(tid); i < n; i += 256) block[i] = from[i];
#if LOGITS_LISTED
  int token = -1;
#if LOGITS_FED
  token = fed[tg.y];
#endif
  if (tid == 0) listed[0] = 0;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = int(tid); i < LOGITS_LISTED; i += 256) {
    const int at = int(tg.y) * LOGITS_LISTED + i;
    const int id = ids[at];
    if (id == token) listed[0] = 1;
    if (id < first || id >= first + n) continue;
    float v = block[id - first];
#if LOGITS_BIAS
    v += bias[at];
#endif
#if LOGITS_COUNTS
    const int more = id == token ? 1 : 0;
    v = logits_penalized(v, counts[2 * at] + more, counts[2 * at + 1] + more, penalties + 3 * tg.y);
#endif
    block[id - first] = v;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
#if LOGITS_FED
  if (tid == 0 && listed[0] == 0 && token >= first && token < first + n)
    block[token - first] = logits_penalized(block[token - first], 1, 1, penalties + 3 * tg.y);
#endif
#endif
  threadgroup_barrier(mem_flags::mem_threadgroup);
  device float* to = out + long(tg.y) * LOGITS_VOCAB + first;
#if LOGITS_MASK
  const int set = mask_row[tg.y];
  device const uint* words = mask + long(max(set, 0)) * LOGITS_WORDS;
#endif
  for (int i = int(tid); i < n; i += 256) {
    float v = block[i];
#if LOGITS_MASK
    const uint t = uint(first + i);
    if (set >= 0 && ((words[t / 32] >> (t % 32)) & 1) == 0) v = -INFINITY;
#endif
    to[i] = v;
  }
}

inline bool logits_better(float v, int at, float than, int than_at) { return v > than || (v == than && at < than_at); }

// Finds the best logit among the lanes of a simdgroup, for all of them. at is negative where a lane has none.
inline void logits_best(thread float& best, thread int& at) {
  UNROLL for (int w = 16; w > 0; w /= 2) {
    const float v = simd_shuffle_xor(best, ushort(w));
    const int i = simd_shuffle_xor(at, ushort(w));
    if (i >= 0 && (at < 0 || logits_better(v, i, best, at))) {
      best = v;
      at = i;
    }
  }
}

// logprobs_part: for each part of the rows that want log-probabilities, the largest logit, its index (negative where
// all are NaN), and the sum of e^(v - largest). tops, sums f32 and places i32 [rows, PARTS]; wanted i32 [rows]. grid:
// PARTS / SIMDGROUPS, rows
[[max_total_threads_per_threadgroup(LOGITS_SIMDGROUPS * 32)]]
kernel void logprobs_part(device const float* logits [[buffer(0)]],
                          device const int* wanted [[buffer(1)]],
                          device float* tops [[buffer(2)]],
                          device int* places [[buffer(3)]],
                          device float* sums [[buffer(4)]],
                          uint3 tg [[threadgroup_position_in_grid]],
                          uint sg [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
  const int part = int(tg.x) * LOGITS_SIMDGROUPS + int(sg);
  if (part >= LOGITS_PARTS || wanted[tg.y] < 0) return;
  device const float* row = logits + long(tg.y) * LOGITS_VOCAB;
  const int end = min((part + 1) * LOGITS_EACH, LOGITS_VOCAB);
  float best = -INFINITY;
  int at = -1;
  for (int i = part * LOGITS_EACH + int(lane); i < end; i += 32) {
    const float v = row[i];
    if (v == v && (at < 0 || v > best)) {
      best = v;
      at = i;
    }
  }
  logits_best(best, at);
  float sum = 0.0f;
  for (int i = part * LOGITS_EACH + int(lane); i < end; i += 32) {
    const float v = row[i];
    if (v > -INFINITY) sum += precise::exp(v - best);
  }
  sum = simd_sum(sum);
  if (lane == 0) {
    const uint to = tg.y * LOGITS_PARTS + uint(part);
    tops[to] = best;
    places[to] = at;
    sums[to] = sum;
  }
}

// logprobs_choose: reads the results of logprobs_part, the rows' tokens, and wanted i32 [rows]. Writes logprob f32
// [rows], ids i32 and likely f32 [rows, TOP]. Each thread keeps the best token of its part that was not chosen yet.
// grid: 1, rows
[[max_total_threads_per_threadgroup(1024)]]
kernel void logprobs_choose(device const float* logits [[buffer(0)]],
                            device const int* token [[buffer(1)]],
                            device const int* wanted [[buffer(2)]],
                            device const float* tops [[buffer(3)]],
                            device const int* places [[buffer(4)]],
                            device const float* sums [[buffer(5)]],
                            device float* logprob [[buffer(6)]],
                            device int* ids [[buffer(7)]],
                            device float* likely [[buffer(8)]],
                            uint3 tg [[threadgroup_position_in_grid]],
                            uint tid [[thread_index_in_threadgroup]],
                            uint sg [[simdgroup_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(float, part_best, 32);
  TG_ARRAY(int, part_at, 32);
  TG_ARRAY(float, part_sum, 32);
  const uint row = tg.y;
  device const float* from = logits + long(row) * LOGITS_VOCAB;
  const int want = min(wanted[row], LOGITS_TOP);
  for (int i = int(tid); i < LOGITS_TOP; i += 1024) {
    if (i >= want) {
      ids[int(row) * LOGITS_TOP + i] = -1;
      likely[int(row) * LOGITS_TOP + i] = 0.0f;
    }
  }
  if (want < 0) {
    if (tid == 0) logprob[row] = 0.0f;
    return;
  }
  // the best token of the thread's part that was not chosen yet
  const bool have = tid < LOGITS_PARTS;
  float mine = have ? tops[row * LOGITS_PARTS + tid] : -INFINITY;
  int mine_at = have ? places[row * LOGITS_PARTS + tid] : -1;
  float best = mine;
  int at = mine_at;
  logits_best(best, at);
  if (lane == 0) {
    part_best[sg] = best;
    part_at[sg] = at;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  best = part_best[lane];
  at = part_at[lane];
  logits_best(best, at);
  const float top = best;
  float sum = have && mine_at >= 0 && mine > -INFINITY ? sums[row * LOGITS_PARTS + tid] * precise::exp(mine - top) : 0.0f;
  sum = simd_sum(sum);
  if (lane == 0) part_sum[sg] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float scale = precise::log(simd_sum(part_sum[lane]));
  if (tid == 0) logprob[row] = (from[token[row]] - top) - scale;
  for (int i = 0; i < want; i++) {
    // best and at become those of all parts, in every thread
    if (tid == 0) {
      ids[int(row) * LOGITS_TOP + i] = at;
      likely[int(row) * LOGITS_TOP + i] = at < 0 ? 0.0f : (best - top) - scale;
    }
    const int part = at < 0 ? -1 : at / LOGITS_EACH;
    if (part >= 0 && int(sg) == part / 32) {
      // the simdgroup of that part's thread searches the next token in the part
      const int end = min((part + 1) * LOGITS_EACH, LOGITS_VOCAB);
      float next = -INFINITY;
      int next_at = -1;
      for (int j = part * LOGITS_EACH + int(lane); j < end; j += 32) {
        const float v = from[j];
        if (v == v && logits_better(best, at, v, j) && (next_at < 0 || v > next)) {
          next = v;
          next_at = j;
        }
      }
      logits_best(next, next_at);
      if (int(lane) == part % 32) {
        mine = next;
        mine_at = next_at;
      }
      float other = mine;
      int other_at = mine_at;
      logits_best(other, other_at);
      if (lane == 0) {
        part_best[sg] = other;
        part_at[sg] = other_at;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    best = part_best[lane];
    at = part_at[lane];
    logits_best(best, at);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}
