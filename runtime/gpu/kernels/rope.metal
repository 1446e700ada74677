#include "port.h"
// Rotary position embedding (Su et al., arXiv:2104.09864) of queries and keys, with the norm of heads before it and the
// write of keys and values to their caches after it.
#ifndef ROPE_D
#define ROPE_D 64           // width of a head, a multiple of 32
#define ROPE_DIMS 64        // of them are rotated, in pairs (i, i + DIMS/2), or (2i, 2i + 1) where traditional
#define ROPE_TRADITIONAL 0
#define ROPE_SCALE 1.0f     // times the position
#define ROPE_Q_HEADS 1
#define ROPE_KV_HEADS 1
#define ROPE_Q_TOKEN 64     // elements from one token to the next and from one head to the next
#define ROPE_Q_HEAD 64
#define ROPE_K_TOKEN 64
#define ROPE_K_HEAD 64
#define ROPE_V_TOKEN 64
#define ROPE_V_HEAD 64
#define ROPE_Q_NORM 0       // 1: normalize, 2: and multiply by the weight
#define ROPE_K_NORM 0
#define ROPE_V_NORM 0
#define ROPE_EPS 1e-6f
#define ROPE_SLOTS 1        // of the caches
#define ROPE_RING 0         // position p lies in slot p mod SLOTS
#define ROPE_BLOCK_ROWS 0   // positions of a block, of caches in blocks, as blocks.metal has them; 0: none
#define ROPE_COLUMNS 1      // blocks that the table has for a sequence
#define ROPE_WEIGHT_T float
#define ROPE_CACHE_T float
#define ROPE_SIMDGROUPS 4
#endif
#define ROPE_HALF (ROPE_DIMS / 2)
#define ROPE_EACH ((ROPE_D + 31) / 32)

// angles [T][HALF] of (cosine, sine) of (position + t) · SCALE · inverse[i]; inverse [HALF] are the reciprocals
// of the frequencies, 0 where a pair stays as it is. One table serves all layers.
// grid: T · HALF / 256
[[max_total_threads_per_threadgroup(256)]]
kernel void rope_angles(device const float* inverse [[buffer(0)]],
                        device float2* angles [[buffer(1)]],
                        device const int* step [[buffer(2)]],
                        uint i [[thread_position_in_grid]]) {
  const int t = int(i) / ROPE_HALF;
  if (t >= step[STEP_TOKENS]) return;
  const float position = (float(t) + float(step[STEP_POSITION])) * ROPE_SCALE;
  const float angle = position * inverse[int(i) % ROPE_HALF];
  angles[i] = float2(precise::cos(angle), precise::sin(angle));
}

// rope_row_angles: rope_angles for rows that have a position each, positions [T]. grid: T · HALF / 256
[[max_total_threads_per_threadgroup(256)]]
kernel void rope_row_angles(device const float* inverse [[buffer(0)]],
                            device const int* positions [[buffer(1)]],
                            device float2* angles [[buffer(2)]],
                            device const int* step [[buffer(3)]],
                            uint i [[thread_position_in_grid]]) {
  const int t = int(i) / ROPE_HALF;
  if (t >= step[STEP_TOKENS]) return;
  const float angle = float(positions[t]) * ROPE_SCALE * inverse[int(i) % ROPE_HALF];
  angles[i] = float2(precise::cos(angle), precise::sin(angle));
}

// q, k, v: heads of tokens at the strides above; q_weight, k_weight [D]; q_out [T][Q_HEADS][D];
// k_cache, v_cache [KV_HEADS][SLOTS][D], or in blocks [KV_HEADS][units][BLOCK_ROWS][D], whose units step has in the place
// of a position. A simdgroup takes one head of one token: the heads of q, then those of k, then those of v. Without heads
// of k and v it rotates q only.
// grid: T · (Q_HEADS + 2 · KV_HEADS) / SIMDGROUPS
[[max_total_threads_per_threadgroup(ROPE_SIMDGROUPS * 32)]]
kernel void rope(device const float* q [[buffer(0)]],
                 device const float* k [[buffer(1)]],  // absent: q
                 device const float* v [[buffer(2)]],  // absent: q
                 device const ROPE_WEIGHT_T* q_weight [[buffer(3)]],  // absent: q
                 device const ROPE_WEIGHT_T* k_weight [[buffer(4)]],  // absent: q
                 device const float2* angles [[buffer(5)]],
                 device float* q_out [[buffer(6)]],
                 device ROPE_CACHE_T* k_cache [[buffer(7)]],  // absent: q
                 device ROPE_CACHE_T* v_cache [[buffer(8)]],  // absent: q
                 device const int* positions [[buffer(9)]],  // absent: q
                 device const int* sequences [[buffer(10)]],  // absent: q
                 device const int* blocks [[buffer(11)]],  // absent: q
                 device const int* step [[buffer(12)]],
                 uint group [[threadgroup_position_in_grid]],
                 uint sg [[simdgroup_index_in_threadgroup]],
                 uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(float, rows, ROPE_SIMDGROUPS * ROPE_D);
  const int all = ROPE_Q_HEADS + 2 * ROPE_KV_HEADS;
  const int item = int(group) * ROPE_SIMDGROUPS + int(sg);
  const int t = item / all;
  if (t >= step[STEP_TOKENS]) return;
  const int head = item % all;
  const bool is_q = head < ROPE_Q_HEADS;
  const bool is_k = !is_q && head < ROPE_Q_HEADS + ROPE_KV_HEADS;
  const int at = is_q ? head : (head - ROPE_Q_HEADS) % max(ROPE_KV_HEADS, 1);
  device const float* x = is_q ? q + long(t) * ROPE_Q_TOKEN + at * ROPE_Q_HEAD
                               : (is_k ? k + long(t) * ROPE_K_TOKEN + at * ROPE_K_HEAD : v + long(t) * ROPE_V_TOKEN + at * ROPE_V_HEAD);
  const int norm = is_q ? ROPE_Q_NORM : (is_k ? ROPE_K_NORM : ROPE_V_NORM);
  float e[ROPE_EACH];
  UNROLL for (int i = 0; i < ROPE_EACH; i++) e[i] = x[int(lane) + i * 32];
  if (norm != 0) {
    float squares = 0.0f;
    UNROLL for (int i = 0; i < ROPE_EACH; i++) squares += e[i] * e[i];
    squares = simd_sum(squares);
    const float factor = precise::rsqrt(squares / float(ROPE_D) + ROPE_EPS);
    device const ROPE_WEIGHT_T* weight = is_q ? q_weight : k_weight;
    UNROLL for (int i = 0; i < ROPE_EACH; i++) {
      e[i] *= factor;
      if (norm == 2) e[i] *= float(weight[int(lane) + i * 32]);
    }
  }
  if (is_q || is_k) {
    threadgroup float* row = rows + sg * ROPE_D;
    UNROLL for (int i = 0; i < ROPE_EACH; i++) row[int(lane) + i * 32] = e[i];
    simdgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL for (int i = 0; i < ROPE_EACH; i++) {
      const int j = int(lane) + i * 32;
      if (j < ROPE_DIMS) {
#if ROPE_TRADITIONAL
        const int pair = j / 2;
        const bool second = j % 2 != 0;
        const int other = j ^ 1;
#else
        const int pair = j % ROPE_HALF;
        const bool second = j >= ROPE_HALF;
        const int other = second ? j - ROPE_HALF : j + ROPE_HALF;
#endif
        const float2 a = angles[t * ROPE_HALF + pair];
        const float o = row[other];
        e[i] = second ? o * a.y + e[i] * a.x : e[i] * a.x - o * a.y;
      }
    }
  }
  if (is_q) {
    device float* out = q_out + (long(t) * ROPE_Q_HEADS + at) * ROPE_D;
    UNROLL for (int i = 0; i < ROPE_EACH; i++) out[int(lane) + i * 32] = e[i];
    return;
  }
#if ROPE_BLOCK_ROWS
  const int position = positions[t];
  if (position < 0) return;
  const int block = blocks[long(sequences[t]) * ROPE_COLUMNS + position / ROPE_BLOCK_ROWS % ROPE_COLUMNS];
  const long place = (long(at) * step[STEP_POSITION] + block) * ROPE_BLOCK_ROWS + position % ROPE_BLOCK_ROWS;
#else
  int slot = step[STEP_POSITION] + t;
#if ROPE_RING
  slot %= ROPE_SLOTS;
#endif
  const long place = long(at) * ROPE_SLOTS + slot;
#endif
  device ROPE_CACHE_T* out = (is_k ? k_cache : v_cache) + place * ROPE_D;
  UNROLL for (int i = 0; i < ROPE_EACH; i++) out[int(lane) + i * 32] = ROPE_CACHE_T(e[i]);
}

// cache_write copies rows of x, at the strides of k, to slots of a cache [KV_HEADS][SLOTS][D]. grid: T · KV_HEADS · D /
// 256
[[max_total_threads_per_threadgroup(256)]]
kernel void cache_write(device const float* x [[buffer(0)]],
                        device ROPE_CACHE_T* cache [[buffer(1)]],
                        device const int* step [[buffer(2)]],
                        uint i [[thread_position_in_grid]]) {
  const int row = int(i) / ROPE_D;
  const int t = row / ROPE_KV_HEADS;
  const int d = int(i) % ROPE_D;
  if (t >= step[STEP_TOKENS]) return;
  const int head = row % ROPE_KV_HEADS;
  int slot = step[STEP_POSITION] + t;
#if ROPE_RING
  slot %= ROPE_SLOTS;
#endif
  cache[(long(head) * ROPE_SLOTS + slot) * ROPE_D + d] = ROPE_CACHE_T(x[long(t) * ROPE_K_TOKEN + head * ROPE_K_HEAD + d]);
}
