#include "port.h"
#include "attention.h"
// Attention of one token, with what comes before it and after: its heads are normalized and rotated (as rope.metal has it),
// its key and value are written to the caches, and the results of blocks of positions are put together.
//
// The threadgroups of the blocks but for the last attend to positions that earlier calls wrote to the caches. The last one also
// attends to the token itself, whose key and value it has in threadgroup memory, rounded as the caches hold them.
#ifndef ATT_DIMS
#define ATT_DIMS 64         // of a head that are rotated, in pairs (i, i + DIMS/2), or (2i, 2i + 1) where traditional
#define ATT_TRADITIONAL 0
#define ATT_Q_HEAD 64       // elements from one head to the next
#define ATT_K_HEAD 64
#define ATT_V_HEAD 64
#define ATT_Q_NORM 0        // 1: normalize, 2: and multiply by the weight
#define ATT_K_NORM 0
#define ATT_V_NORM 0
#define ATT_EPS 1e-6f
#define ATT_WEIGHT_T float
#define ATT_EARLY 0         // no kernel of this recording writes the caches but for this one
#define ATT_BUFFERS 2       // times TOKENS keys and values that a simdgroup reads ahead
#define ATT_LAST 0          // the last threadgroup of some heads puts their blocks together; else attention_merge does
#endif
#define PORT_WAITS
#define ATT_THREADS (ATT_SIMDGROUPS * 32)
#define ATT_STRIDE (ATT_SIMDGROUPS * ATT_TOKENS)  // keys of a threadgroup at a time
#define ATT_HALF (ATT_DIMS / 2)
#define ATT_MOST(a, b) ((a) > (b) ? (a) : (b))
#define ATT_TOGETHER ATT_MOST(1, 4096 / (ATT_SIMDGROUPS * ATT_D))  // heads that are summed up at a time
#define ATT_SHARED ATT_MOST((ATT_H + 2) * ATT_D, ATT_MOST(ATT_TOGETHER * ATT_SIMDGROUPS * ATT_D, ATT_LAST * ATT_H * ATT_BLOCKS))

// What a lane holds of TOKENS keys or values from position t on, of those up to end; slot is where begin lies.
inline void att_read(device const ATT_T* rows, int t, int begin, int end, int slot, uint lane, thread ATT_RAW* to) {
  UNROLL for (int j = 0; j < ATT_TOKENS; j++) {
    int at = slot + min(t + j, end - 1) - begin;
    if (at >= ATT_SLOTS) at -= ATT_SLOTS;
    UNROLL for (int i = 0; i < ATT_PARTS; i++) to[j * ATT_PARTS + i] = *(device const ATT_RAW*)(rows + long(at) * ATT_D + i * (32 * ATT_VEC) + lane * ATT_VEC);
  }
}

// A lane's elements of a row in threadgroup memory.
inline void att_get(threadgroup const float* row, uint lane, thread float* to) {
  UNROLL for (int i = 0; i < ATT_EACH; i++) to[i] = row[i / ATT_VEC * (32 * ATT_VEC) + lane * ATT_VEC + i % ATT_VEC];
}
inline void att_put(thread const float* from, float factor, uint lane, threadgroup float* row) {
#if ATT_VEC % 4 == 0
  UNROLL for (int i = 0; i < ATT_EACH; i += 4) {
    *(threadgroup float4*)(row + i / ATT_VEC * (32 * ATT_VEC) + lane * ATT_VEC + i % ATT_VEC) = float4(from[i] * factor, from[i + 1] * factor, from[i + 2] * factor, from[i + 3] * factor);
  }
#else
  UNROLL for (int i = 0; i < ATT_EACH; i++) row[i / ATT_VEC * (32 * ATT_VEC) + lane * ATT_VEC + i % ATT_VEC] = from[i] * factor;
#endif
}

inline void att_weights(device const ATT_WEIGHT_T* q_weight, device const ATT_WEIGHT_T* k_weight, int row, uint lane, thread float* w) {
  UNROLL for (int i = 0; i < ATT_EACH; i++) w[i] = 1.0f;
  if (row < ATT_H && ATT_Q_NORM == 2) {
    UNROLL for (int i = 0; i < ATT_EACH; i++) w[i] = float(q_weight[int(lane) + i * 32]);
  }
  if (row == ATT_H && ATT_K_NORM == 2) {
    UNROLL for (int i = 0; i < ATT_EACH; i++) w[i] = float(k_weight[int(lane) + i * 32]);
  }
}

// Eight blocks' sums of four elements, from block b on; those past the last as the last.
inline void att_parts(device const float* part, int b, int blocks, thread float4* to) {
  UNROLL for (int i = 0; i < 8; i++) to[i] = *(device const float4*)(part + long(min(b + i, blocks - 1)) * ATT_D);
}

// q, k, v: heads of the token at the strides above; q_weight, k_weight [D], which no kernel writes; angles [HALF] of (cosine,
// sine); keys, values [KV_HEADS][SLOTS][D]; part [HEADS][BLOCKS][D] and ml [HEADS][BLOCKS] as of attention_part; gate:
// heads at their stride; out [HEADS][D]; arrivals [HEADS / H], zeros before and after. Only with LAST there are gate, out and
// arrivals, and part and ml are of use within.
// grid: HEADS / H, BLOCKS
[[max_total_threads_per_threadgroup(ATT_SIMDGROUPS * 32)]]
kernel void attention_step(device const float* q [[buffer(0)]],
                           device const float* k [[buffer(1)]],
                           device const float* v [[buffer(2)]],
                           device const ATT_WEIGHT_T* q_weight [[buffer(3)]],
                           device const ATT_WEIGHT_T* k_weight [[buffer(4)]],
                           device const float2* angles [[buffer(5)]],
                           device ATT_T* keys [[buffer(6)]],
                           device ATT_T* values [[buffer(7)]],
                           device float* part [[buffer(8)]],
                           device float2* ml [[buffer(9)]],
                           device const float* gate [[buffer(10)]],
                           device float* out [[buffer(11)]],
                           device uint* arrivals [[buffer(12)]],
                           device const int* step [[buffer(13)]],
                           uint3 tg [[threadgroup_position_in_grid]],
                           uint tid [[thread_index_in_threadgroup]],
                           uint sg [[simdgroup_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(float, shared, ATT_SHARED);
  TG_ARRAY(float, sh_m, ATT_SIMDGROUPS * ATT_H);
  TG_ARRAY(float, sh_l, ATT_SIMDGROUPS * ATT_H);
  TG_ARRAY(float, totals, ATT_H);
#if ATT_LAST
  TG_ARRAY(uint, flag, 1);
#endif
  // By a broadcast a compiler knows that all lanes have one number, and that simd operations under conditions of it meet no
  // lanes that have parted: NVRTC writes each of those twice otherwise.
  sg = simd_broadcast_first(sg);
  const int position = simd_broadcast_first(step[STEP_POSITION]);  // which the host wrote
  const int low = att_visible(position, position).x;
  const int blocks = att_blocks(position + 1 - low);
  const int chunk = (position - low + blocks - 1) / blocks;
  const int begin = min(low + int(tg.y) * chunk, position);
  const int end = min(position, begin + chunk);
  const bool newest = int(tg.y) == blocks - 1;
  const int head0 = int(tg.x) * ATT_H;
  const int kv_head = head0 / ATT_GROUP;
  keys += long(kv_head) * ATT_SLOTS * ATT_D;
  values += long(kv_head) * ATT_SLOTS * ATT_D;
  if (int(tg.y) >= blocks) return;  // without a wait: it neither reads nor writes, and others do wait

  // The first keys and values are under way while the token's heads are prepared.
#if !ATT_EARLY
  port_wait();
#endif
  const int slot = begin % ATT_SLOTS;
  const int first = begin + int(sg) * ATT_TOKENS;
  ATT_RAW kv[ATT_BUFFERS][ATT_TOKENS * ATT_PARTS];
  ATT_RAW vv[ATT_BUFFERS][ATT_TOKENS * ATT_PARTS];
  UNROLL for (int i = 0; i < ATT_BUFFERS; i++) {
    if (first + i * ATT_STRIDE < end) {
      att_read(keys, first + i * ATT_STRIDE, begin, end, slot, lane, kv[i]);
      att_read(values, first + i * ATT_STRIDE, begin, end, slot, lane, vv[i]);
    }
  }
  float w[ATT_EACH];
  att_weights(q_weight, k_weight, int(sg), lane, w);
#if ATT_EARLY
  port_wait();
#endif

  // Row r of shared is a query for r < H, then the key, then the value.
  for (int row = int(sg); row < (newest ? ATT_H + 2 : ATT_H); row += ATT_SIMDGROUPS) {
    const bool is_q = row < ATT_H;
    const bool is_k = row == ATT_H;
    device const float* x = is_q ? q + long(head0 + row) * ATT_Q_HEAD : (is_k ? k + long(kv_head) * ATT_K_HEAD : v + long(kv_head) * ATT_V_HEAD);
    const int norm = is_q ? ATT_Q_NORM : (is_k ? ATT_K_NORM : ATT_V_NORM);
    float e[ATT_EACH];
    float2 a[ATT_EACH];
    UNROLL for (int i = 0; i < ATT_EACH; i++) e[i] = x[int(lane) + i * 32];
    UNROLL for (int i = 0; i < ATT_EACH; i++) {
      const int j = int(lane) + i * 32;
      a[i] = float2(1.0f, 0.0f);
      if (j < ATT_DIMS && (is_q || is_k)) a[i] = angles[ATT_TRADITIONAL ? j / 2 : j % ATT_HALF];
    }
    if (row != int(sg)) att_weights(q_weight, k_weight, row, lane, w);
    if (norm != 0) {
      float squares = 0.0f;
      UNROLL for (int i = 0; i < ATT_EACH; i++) squares += e[i] * e[i];
      squares = simd_sum(squares);
      const float factor = precise::rsqrt(squares / float(ATT_D) + ATT_EPS);
      UNROLL for (int i = 0; i < ATT_EACH; i++) e[i] *= factor * w[i];
    }
    threadgroup float* to = shared + row * ATT_D;
    if (is_q || is_k) {
      UNROLL for (int i = 0; i < ATT_EACH; i++) to[int(lane) + i * 32] = e[i];
      simdgroup_barrier(mem_flags::mem_threadgroup);
      UNROLL for (int i = 0; i < ATT_EACH; i++) {
        const int j = int(lane) + i * 32;
        if (j < ATT_DIMS) {
          const bool second = ATT_TRADITIONAL ? j % 2 != 0 : j >= ATT_HALF;
          const float o = to[ATT_TRADITIONAL ? j ^ 1 : (second ? j - ATT_HALF : j + ATT_HALF)];
          e[i] = second ? o * a[i].y + e[i] * a[i].x : e[i] * a[i].x - o * a[i].y;
        }
      }
      simdgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (is_q) {
      UNROLL for (int i = 0; i < ATT_EACH; i++) to[int(lane) + i * 32] = e[i] * ATT_SCALE;
    } else {
      device ATT_T* row_of = (is_k ? keys : values) + long(position % ATT_SLOTS) * ATT_D;
      UNROLL for (int i = 0; i < ATT_EACH; i++) {
        const ATT_T held = ATT_T(e[i]);
        to[int(lane) + i * 32] = float(held);
        if (head0 % ATT_GROUP == 0) row_of[int(lane) + i * 32] = held;
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float qv[ATT_H * ATT_EACH];
  UNROLL for (int r = 0; r < ATT_H; r++) att_get(shared + r * ATT_D, lane, qv + r * ATT_EACH);

  float o[ATT_H * ATT_EACH];
  UNROLL for (int i = 0; i < ATT_H * ATT_EACH; i++) o[i] = 0.0f;
  const int mine = int(lane) % ATT_SCORES;
  float m = -1e30f;  // the largest score of the lane's query, in units of log2
  float l = 0.0f;    // the weights of the lane's query and place among the keys
  if (newest && sg == ATT_SIMDGROUPS - 1) {
    float of[ATT_EACH];
    att_get(shared + ATT_H * ATT_D, lane, of);
    UNROLL for (int r = 0; r < ATT_H; r++) {
      float s = 0.0f;
      UNROLL for (int i = 0; i < ATT_EACH; i++) s += qv[r * ATT_EACH + i] * of[i];
      s = simd_sum(s);
      if (mine / ATT_TOKENS == r) m = s;
    }
    if (mine % ATT_TOKENS == 0) l = 1.0f;
    att_get(shared + (ATT_H + 1) * ATT_D, lane, of);
    UNROLL for (int i = 0; i < ATT_H * ATT_EACH; i++) o[i] = of[i % ATT_EACH];
  }
  for (int t = first; t < end; t += ATT_BUFFERS * ATT_STRIDE) {
    UNROLL for (int i = 0; i < ATT_BUFFERS; i++) {
      const int at = t + i * ATT_STRIDE;
      if (at < end) {
        att_add(qv, kv[i], vv[i], at + mine % ATT_TOKENS < end, lane, m, l, o);
        const int next = at + ATT_BUFFERS * ATT_STRIDE;
        if (next < end) {
          att_read(keys, next, begin, end, slot, lane, kv[i]);
          att_read(values, next, begin, end, slot, lane, vv[i]);
        }
      }
    }
  }

  // The sums of the simdgroups, relative to the largest score.
  UNROLL for (int w = 1; w < ATT_TOKENS; w *= 2) l += simd_shuffle_xor(l, ushort(w));
  if (int(lane) < ATT_SCORES && lane % ATT_TOKENS == 0) {
    sh_m[sg * ATT_H + lane / ATT_TOKENS] = m;
    sh_l[sg * ATT_H + lane / ATT_TOKENS] = l;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const bool whole = ATT_LAST && blocks == 1;
  part += (long(head0) * ATT_BLOCKS + tg.y) * ATT_D;
  if (int(tid) < ATT_H) {
    float top = sh_m[tid];
    UNROLL for (int g = 1; g < ATT_SIMDGROUPS; g++) top = max(top, sh_m[g * ATT_H + tid]);
    float total = 0.0f;
    UNROLL for (int g = 0; g < ATT_SIMDGROUPS; g++) total += sh_l[g * ATT_H + tid] * fast::exp2(sh_m[g * ATT_H + tid] - top);
    totals[tid] = total;
    if (!whole) ml[(head0 + int(tid)) * ATT_BLOCKS + tg.y] = float2(top, total);
  }
  UNROLL for (int r0 = 0; r0 < ATT_H; r0 += ATT_TOGETHER) {
    if (r0 > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL for (int r = r0; r < min(r0 + ATT_TOGETHER, ATT_H); r++) {
      float top = sh_m[r];
      UNROLL for (int g = 1; g < ATT_SIMDGROUPS; g++) top = max(top, sh_m[g * ATT_H + r]);
      att_put(o + r * ATT_EACH, fast::exp2(sh_m[sg * ATT_H + r] - top), lane, shared + ((r - r0) * ATT_SIMDGROUPS + sg) * ATT_D);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int e = int(tid); e < min(ATT_TOGETHER, ATT_H - r0) * ATT_D; e += ATT_THREADS) {
      const int r = r0 + e / ATT_D;
      const int d = e % ATT_D;
      float a = 0.0f;
      UNROLL for (int g = 0; g < ATT_SIMDGROUPS; g++) a += shared[(e / ATT_D * ATT_SIMDGROUPS + g) * ATT_D + d];
      if (whole) {
        a /= totals[r];
#if ATT_GATED
        a *= port_sigmoid(gate[(head0 + r) * ATT_GATE_HEAD + d]);
#endif
        out[long(head0 + r) * ATT_D + d] = a;
      } else {
        part[long(r) * ATT_BLOCKS * ATT_D + d] = a;
      }
    }
  }

#if ATT_LAST
  if (whole || !port_last(arrivals + tg.x, uint(blocks), tid, flag)) return;
  part -= long(tg.y) * ATT_D;
  float4 p[8];
  const int e0 = int(tid) * 4;
  if (e0 < ATT_H * ATT_D) att_parts(part + long(e0 / ATT_D) * ATT_BLOCKS * ATT_D + e0 % ATT_D, 0, blocks, p);
  for (int r = int(sg); r < ATT_H; r += ATT_SIMDGROUPS) {
    device const float2* of = ml + (head0 + r) * ATT_BLOCKS;
    float top = -1e30f;
    for (int b = int(lane); b < blocks; b += 32) top = max(top, of[b].x);
    top = simd_max(top);
    float total = 0.0f;
    for (int b = int(lane); b < blocks; b += 32) {
      const float f = fast::exp2(of[b].x - top);
      shared[r * ATT_BLOCKS + b] = f;
      total += of[b].y * f;
    }
    total = simd_sum(total);
    if (lane == 0) totals[r] = total;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int e = e0; e < ATT_H * ATT_D; e += ATT_THREADS * 4) {
    const int r = e / ATT_D;
    const int d = e % ATT_D;
    device const float* from = part + long(r) * ATT_BLOCKS * ATT_D + d;
    float a[4];
    UNROLL for (int j = 0; j < 4; j++) a[j] = 0.0f;
    for (int b = 0; b < blocks; b += 8) {
      if (b > 0 || e > e0) att_parts(from, b, blocks, p);
      UNROLL for (int i = 0; i < 8; i++) {
        const float f = b + i < blocks ? shared[r * ATT_BLOCKS + b + i] : 0.0f;
        UNROLL for (int j = 0; j < 4; j++) a[j] += p[i][j] * f;
      }
    }
    UNROLL for (int j = 0; j < 4; j++) {
      a[j] /= totals[r];
#if ATT_GATED
      a[j] *= port_sigmoid(gate[(head0 + r) * ATT_GATE_HEAD + d + j]);
#endif
    }
    *(device float4*)(out + long(head0 + r) * ATT_D + d) = float4(a[0], a[1], a[2], a[3]);
  }
#endif
}
