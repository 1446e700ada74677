#include "port.h"
// Attention over a cache of keys and values in fp32: of one token, its positions divided among blocks
// (Dao et al., Flash-Decoding, 2023), or of the tokens of a chunk. A simdgroup serves ATT_H query heads of one
// key-value head for ATT_Q tokens, and takes ATT_TOKENS keys at a time, so that scores come out one to a lane.
// Token t of the call sits at position p = step[POSITION] + t, whose key lies in slot p mod SLOTS. It sees the
// positions up to p of which the cache has a slot, and of those the last WINDOW where that is not 0.
#ifndef ATT_D
#define ATT_D 64             // width of a head, a multiple of 32
#define ATT_HEADS 1
#define ATT_KV_HEADS 1
#define ATT_H 1
#define ATT_Q 1
#define ATT_TOKENS 32        // H · Q · TOKENS is 2, 4, 8, 16 or 32
#define ATT_SIMDGROUPS 4
#define ATT_BLOCKS 1         // that a query's positions may be divided into
#define ATT_LEAST 64         // positions of a block, so that short contexts use fewer blocks
#define ATT_SLICES 1
#define ATT_SLOTS 1
#define ATT_WINDOW 0
#define ATT_SCALE 1.0f       // of the scores, times log2(e)
#define ATT_BF16 0           // dtype of the cache: bf16 or f32
#define ATT_GATED 0          // the output times sigmoid(gate)
#define ATT_GATE_TOKEN 64
#define ATT_GATE_HEAD 64
#endif
#define ATT_GROUP (ATT_HEADS / ATT_KV_HEADS)
#define ATT_QUERIES (ATT_H * ATT_Q)
#define ATT_SCORES (ATT_QUERIES * ATT_TOKENS)
#define ATT_EACH (ATT_D / 32)

// A lane holds ATT_PARTS runs of ATT_VEC neighbouring elements of a row, as raw words.
#if ATT_BF16
#define ATT_T bfloat
#if ATT_D % 256 == 0
#define ATT_VEC 8
#define ATT_RAW uint4
#elif ATT_D % 128 == 0
#define ATT_VEC 4
#define ATT_RAW uint2
#elif ATT_D % 64 == 0
#define ATT_VEC 2
#define ATT_RAW uint
#else
#define ATT_VEC 1
#define ATT_RAW ushort
#endif
#else
#define ATT_T float
#if ATT_D % 128 == 0
#define ATT_VEC 4
#define ATT_RAW uint4
#elif ATT_D % 64 == 0
#define ATT_VEC 2
#define ATT_RAW uint2
#else
#define ATT_VEC 1
#define ATT_RAW uint
#endif
#endif
#define ATT_PARTS (ATT_EACH / ATT_VEC)

inline uint att_word(uint4 v, int i) { return v[i]; }
inline uint att_word(uint2 v, int i) { return v[i]; }
inline uint att_word(uint v, int i) { return v; }
inline uint att_word(ushort v, int i) { return uint(v) << 16; }
// Element i of what a lane has read.
inline float att_element(ATT_RAW v, int i) {
#if !ATT_BF16
  return as_type<float>(att_word(v, i));
#elif ATT_VEC == 1
  return as_type<float>(att_word(v, 0));
#else
  return i % 2 == 0 ? port_bf16_low(att_word(v, i / 2)) : port_bf16_high(att_word(v, i / 2));
#endif
}

// One step of summing 2W columns over pairs of lanes W apart: each lane keeps W.
template <int W> inline void att_fold(thread float* s, uint lane) {
  const bool up = (lane & uint(W)) != 0;
  UNROLL for (int i = 0; i < W; i++) {
    const float send = up ? s[i] : s[i + W];
    const float keep = up ? s[i + W] : s[i];
    s[i] = keep + simd_shuffle_xor(send, ushort(W));
  }
}

// The positions [x, y) that a query at a position sees; last is the last position that was written.
inline int2 att_visible(int at, int last) {
  int low = max(0, last - ATT_SLOTS + 1);
  if (ATT_WINDOW > 0) low = max(low, at - ATT_WINDOW + 1);
  return int2(low, at + 1);
}
// How many blocks n positions are divided into.
inline int att_blocks(int n) { return clamp((n + ATT_LEAST - 1) / ATT_LEAST, 1, ATT_BLOCKS); }

// q [T][HEADS][D]; keys, values [KV_HEADS][SLOTS][D]; part [T][HEADS][BLOCKS][D] and ml [T][HEADS][BLOCKS] of
// (largest score, sum of weights): sums of a block, relative to its largest score.
// grid: HEADS / H, BLOCKS, T / Q
[[max_total_threads_per_threadgroup(ATT_SIMDGROUPS * 32)]]
kernel void attention_part(device const float* q [[buffer(0)]],
                           device const ATT_T* keys [[buffer(1)]],
                           device const ATT_T* values [[buffer(2)]],
                           device float* part [[buffer(3)]],
                           device float2* ml [[buffer(4)]],
                           device const int* step [[buffer(5)]],
                           uint3 tg [[threadgroup_position_in_grid]],
                           uint sg [[simdgroup_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(float, sh_o, ATT_SIMDGROUPS * ATT_D);
  TG_ARRAY(float, sh_m, ATT_SIMDGROUPS * ATT_QUERIES);
  TG_ARRAY(float, sh_l, ATT_SIMDGROUPS * ATT_QUERIES);

  const int tokens = step[STEP_TOKENS];
  const int token0 = int(tg.z) * ATT_Q;
  if (token0 >= tokens) return;
  const int position = step[STEP_POSITION];
  const int last = position + tokens - 1;
  const int token1 = min(token0 + ATT_Q, tokens) - 1;
  // the positions that any of the queries sees, and of them those of this block
  const int low = att_visible(position + token0, last).x;
  const int high = position + token1 + 1;
  const int blocks = att_blocks(high - low);
  if (int(tg.y) >= blocks) return;
  const int chunk = (high - low + blocks - 1) / blocks;
  const int begin = low + int(tg.y) * chunk;
  const int end = min(high, begin + chunk);

  const int head0 = int(tg.x) * ATT_H;
  const int kv_head = head0 / ATT_GROUP;
  keys += long(kv_head) * ATT_SLOTS * ATT_D + lane * ATT_VEC;
  values += long(kv_head) * ATT_SLOTS * ATT_D + lane * ATT_VEC;

  // query r is head0 + r % H of token0 + r / H
  float qv[ATT_QUERIES][ATT_EACH];
  UNROLL for (int r = 0; r < ATT_QUERIES; r++) {
    device const float* from = q + (long(min(token0 + r / ATT_H, token1)) * ATT_HEADS + head0 + r % ATT_H) * ATT_D + lane * ATT_VEC;
    UNROLL for (int i = 0; i < ATT_EACH; i++) qv[r][i] = from[i / ATT_VEC * (32 * ATT_VEC) + i % ATT_VEC] * ATT_SCALE;
  }
  // the query and the place among the keys of the lane's score
  const int mine = int(lane) % ATT_SCORES;
  const int2 seen = att_visible(position + min(token0 + mine / ATT_TOKENS / ATT_H, token1), last);

  float o[ATT_QUERIES][ATT_EACH];
  UNROLL for (int r = 0; r < ATT_QUERIES; r++) {
    UNROLL for (int i = 0; i < ATT_EACH; i++) o[r][i] = 0.0f;
  }
  float m = -1e30f;  // the largest score of the lane's query, in units of log2
  float l = 0.0f;    // the weights of the lane's query and place

  const int first = begin % ATT_SLOTS;  // the slot of begin
  for (int t = begin + int(sg) * ATT_TOKENS; t < end; t += ATT_SIMDGROUPS * ATT_TOKENS) {
    ATT_RAW kv[ATT_TOKENS][ATT_PARTS];
    ATT_RAW vv[ATT_TOKENS][ATT_PARTS];
    UNROLL for (int j = 0; j < ATT_TOKENS; j++) {
      int slot = first + min(t + j, end - 1) - begin;
      if (slot >= ATT_SLOTS) slot -= ATT_SLOTS;
      UNROLL for (int i = 0; i < ATT_PARTS; i++) {
        kv[j][i] = *(device const ATT_RAW*)(keys + long(slot) * ATT_D + i * (32 * ATT_VEC));
        vv[j][i] = *(device const ATT_RAW*)(values + long(slot) * ATT_D + i * (32 * ATT_VEC));
      }
    }
    float s[ATT_SCORES];  // [query][key]
    UNROLL for (int j = 0; j < ATT_TOKENS; j++) {
      UNROLL for (int r = 0; r < ATT_QUERIES; r++) {
        float a = 0.0f;
        UNROLL for (int i = 0; i < ATT_EACH; i++) a += qv[r][i] * att_element(kv[j][i / ATT_VEC], i % ATT_VEC);
        s[r * ATT_TOKENS + j] = a;
      }
    }
    // sums over 32 lanes, of which each lane keeps one
#if ATT_SCORES < 32
    UNROLL for (int i = 0; i < ATT_SCORES; i++) s[i] += simd_shuffle_xor(s[i], 16);
#endif
#if ATT_SCORES < 16
    UNROLL for (int i = 0; i < ATT_SCORES; i++) s[i] += simd_shuffle_xor(s[i], 8);
#endif
#if ATT_SCORES < 8
    UNROLL for (int i = 0; i < ATT_SCORES; i++) s[i] += simd_shuffle_xor(s[i], 4);
#endif
#if ATT_SCORES < 4
    UNROLL for (int i = 0; i < ATT_SCORES; i++) s[i] += simd_shuffle_xor(s[i], 2);
#endif
#if ATT_SCORES >= 32
    att_fold<16>(s, lane);
#endif
#if ATT_SCORES >= 16
    att_fold<8>(s, lane);
#endif
#if ATT_SCORES >= 8
    att_fold<4>(s, lane);
#endif
#if ATT_SCORES >= 4
    att_fold<2>(s, lane);
#endif
    att_fold<1>(s, lane);
    const int at = t + mine % ATT_TOKENS;
    const bool visible = at >= seen.x && at < min(seen.y, end);
    const float score = visible ? s[0] : -1e30f;
    float top = score;
    UNROLL for (int w = 1; w < ATT_TOKENS; w *= 2) top = max(top, simd_shuffle_xor(top, ushort(w)));
    if (simd_any(top > m)) {
      const float grown = max(m, top);
      const float f = fast::exp2(m - grown);
      m = grown;
      l *= f;
      UNROLL for (int r = 0; r < ATT_QUERIES; r++) {
        const float fr = simd_shuffle(f, ushort(r * ATT_TOKENS));
        UNROLL for (int i = 0; i < ATT_EACH; i++) o[r][i] *= fr;
      }
    }
    const float e = visible ? fast::exp2(score - m) : 0.0f;
    l += e;
    UNROLL for (int r = 0; r < ATT_QUERIES; r++) {
      UNROLL for (int j = 0; j < ATT_TOKENS; j++) {
        const float p = simd_shuffle(e, ushort(r * ATT_TOKENS + j));
        UNROLL for (int i = 0; i < ATT_EACH; i++) o[r][i] += p * att_element(vv[j][i / ATT_VEC], i % ATT_VEC);
      }
    }
  }
  UNROLL for (int w = 1; w < ATT_TOKENS; w *= 2) l += simd_shuffle_xor(l, ushort(w));
  if (int(lane) < ATT_SCORES && lane % ATT_TOKENS == 0) {
    sh_m[sg * ATT_QUERIES + lane / ATT_TOKENS] = m;
    sh_l[sg * ATT_QUERIES + lane / ATT_TOKENS] = l;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  UNROLL for (int r = 0; r < ATT_QUERIES; r++) {
    float mm = sh_m[r];
    UNROLL for (int g = 1; g < ATT_SIMDGROUPS; g++) mm = max(mm, sh_m[g * ATT_QUERIES + r]);
    const float f = fast::exp2(sh_m[sg * ATT_QUERIES + r] - mm);
    UNROLL for (int i = 0; i < ATT_EACH; i++) {
      sh_o[sg * ATT_D + lane * ATT_VEC + i / ATT_VEC * (32 * ATT_VEC) + i % ATT_VEC] = o[r][i] * f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (token0 + r / ATT_H <= token1) {
      const long to = (long(token0 + r / ATT_H) * ATT_HEADS + head0 + r % ATT_H) * ATT_BLOCKS + tg.y;
      for (int d = int(sg * 32 + lane); d < ATT_D; d += ATT_SIMDGROUPS * 32) {
        float a = 0.0f;
        UNROLL for (int g = 0; g < ATT_SIMDGROUPS; g++) a += sh_o[g * ATT_D + d];
        part[to * ATT_D + d] = a;
      }
      if (sg == 0 && lane == 0) {
        float ll = 0.0f;
        UNROLL for (int g = 0; g < ATT_SIMDGROUPS; g++) ll += sh_l[g * ATT_QUERIES + r] * fast::exp2(sh_m[g * ATT_QUERIES + r] - mm);
        ml[to] = float2(mm, ll);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// part, ml: from attention_part; gate: heads at their strides; out [T][HEADS][D]. SLICES threads share an element.
// grid: HEADS, T
[[max_total_threads_per_threadgroup(ATT_SLICES * ATT_D)]]
kernel void attention_merge(device const float* part [[buffer(0)]],
                            device const float2* ml [[buffer(1)]],
                            device const float* gate [[buffer(2)]],
                            device float* out [[buffer(3)]],
                            device const int* step [[buffer(4)]],
                            uint3 tg [[threadgroup_position_in_grid]],
                            uint tid [[thread_index_in_threadgroup]],
                            uint sg [[simdgroup_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(float, factors, ATT_BLOCKS);
  TG_ARRAY(float, sums, ATT_SLICES * ATT_D);
  const int head = int(tg.x);
  const int t = int(tg.y);
  const int tokens = step[STEP_TOKENS];
  if (t >= tokens) return;
  const int position = step[STEP_POSITION];
  // as attention_part divided the positions of the token's queries
  const int token0 = t / ATT_Q * ATT_Q;
  const int token1 = min(token0 + ATT_Q, tokens) - 1;
  const int blocks = att_blocks(position + token1 + 1 - att_visible(position + token0, position + tokens - 1).x);
  ml += (long(t) * ATT_HEADS + head) * ATT_BLOCKS;
  part += (long(t) * ATT_HEADS + head) * ATT_BLOCKS * ATT_D;
  float m = -1e30f;
  for (int b = int(lane); b < blocks; b += 32) m = max(m, ml[b].x);
  m = simd_max(m);
  float l = 0.0f;
  for (int b = int(lane); b < blocks; b += 32) {
    const float2 of = ml[b];
    const float f = fast::exp2(of.x - m);
    l += of.y * f;
    if (sg == 0) factors[b] = f;
  }
  l = simd_sum(l);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const int d = int(tid) % ATT_D;
  const int slice = int(tid) / ATT_D;
  float o = 0.0f;
  for (int b = slice; b < blocks; b += ATT_SLICES) o += part[long(b) * ATT_D + d] * factors[b];
#if ATT_SLICES > 1
  sums[tid] = o;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (slice > 0) return;
  for (int i = 1; i < ATT_SLICES; i++) o += sums[i * ATT_D + d];
#endif
  o /= l;
#if ATT_GATED
  o *= port_sigmoid(gate[long(t) * ATT_GATE_TOKEN + head * ATT_GATE_HEAD + d]);
#endif
  out[(long(t) * ATT_HEADS + head) * ATT_D + d] = o;
}
