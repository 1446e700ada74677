#include "port.h"
#include "attention.h"
#include "rows.h"
#include "lanes.h"
// Attention of rows of many sequences over block-wise caches in one pool; blocks.metal describes them.
//
// The positions that a row attends to are divided into parts. The division depends only on the row's own position, and
// within a part a simdgroup takes the same keys whatever the neighbouring rows are. A key that a row does not attend to
// changes nothing. So a row gives the same bits in every call with the same number of parts. Neighbouring rows of one
// sequence share reads.
#ifndef BLOCK_ROWS
#define BLOCK_ROWS 64     // positions of a block
#define BLOCK_COLUMNS 1   // blocks that the table has for a sequence
#define BLOCK_Q_TOKEN 64  // elements of q from one row to the next and from one head to the next
#define BLOCK_Q_HEAD 64
#define BLOCK_SHORT 0     // 1: leaves rows of long runs to attention_chunk.metal
#endif
#ifndef BLOCK_CODES
#define BLOCK_CODES 0     // 1: the pools are rows of codes of 8 bits, as block_write_codes has them
#endif
#ifndef BLOCK_FIRST
#define BLOCK_FIRST 0     // the first position that is seen
#endif
#ifndef BLOCK_OUT_T
#define BLOCK_OUT_T float
#endif
#ifndef BLOCK_LANES
#define BLOCK_LANES 0     // 1: out is bf16 in the order of lanes; a row has a multiple of 128 elements
#endif
#ifndef BLOCK_LAST
#define BLOCK_LAST 0      // 1: the last threadgroup of some heads and rows to finish merges their parts; 0: block_attention_merge does
#endif
#ifndef BLOCK_MERGERS
#define BLOCK_MERGERS 128 // threads of block_attention_merge
#endif
#define BLOCK_MOST 16     // rows that share what they read, at most
#define BLOCK_STRIDE (ATT_SIMDGROUPS * ATT_TOKENS)

// Returns the first position of a row's window, and the first position that the row attends to.
inline int block_window(int position) { return ATT_WINDOW > 0 ? max(0, position - ATT_WINDOW + 1) : 0; }
inline int block_low(int position) { return max(BLOCK_FIRST, block_window(position)); }

// Returns the number of positions of a part for a row at a position: the smallest number for which BLOCKS parts
// suffice. A window can begin in the middle of a part, and the windows of Q rows begin at Q different positions.
inline int block_part(int position) {
  if (ATT_BLOCKS == 1) return 1 << 30;
  const int seen = position + 1 - block_window(position);
  int n = ATT_LEAST;
  while (ATT_WINDOW > 0 ? n * (ATT_BLOCKS - 1) < seen + BLOCK_MOST : n * ATT_BLOCKS < seen) n *= 2;
  return n;
}

// Reads a lane's elements of a row of a pool.
inline void block_read(device const ATT_T* pool, long row, uint lane, thread ATT_RAW* to) {
#if BLOCK_CODES
  device const uint* words = (device const uint*)pool + row * (ATT_D / 4 + (ATT_D / 32 + 1) / 2);
  device const ushort* scales = (device const ushort*)(words + ATT_D / 4);
  UNROLL for (int i = 0; i < ATT_PARTS; i++) {
    const int d = int(lane) * ATT_VEC + i * (32 * ATT_VEC);
    const float scale = as_type<float>(uint(scales[d / 32]) << 16);
    const uint word = words[d / 4];
    float v[4];
    UNROLL for (int k = 0; k < ATT_VEC; k++) v[k] = float(int(word << (24 - 8 * (d % 4 + k))) >> 24) * scale;
#if ATT_VEC == 4
    to[i] = uint4(as_type<uint>(v[0]), as_type<uint>(v[1]), as_type<uint>(v[2]), as_type<uint>(v[3]));
#elif ATT_VEC == 2
    to[i] = uint2(as_type<uint>(v[0]), as_type<uint>(v[1]));
#else
    to[i] = as_type<uint>(v[0]);
#endif
  }
#else
  UNROLL for (int i = 0; i < ATT_PARTS; i++) to[i] = *(device const ATT_RAW*)(pool + row * ATT_D + lane * ATT_VEC + i * (32 * ATT_VEC));
#endif
}

// Reports whether row t is the next position of the same sequence as the row before it, with the same division into
// parts.
inline bool block_follows(device const int* positions, device const int* sequences, int t) {
  return rows_follow(positions, sequences, t) && positions[t - 1] >= BLOCK_FIRST && block_part(positions[t]) == block_part(positions[t - 1]);
}

// The place of an element of a row in out.
inline long block_place(int t, int column) { return long(t) * (ATT_HEADS * ATT_D) + (BLOCK_LANES ? lanes_place(column) : column); }

#define BLOCK_AT_ONCE (ATT_BLOCKS < 8 ? ATT_BLOCKS : 8)  // parts that are read at a time

// Writes four elements, from d on, of a head of row t, which is at a position: the parts' sums and their gate. part, ml, gate and out are the
// kernel's.
inline void block_join(device const float* part, device const float2* ml, device const float* gate, device BLOCK_OUT_T* out, int t, int position, int head, int d) {
  const int size = block_part(position);
  const int first = block_low(position) / size;
  const int last = position / size;
  const long row = long(t) * ATT_HEADS + head;
  ml += row * ATT_BLOCKS;
  part += row * ATT_BLOCKS * ATT_D + d;
  float m = -1e30f;
  for (int n = first; n <= last; n += BLOCK_AT_ONCE) {
    UNROLL for (int i = 0; i < BLOCK_AT_ONCE; i++) m = max(m, ml[min(n + i, last) % ATT_BLOCKS].x);
  }
  float l = 0.0f;
  float4 o = float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (int n = first; n <= last; n += BLOCK_AT_ONCE) {
    float2 of[BLOCK_AT_ONCE];
    float4 p[BLOCK_AT_ONCE];
    UNROLL for (int i = 0; i < BLOCK_AT_ONCE; i++) {
      const long at = min(n + i, last) % ATT_BLOCKS;
      of[i] = ml[at];
      p[i] = *(device const float4*)(part + at * ATT_D);
    }
    UNROLL for (int i = 0; i < BLOCK_AT_ONCE; i++) {
      const float f = n + i <= last ? fast::exp2(of[i].x - m) : 0.0f;
      l += of[i].y * f;
      o = o + p[i] * f;
    }
  }
  UNROLL for (int j = 0; j < 4; j++) {
    float v = o[j] / l;
#if ATT_GATED
    v *= port_sigmoid(gate[long(t) * ATT_GATE_TOKEN + head * ATT_GATE_HEAD + d + j]);
#endif
    out[block_place(t, head * ATT_D + d + j)] = BLOCK_OUT_T(v);
  }
}

// What a threadgroup of block_attention_part works on: the heads head0 on of taken rows from row0 on, at positions from position on, in
// part number, whose positions are begin to end - 1.
struct block_work {
  int head0, row0, taken, position, number, begin, end;
};

// Computes block_attention_part for at most ROWS rows. blocks is the row of the table of the sequence, pool the first row of the pool's
// unit 0 for the head.
template <int ROWS>
inline void block_rows(thread const block_work& of, device const float* q, device const ATT_T* keys, device const ATT_T* values, device const int* blocks, long pool,
                       device float* part, device float2* ml, int sg, uint lane, threadgroup float* sh_o, threadgroup float* sh_m, threadgroup float* sh_l) {
  constexpr int QUERIES = ATT_H * ROWS, SCORES = QUERIES * ATT_TOKENS;
  // query r is head0 + r % H of row0 + r / H
  float qv[QUERIES * ATT_EACH];
  UNROLL for (int r = 0; r < QUERIES; r++) {
    device const float* from = q + long(of.row0 + min(r / ATT_H, of.taken - 1)) * BLOCK_Q_TOKEN + (of.head0 + r % ATT_H) * BLOCK_Q_HEAD + lane * ATT_VEC;
    UNROLL for (int i = 0; i < ATT_EACH; i++) qv[r * ATT_EACH + i] = from[i / ATT_VEC * (32 * ATT_VEC) + i % ATT_VEC] * ATT_SCALE;
  }
  // the number of the lane's query, and its key's number within the group of keys
  const int mine = int(lane) % SCORES;
  const int at = of.position + min(mine / ATT_TOKENS / ATT_H, of.taken - 1);
  const int first = max(block_low(at), of.begin);
  const int last = min(at + 1, of.end);

  float o[QUERIES * ATT_EACH];
  UNROLL for (int r = 0; r < QUERIES; r++) {
    UNROLL for (int i = 0; i < ATT_EACH; i++) o[r * ATT_EACH + i] = 0.0f;
  }
  float m = -1e30f;  // the largest score of the lane's query, in units of log2
  float l = 0.0f;    // the weights of the lane's query and place

  for (int t = of.begin / BLOCK_STRIDE * BLOCK_STRIDE + sg * ATT_TOKENS; t < of.end; t += BLOCK_STRIDE) {
    ATT_RAW kv[ATT_TOKENS * ATT_PARTS];
    ATT_RAW vv[ATT_TOKENS * ATT_PARTS];
    UNROLL for (int j = 0; j < ATT_TOKENS; j++) {
      const int p = clamp(t + j, of.begin, of.end - 1);
      const long from = pool + long(blocks[p / BLOCK_ROWS % BLOCK_COLUMNS]) * BLOCK_ROWS + p % BLOCK_ROWS;
      block_read(keys, from, lane, kv + j * ATT_PARTS);
      block_read(values, from, lane, vv + j * ATT_PARTS);
    }
    const int seen = t + mine % ATT_TOKENS;
    float s[SCORES];
    att_scores<QUERIES>(qv, kv, s);
    att_add<QUERIES>(att_weigh<QUERIES>(s, seen >= first && seen < last, lane, m, l, o), vv, o);
  }
  UNROLL for (int w = 1; w < ATT_TOKENS; w *= 2) l += simd_shuffle_xor(l, ushort(w));
  if (int(lane) < SCORES && lane % ATT_TOKENS == 0) {
    sh_m[sg * QUERIES + lane / ATT_TOKENS] = m;
    sh_l[sg * QUERIES + lane / ATT_TOKENS] = l;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  UNROLL for (int r = 0; r < QUERIES; r++) {
    float mm = sh_m[r];
    UNROLL for (int g = 1; g < ATT_SIMDGROUPS; g++) mm = max(mm, sh_m[g * QUERIES + r]);
    const float f = fast::exp2(sh_m[sg * QUERIES + r] - mm);
    UNROLL for (int i = 0; i < ATT_EACH; i++) {
      sh_o[sg * ATT_D + lane * ATT_VEC + i / ATT_VEC * (32 * ATT_VEC) + i % ATT_VEC] = o[r * ATT_EACH + i] * f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (r / ATT_H < of.taken) {
      const long to = (long(of.row0 + r / ATT_H) * ATT_HEADS + of.head0 + r % ATT_H) * ATT_BLOCKS + of.number % ATT_BLOCKS;
      for (int d = sg * 32 + int(lane); d < ATT_D; d += ATT_SIMDGROUPS * 32) {
        float a = 0.0f;
        UNROLL for (int g = 0; g < ATT_SIMDGROUPS; g++) a += sh_o[g * ATT_D + d];
        part[to * ATT_D + d] = a;
      }
      if (sg == 0 && lane == 0) {
        float ll = 0.0f;
        UNROLL for (int g = 0; g < ATT_SIMDGROUPS; g++) ll += sh_l[g * QUERIES + r] * fast::exp2(sh_m[g * QUERIES + r] - mm);
        ml[to] = float2(mm, ll);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// block_attention_part computes partial results. q: heads of rows at the strides above; keys, values
// [KV_HEADS][units][ROWS][D]; part [T][HEADS][BLOCKS][D] and ml [T][HEADS][BLOCKS] of (largest score, sum of weights):
// a part's weighted sums of values, relative to its largest score. Part n of a row is stored at n mod BLOCKS. step has
// the number of rows, and the number of units of the pools in place of a position. With LAST it merges them too: gate and
// out are those of block_attention_merge; arrivals [T][HEADS / H], zeros before and after. grid: HEADS / H, BLOCKS, T
[[max_total_threads_per_threadgroup(ATT_SIMDGROUPS * 32)]]
kernel void block_attention_part(device const float* q [[buffer(0)]],
                                 device const ATT_T* keys [[buffer(1)]],
                                 device const ATT_T* values [[buffer(2)]],
                                 device const int* positions [[buffer(3)]],
                                 device const int* sequences [[buffer(4)]],
                                 device const int* blocks [[buffer(5)]],
                                 device float* part [[buffer(6)]],
                                 device float2* ml [[buffer(7)]],
                                 device const float* gate [[buffer(8)]],  // absent: q
                                 device BLOCK_OUT_T* out [[buffer(9)]],  // absent: q
                                 device uint* arrivals [[buffer(10)]],  // absent: q
                                 device const int* step [[buffer(11)]],
                                 uint3 tg [[threadgroup_position_in_grid]],
                                 uint sg [[simdgroup_index_in_threadgroup]],
                                 uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(float, sh_o, ATT_SIMDGROUPS * ATT_D);
  TG_ARRAY(float, sh_m, ATT_SIMDGROUPS * ATT_QUERIES);
  TG_ARRAY(float, sh_l, ATT_SIMDGROUPS * ATT_QUERIES);
  TG_ARRAY(uint, flag, 1);

  const int rows = step[STEP_TOKENS];
  const int row0 = int(tg.z);
  if (row0 >= rows) return;
  const int position = positions[row0];
  const int head0 = int(tg.x) * ATT_H;
  if (position < BLOCK_FIRST) {
#if BLOCK_LAST
    if (tg.y == 0) {
      for (int i = int(sg * 32 + lane); i < ATT_H * ATT_D; i += ATT_SIMDGROUPS * 32) out[block_place(row0, head0 * ATT_D + i)] = BLOCK_OUT_T(0.0f);
    }
#endif
    return;
  }
  // The first of several neighbouring rows computes those behind it too, up to the next multiple of Q.
  if (row0 % ATT_Q != 0 && block_follows(positions, sequences, row0)) return;
  if (BLOCK_SHORT && rows_many(positions, sequences, row0, rows)) return;
  int taken = 1;
  while ((row0 + taken) % ATT_Q != 0 && row0 + taken < rows && block_follows(positions, sequences, row0 + taken)) taken++;
  const int size = block_part(position);
  const int low = block_low(position);
  const int number = low / size + int(tg.y);
  // the positions that any of the rows attends to, and those of them in this part
  const int begin = max(low, number * size);
  const int end = min(position + taken, (number + 1) * size);
  if (begin >= end) return;

  const long pool = long(head0 / ATT_GROUP) * step[STEP_POSITION] * BLOCK_ROWS;
  blocks += long(sequences[row0]) * BLOCK_COLUMNS;

  const block_work of = {head0, row0, taken, position, number, begin, end};
#if ATT_Q > 1
  if (taken == 1) {  // one row needs a part of the work of Q rows, and gives the same bits
    block_rows<1>(of, q, keys, values, blocks, pool, part, ml, int(sg), lane, sh_o, sh_m, sh_l);
  } else
#endif
    block_rows<ATT_Q>(of, q, keys, values, blocks, pool, part, ml, int(sg), lane, sh_o, sh_m, sh_l);
#if BLOCK_LAST
  const uint parts = uint((position + taken - 1) / size - low / size + 1);
  if (!port_last(arrivals + row0 * (ATT_HEADS / ATT_H) + int(tg.x), parts, sg * 32 + lane, flag)) return;
  for (int i = int(sg * 32 + lane) * 4; i < taken * (ATT_H * ATT_D); i += ATT_SIMDGROUPS * 128) {
    const int row = i / (ATT_H * ATT_D);
    block_join(part, ml, gate, out, row0 + row, position + row, head0 + i / ATT_D % ATT_H, i % ATT_D);
  }
#endif
}

// block_attention_merge combines the parts. part, ml: from block_attention_part; gate: heads at their strides; out
// [T][HEADS][D], zeros for rows of no sequence. A thread has four elements of a row. grid: HEADS D / (4 MERGERS), T
[[max_total_threads_per_threadgroup(BLOCK_MERGERS)]]
kernel void block_attention_merge(device const float* part [[buffer(0)]],
                                  device const float2* ml [[buffer(1)]],
                                  device const int* positions [[buffer(2)]],
                                  device const int* sequences [[buffer(3)]],
                                  device const float* gate [[buffer(4)]],  // absent: out
                                  device BLOCK_OUT_T* out [[buffer(5)]],
                                  device const int* step [[buffer(6)]],
                                  uint3 tg [[threadgroup_position_in_grid]],
                                  uint tid [[thread_index_in_threadgroup]]) {
  const int t = int(tg.y);
  const int element = int(tg.x * BLOCK_MERGERS + tid) * 4;
  if (t >= step[STEP_TOKENS] || element >= ATT_HEADS * ATT_D) return;
  const int position = positions[t];
  if (position < BLOCK_FIRST) {
    UNROLL for (int j = 0; j < 4; j++) out[block_place(t, element + j)] = BLOCK_OUT_T(0.0f);
    return;
  }
  if (BLOCK_SHORT && rows_many(positions, sequences, t, step[STEP_TOKENS])) return;
  block_join(part, ml, gate, out, t, position, element / ATT_D, element % ATT_D);
}
