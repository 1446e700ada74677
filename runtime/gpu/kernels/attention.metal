#include "port.h"
#include "attention.h"
// Attention in fp32: of one token, whose positions are divided into blocks (Dao et al., Flash-Decoding, 2023), or of
// the tokens of a chunk.

// attention_part computes partial results. q [T][HEADS][D]; keys, values [KV_HEADS][SLOTS][D]; part
// [T][HEADS][BLOCKS][D] and ml [T][HEADS][BLOCKS] of (largest score, sum of weights): a block's weighted sums of
// values, relative to its largest score. grid: HEADS / H, BLOCKS, T / Q
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
  // the positions that any of the queries attends to, and those of them in this block
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
  float qv[ATT_QUERIES * ATT_EACH];
  UNROLL for (int r = 0; r < ATT_QUERIES; r++) {
    device const float* from = q + (long(min(token0 + r / ATT_H, token1)) * ATT_HEADS + head0 + r % ATT_H) * ATT_D + lane * ATT_VEC;
    UNROLL for (int i = 0; i < ATT_EACH; i++) qv[r * ATT_EACH + i] = from[i / ATT_VEC * (32 * ATT_VEC) + i % ATT_VEC] * ATT_SCALE;
  }
  // the number of the lane's query, and its key's number within the group of keys
  const int mine = int(lane) % ATT_SCORES;
  const int2 seen = att_visible(position + min(token0 + mine / ATT_TOKENS / ATT_H, token1), last);

  float o[ATT_QUERIES * ATT_EACH];
  UNROLL for (int r = 0; r < ATT_QUERIES; r++) {
    UNROLL for (int i = 0; i < ATT_EACH; i++) o[r * ATT_EACH + i] = 0.0f;
  }
  float m = -1e30f;  // the largest score of the lane's query, in units of log2
  float l = 0.0f;    // the weights of the lane's query and place

  const int first = begin % ATT_SLOTS;  // the slot of begin
  for (int t = begin + int(sg) * ATT_TOKENS; t < end; t += ATT_SIMDGROUPS * ATT_TOKENS) {
    ATT_RAW kv[ATT_TOKENS * ATT_PARTS];
    ATT_RAW vv[ATT_TOKENS * ATT_PARTS];
    UNROLL for (int j = 0; j < ATT_TOKENS; j++) {
      int slot = first + min(t + j, end - 1) - begin;
      if (slot >= ATT_SLOTS) slot -= ATT_SLOTS;
      UNROLL for (int i = 0; i < ATT_PARTS; i++) {
        kv[j * ATT_PARTS + i] = *(device const ATT_RAW*)(keys + long(slot) * ATT_D + i * (32 * ATT_VEC));
        vv[j * ATT_PARTS + i] = *(device const ATT_RAW*)(values + long(slot) * ATT_D + i * (32 * ATT_VEC));
      }
    }
    const int at = t + mine % ATT_TOKENS;
    float s[ATT_SCORES];
    att_scores<ATT_QUERIES>(qv, kv, s);
    att_add<ATT_QUERIES>(att_weigh<ATT_QUERIES>(s, at >= seen.x && at < min(seen.y, end), lane, m, l, o), vv, o);
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
      sh_o[sg * ATT_D + lane * ATT_VEC + i / ATT_VEC * (32 * ATT_VEC) + i % ATT_VEC] = o[r * ATT_EACH + i] * f;
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

// attention_merge combines the blocks. part, ml: from attention_part; gate: heads at their strides; out [T][HEADS][D].
// SLICES threads share an element. grid: HEADS, T
[[max_total_threads_per_threadgroup(ATT_SLICES * ATT_D)]]
kernel void attention_merge(device const float* part [[buffer(0)]],
                            device const float2* ml [[buffer(1)]],
                            device const float* gate [[buffer(2)]],  // absent: out
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
  // the same division into blocks as in attention_part
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
