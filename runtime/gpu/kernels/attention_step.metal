#include "port.h"
#include "attention.h"
#include "lanes.h"
// Attention of one token in one kernel. It normalizes and rotates the token's heads (as rope.metal does), writes its
// key and value to the caches, attends to the positions in blocks, and merges the results of the blocks.
//
// Each threadgroup attends to one block of positions that earlier calls wrote to the caches. The threadgroup of the
// last block also attends to the token itself: it has that key and value in threadgroup memory, rounded as the caches
// store them.
//
// With ATT_TABLE the token is a row of a call of several sequences, and the caches are blocks in pools; blocks.metal
// describes them. This form needs ATT_LAST. A call has up to ATT_ROWS rows, and each row has threadgroups of its own.
// Threadgroups do not wait for each other. So if the rows before a row are of the same sequence, the threadgroups of this
// row compute the keys and values of those rows again. A row gives the same bits as if it were the only row of a call.
//
// The kernel is short, and others wait for it. So what counts is the work after its wait: the number of reads that
// depend on each other, and the number of instructions, each of which is fetched for the first time in every launch.
#ifndef ATT_DIMS
#define ATT_DIMS 64         // elements of a head that are rotated, in pairs (i, i + DIMS/2), or (2i, 2i + 1) if traditional
#define ATT_TRADITIONAL 0
#define ATT_RING 0          // position p lies in slot p mod SLOTS; else all positions are less than SLOTS
#define ATT_Q_HEAD 64       // elements from one head to the next
#define ATT_K_HEAD 64
#define ATT_V_HEAD 64
#define ATT_Q_NORM 0        // 1: normalize, 2: and multiply by the weight
#define ATT_K_NORM 0
#define ATT_V_NORM 0
#define ATT_EPS 1e-6f
#define ATT_WEIGHT_T float
#define ATT_EARLY 0         // no kernel of this recording writes the caches but for this one
#define ATT_BUFFERS 2       // groups of TOKENS keys and values that a simdgroup reads in advance
#define ATT_ROOM 1          // threadgroups that a multiprocessor is to have registers for
#define ATT_SHORT 0         // up to this many positions, one threadgroup serves one head over all of them; needs LAST, and BLOCKS of H or more
#define ATT_SHORT_BUFFERS 2 // BUFFERS there
#define ATT_LAST 0          // 1: the last threadgroup of some heads to finish merges their blocks; 0: attention_merge does
#endif
#ifndef ATT_TABLE
#define ATT_TABLE 0         // 1: the caches are blocks in pools
#define BLOCK_ROWS 64       // positions of a block
#define BLOCK_COLUMNS 1     // blocks that the table has for a sequence
#endif
#ifndef ATT_ROWS
#define ATT_ROWS 1          // rows of a call at most; above 1 only with TABLE
#define ATT_Q_TOKEN 64      // elements from one row to the next
#define ATT_K_TOKEN 64
#define ATT_V_TOKEN 64
#endif
#ifndef ATT_OUT_T
#define ATT_OUT_T float
#define ATT_LANES 0         // 1: out is bf16 in the order of lanes; a row has a multiple of 128 elements
#endif
#define PORT_WAITS
#define ATT_THREADS (ATT_SIMDGROUPS * 32)
#define ATT_STRIDE (ATT_SIMDGROUPS * ATT_TOKENS)  // keys of a threadgroup at a time
#define ATT_HALF (ATT_DIMS / 2)
#define ATT_MAX(a, b) ((a) > (b) ? (a) : (b))
#define ATT_MIN(a, b) ((a) < (b) ? (a) : (b))
#define ATT_TOGETHER(h) ATT_MIN(h, ATT_MAX(1, 4096 / (ATT_SIMDGROUPS * ATT_D)))  // of h heads, are summed up at a time
#define ATT_SHARED ATT_MAX((ATT_H + 2 * ATT_ROWS) * ATT_D, ATT_TOGETHER(ATT_H) * ATT_SIMDGROUPS * ATT_D)
#define ATT_AT_ONCE (ATT_THREADS * 4)  // elements that are summed up at once, four by a thread

// Returns the cache slot of a position.
inline int att_slot(int position) { return ATT_RING ? position % ATT_SLOTS : position; }

// Returns the row of a cache that holds a position. table are the sequence's blocks.
inline long att_row(device const int* table, int position) {
#if ATT_TABLE
  return long(table[position / BLOCK_ROWS % BLOCK_COLUMNS]) * BLOCK_ROWS + position % BLOCK_ROWS;
#else
  return att_slot(position);
#endif
}

// Reads a lane's elements of TOKENS keys or values from position t on, as far as they lie before end. slot is the slot
// of position begin.
inline void att_read(device const ATT_T* rows, device const int* table, int t, int begin, int end, int slot, uint lane, thread ATT_RAW* to) {
  UNROLL for (int j = 0; j < ATT_TOKENS; j++) {
#if ATT_TABLE
    const long at = att_row(table, min(t + j, end - 1));
#else
    int at = slot + min(t + j, end - 1) - begin;
    if (ATT_RING && at >= ATT_SLOTS) at -= ATT_SLOTS;
#endif
    UNROLL for (int i = 0; i < ATT_PARTS; i++) to[j * ATT_PARTS + i] = *(device const ATT_RAW*)(rows + long(at) * ATT_D + i * (32 * ATT_VEC) + lane * ATT_VEC);
  }
}

// Reads a lane's elements of a row in threadgroup memory.
inline void att_get(threadgroup const float* row, uint lane, thread float* to) {
  UNROLL for (int i = 0; i < ATT_EACH; i++) to[i] = row[i / ATT_VEC * (32 * ATT_VEC) + lane * ATT_VEC + i % ATT_VEC];
}
inline void att_put(thread const float* from, uint lane, threadgroup float* row) {
  UNROLL for (int i = 0; i < ATT_EACH; i++) row[i / ATT_VEC * (32 * ATT_VEC) + lane * ATT_VEC + i % ATT_VEC] = from[i];
}

// Reads the norm's weights for a query or, with is_k, for the key. Element i of a lane is number lane + 32i.
inline void att_norm(device const ATT_WEIGHT_T* q_weight, device const ATT_WEIGHT_T* k_weight, bool is_q, bool is_k, uint lane, thread float* w) {
  UNROLL for (int i = 0; i < ATT_EACH; i++) w[i] = 1.0f;
  if ((is_q && ATT_Q_NORM == 2) || (is_k && ATT_K_NORM == 2)) {
    device const ATT_WEIGHT_T* from = is_q ? q_weight : k_weight;
    UNROLL for (int i = 0; i < ATT_EACH; i++) w[i] = float(from[int(lane) + i * 32]);
  }
}

// Rotates a row by the angles that att_angles has read. e has the lane's elements, numbers lane + 32i.
#if !ATT_TRADITIONAL && ATT_HALF % 32 == 0
#define ATT_ANGLES (ATT_HALF / 32)  // a lane has both elements of a pair
inline void att_angles(device const float2* angles, uint lane, thread float2* a) {
  UNROLL for (int i = 0; i < ATT_ANGLES; i++) a[i] = angles[int(lane) + i * 32];
}
inline void att_rotate(thread float* e, thread const float2* a, uint lane, threadgroup float* row) {
  UNROLL for (int i = 0; i < ATT_ANGLES; i++) {
    const float x = e[i], y = e[i + ATT_ANGLES];
    e[i] = x * a[i].x - y * a[i].y;
    e[i + ATT_ANGLES] = x * a[i].y + y * a[i].x;
  }
}
#else
#define ATT_ANGLES ATT_EACH
inline void att_angles(device const float2* angles, uint lane, thread float2* a) {
  UNROLL for (int i = 0; i < ATT_EACH; i++) {
    const int j = min(int(lane) + i * 32, ATT_DIMS - 1);
    a[i] = angles[ATT_TRADITIONAL ? j / 2 : j % ATT_HALF];
  }
}
inline void att_rotate(thread float* e, thread const float2* a, uint lane, threadgroup float* row) {
  UNROLL for (int i = 0; i < ATT_EACH; i++) row[int(lane) + i * 32] = e[i];
  simdgroup_barrier(mem_flags::mem_threadgroup);
  UNROLL for (int i = 0; i < ATT_EACH; i++) {
    const int j = int(lane) + i * 32;
    if (j < ATT_DIMS) {
      const bool second = ATT_TRADITIONAL ? j % 2 != 0 : j >= ATT_HALF;
      const float o = row[ATT_TRADITIONAL ? j ^ 1 : (second ? j - ATT_HALF : j + ATT_HALF)];
      e[i] = second ? o * a[i].y + e[i] * a[i].x : e[i] * a[i].x - o * a[i].y;
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}
#endif

// Reads the gates of four elements from number e of the threadgroup's heads on.
inline void att_gates(device const float* gate, uint e, thread float* to) {
#if ATT_GATED
  UNROLL for (int j = 0; j < 4; j++) to[j] = gate[e / ATT_D * ATT_GATE_HEAD + e % ATT_D + j];
#endif
}
// Returns four elements of the result, multiplied by the sigmoid of the gates (port_sigmoid); both need only one
// division.
inline float4 att_result(float4 sum, float total, thread const float* g) {
  UNROLL for (int j = 0; j < 4; j++) {
#if ATT_GATED
    const float e = precise::exp(-fabs(g[j]));
    sum[j] = fast::divide(g[j] < 0.0f ? sum[j] * e : sum[j], total * (1.0f + e));
#else
    sum[j] = fast::divide(sum[j], total);
#endif
  }
  return sum;
}

// Writes four elements of a row of the result, from element e of the row on.
inline void att_write(device float* out, uint e, float4 v) { *(device float4*)(out + e) = v; }
inline void att_write(device bfloat* out, uint e, float4 v) {
  UNROLL for (int j = 0; j < 4; j++) out[ATT_LANES ? lanes_place(int(e) + j) : int(e) + j] = bfloat(v[j]);
}

// Attends to a block of the token's positions for H heads from head0 on; with WHOLE, to all positions. sh_m and sh_l
// [H][SIMDGROUPS] are the largest score of each simdgroup and the sum of its weights. table are the sequence's blocks, and
// slots the rows of a head in a cache. The token is row t of the call. The keys and values of the positions fresh to
// position are not in the caches yet. The threadgroup computes them from the rows t - (position - fresh) to t. The other
// parameters are the kernel's.
template <int H, bool WHOLE>
inline void att_step(device const float* q, device const float* k, device const float* v, device const ATT_WEIGHT_T* q_weight, device const ATT_WEIGHT_T* k_weight,
                     device const float2* angles, device ATT_T* keys, device ATT_T* values, device float* part, device float2* ml, device const float* gate,
                     device ATT_OUT_T* out, device uint* arrivals, device const int* table, int slots, int t, int fresh, int position, int low, int head0, int block,
                     threadgroup float* shared, threadgroup float* sh_m, threadgroup float* sh_l, threadgroup uint* flag, uint tid, uint sg, uint lane) {
  const int blocks = WHOLE ? 1 : simd_broadcast_first(att_blocks(position + 1 - low));
  if (block >= blocks) return;  // no port_wait: it reads and writes nothing that others do
  const int chunk = (position - low + blocks) / blocks;
  const int begin = min(low + block * chunk, position);
  const bool newest = block == blocks - 1;
  const int stop = newest ? position + 1 : min(position, begin + chunk);
  const int end = min(fresh, stop);  // of positions in the caches
  const int made = stop > fresh ? position - fresh + 1 : 0;  // rows whose keys and values the threadgroup computes
  const int kv_head = head0 / ATT_GROUP;
  keys += long(kv_head) * slots * ATT_D;
  values += long(kv_head) * slots * ATT_D;

#if !ATT_EARLY
  port_wait();
#endif
  const int buffers = WHOLE ? ATT_SHORT_BUFFERS : ATT_BUFFERS;
  const uint together = ATT_TOGETHER(H);
  const int scores = H * ATT_TOKENS;
  const int slot = att_slot(begin);
  const int first = begin + int(sg) * ATT_TOKENS;
  part += long(t * ATT_HEADS + head0) * ATT_BLOCKS * ATT_D;
  ml += (t * ATT_HEADS + head0) * ATT_BLOCKS;
#if ATT_LAST
  gate += (ATT_ROWS > 1 ? t * ATT_GATE_TOKEN : 0) + head0 * ATT_GATE_HEAD;
  out += t * (ATT_HEADS * ATT_D);
#endif
  // The first keys and values are loaded while the token's heads are prepared.
  ATT_RAW kv[buffers][ATT_TOKENS * ATT_PARTS];
  ATT_RAW vv[buffers][ATT_TOKENS * ATT_PARTS];
  UNROLL for (int i = 0; i < buffers; i++) {
    if (first + i * ATT_STRIDE < end) {
      att_read(keys, table, first + i * ATT_STRIDE, begin, end, slot, lane, kv[i]);
      att_read(values, table, first + i * ATT_STRIDE, begin, end, slot, lane, vv[i]);
    }
  }
  float w[ATT_EACH];
  att_norm(q_weight, k_weight, int(sg) < H, int(sg) == H || (ATT_ROWS > 1 && int(sg) > H && (int(sg) - H) % 2 == 0), lane, w);
#if ATT_EARLY
  port_wait();
#endif
  const int rows = H + 2 * ATT_ROWS;  // to be prepared, at most
  // Behind the H queries in shared stand pairs of a key and a value, rounded as the caches store them. Pair i is that of row t - i.
  NOUNROLL for (int turn = 0; turn < (rows + ATT_SIMDGROUPS - 1) / ATT_SIMDGROUPS; turn++) {
    const int row = turn * ATT_SIMDGROUPS + int(sg);
    if (row >= H + 2 * made) break;
    const bool is_q = row < H;
    const int back = is_q || ATT_ROWS == 1 ? 0 : (row - H) / 2;  // rows from row t back
    const bool is_k = !is_q && (ATT_ROWS == 1 ? row == H : (row - H) % 2 == 0);
    const int of = t - back;
    device const float* x = is_q ? q + long(head0 + row) * ATT_Q_HEAD : (is_k ? k + long(kv_head) * ATT_K_HEAD : v + long(kv_head) * ATT_V_HEAD);
    if (ATT_ROWS > 1) x += of * (is_q ? ATT_Q_TOKEN : is_k ? ATT_K_TOKEN : ATT_V_TOKEN);
    const int norm = is_q ? ATT_Q_NORM : (is_k ? ATT_K_NORM : ATT_V_NORM);
    float e[ATT_EACH];
    UNROLL for (int i = 0; i < ATT_EACH; i++) e[i] = x[int(lane) + i * 32];
    float2 a[ATT_ANGLES];
    att_angles(angles + of * ATT_HALF, lane, a);
    if (turn > 0) att_norm(q_weight, k_weight, is_q, is_k, lane, w);
    if (norm != 0) {
      float squares = 0.0f;
      UNROLL for (int i = 0; i < ATT_EACH; i++) squares += e[i] * e[i];
      squares = simd_sum(squares);
      const float factor = precise::rsqrt(squares / float(ATT_D) + ATT_EPS);
      UNROLL for (int i = 0; i < ATT_EACH; i++) e[i] *= factor * w[i];
    }
    threadgroup float* to = shared + row * ATT_D;
    if (is_q || is_k) att_rotate(e, a, lane, to);
    if (is_q) {
      UNROLL for (int i = 0; i < ATT_EACH; i++) to[int(lane) + i * 32] = e[i] * ATT_SCALE;
    } else {
      threadgroup ATT_T* held = (threadgroup ATT_T*)to;
      UNROLL for (int i = 0; i < ATT_EACH; i++) held[int(lane) + i * 32] = ATT_T(e[i]);
      if (head0 % ATT_GROUP == 0 && (ATT_ROWS == 1 || (back == 0 && newest))) {
        device ATT_T* row_of = (is_k ? keys : values) + att_row(table, position) * ATT_D;
        UNROLL for (int i = 0; i < ATT_EACH; i++) row_of[int(lane) + i * 32] = ATT_T(e[i]);
      }
    }
  }
  const uint e0 = tid * 4;  // the thread's first elements of those that are added up
#if ATT_LAST
  float g[4];
  if (WHOLE && e0 < H * ATT_D) att_gates(gate, e0, g);  // with one head there are registers for them
#endif
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float qv[H * ATT_EACH];
  UNROLL for (int r = 0; r < H; r++) att_get(shared + r * ATT_D, lane, qv + r * ATT_EACH);

  float o[H * ATT_EACH];
  UNROLL for (int i = 0; i < H * ATT_EACH; i++) o[i] = 0.0f;
  const int place = int(lane % ATT_TOKENS);  // number of the lane's key within the group
  float m = -1e30f;  // the largest score of the lane's query, in units of log2
  float l = 0.0f;    // sum of the weights of the lane's query and key number
  threadgroup const ATT_T* held_k = (threadgroup const ATT_T*)(shared + H * ATT_D);
  threadgroup const ATT_T* held_v = (threadgroup const ATT_T*)(shared + (H + 1) * ATT_D);
  // The loop body appears once in the code: buffers are shifted, and the next keys are read into the last buffer as
  // soon as it is free.
  NOUNROLL for (int n = first; n < stop; n += ATT_STRIDE) {
    if (made > 0 && n + ATT_TOKENS > fresh) {
      UNROLL for (int j = 0; j < ATT_TOKENS; j++) {
        if (n + j >= fresh) {
          const int pair = ATT_ROWS == 1 ? 0 : max(position - n - j, 0) * (2 * ATT_D * int(sizeof(float) / sizeof(ATT_T)));
          UNROLL for (int i = 0; i < ATT_PARTS; i++) {
            kv[0][j * ATT_PARTS + i] = *(threadgroup const ATT_RAW*)(held_k + pair + i * (32 * ATT_VEC) + lane * ATT_VEC);
            vv[0][j * ATT_PARTS + i] = *(threadgroup const ATT_RAW*)(held_v + pair + i * (32 * ATT_VEC) + lane * ATT_VEC);
          }
        }
      }
    }
    const int next = n + buffers * ATT_STRIDE;
    float s[scores];
    att_scores<H>(qv, kv[0], s);
    UNROLL for (int b = 1; b < buffers; b++) {
      UNROLL for (int i = 0; i < ATT_TOKENS * ATT_PARTS; i++) kv[b - 1][i] = kv[b][i];
    }
    if (next < end) att_read(keys, table, next, begin, end, slot, lane, kv[buffers - 1]);
    att_add<H>(att_weigh<H>(s, n + place < stop, lane, m, l, o), vv[0], o);
    UNROLL for (int b = 1; b < buffers; b++) {
      UNROLL for (int i = 0; i < ATT_TOKENS * ATT_PARTS; i++) vv[b - 1][i] = vv[b][i];
    }
    if (next < end) att_read(values, table, next, begin, end, slot, lane, vv[buffers - 1]);
  }

  UNROLL for (int w = 1; w < ATT_TOKENS; w *= 2) l += simd_shuffle_xor(l, ushort(w));
  if (int(lane) < scores && lane % ATT_TOKENS == 0) {
    sh_m[lane / ATT_TOKENS * ATT_SIMDGROUPS + sg] = m;
    sh_l[lane / ATT_TOKENS * ATT_SIMDGROUPS + sg] = l;
  }
#if ATT_LAST
  if (!WHOLE && e0 < H * ATT_D) att_gates(gate, e0, g);  // while other simdgroups still add
#endif
  // Merges the sums of the simdgroups into those of the block, relative to the largest score.
  NOUNROLL for (uint r0 = 0; r0 < H; r0 += together) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL for (int r = 0; r < together; r++) att_put(o + r * ATT_EACH, lane, shared + (r * ATT_SIMDGROUPS + sg) * ATT_D);
    UNROLL for (int i = 0; i < (H - together) * ATT_EACH; i++) o[i] = o[i + together * ATT_EACH];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint n = min(together, H - r0) * ATT_D;
    NOUNROLL for (uint from = 0; from < together * ATT_D; from += ATT_AT_ONCE) {
      if (from + e0 >= n) break;
      const uint e = r0 * ATT_D + from + e0;
      const uint r = e / ATT_D;
      const uint d = e % ATT_D;
      float top = -1e30f;
      UNROLL for (int i = 0; i < ATT_SIMDGROUPS; i++) top = max(top, sh_m[r * ATT_SIMDGROUPS + i]);
      float total = 0.0f;
      float4 sum = float4(0.0f, 0.0f, 0.0f, 0.0f);
      UNROLL for (int i = 0; i < ATT_SIMDGROUPS; i++) {
        const float f = fast::exp2(sh_m[r * ATT_SIMDGROUPS + i] - top);
        total += sh_l[r * ATT_SIMDGROUPS + i] * f;
        sum = sum + *(threadgroup const float4*)(shared + ((r - r0) * ATT_SIMDGROUPS + i) * ATT_D + d) * f;
      }
#if ATT_LAST
      if (blocks == 1) {
        if (r0 + from > 0) att_gates(gate, e, g);
        att_write(out, head0 * ATT_D + e, att_result(sum, total, g));
        continue;
      }
#endif
      const uint to = r * ATT_BLOCKS + block;
      ((device float4*)part)[to * (ATT_D / 4) + d / 4] = sum;
      if (d == 0) ml[to] = float2(top, total);
    }
  }

#if ATT_LAST
  if (blocks > 1) {
    if (!port_last(arrivals, uint(blocks), tid, flag)) return;
    // Merges the sums of the blocks into those of all positions, eight blocks at a time.
    NOUNROLL for (uint from = 0; from < H * ATT_D; from += ATT_AT_ONCE) {
      const uint e = from + e0;
      if (e >= H * ATT_D) break;
      const uint r = e / ATT_D;
      const uint d = e % ATT_D;
      if (from > 0) att_gates(gate, e, g);
      float top = -1e30f;
      float total = 0.0f;
      float4 sum = float4(0.0f, 0.0f, 0.0f, 0.0f);
      NOUNROLL for (int b = 0; b < blocks; b += 8) {
        float2 of[8];
        float4 p[8];
        UNROLL for (int i = 0; i < 8; i++) {
          const uint at = r * ATT_BLOCKS + min(b + i, blocks - 1);
          of[i] = ml[at];
          p[i] = *(device const float4*)(part + long(at) * ATT_D + d);
        }
        float grown = top;
        UNROLL for (int i = 0; i < 8; i++) grown = max(grown, of[i].x);
        const float f = fast::exp2(top - grown);
        top = grown;
        total *= f;
        sum = sum * f;
        UNROLL for (int i = 0; i < 8; i++) {
          const float f = b + i < blocks ? fast::exp2(of[i].x - top) : 0.0f;
          total += of[i].y * f;
          sum = sum + p[i] * f;
        }
      }
      att_write(out, head0 * ATT_D + e, att_result(sum, total, g));
    }
  }
#endif
}

// q, k, v: heads of the token at the strides above; q_weight, k_weight [D], which no kernel writes; angles [HALF] of (cosine,
// sine); keys, values [KV_HEADS][SLOTS][D]; part [HEADS][BLOCKS][D] and ml [HEADS][BLOCKS] as of attention_part; gate:
// heads at their stride; out [HEADS][D]; arrivals [HEADS / H], zeros before and after. Only with LAST there are gate, out and
// arrivals, and part and ml are of use within. With TABLE keys and values are pools [KV_HEADS][units][BLOCK_ROWS][D], step
// has the number of units in the place of the position, and there are positions [T] and sequences [T], of which negative
// positions stand for no sequence, whose result is zeros, and blocks [sequences][BLOCK_COLUMNS]. Then the call has T rows, at
// most ROWS: there are angles, part, ml, out and arrivals for each. Rows of a sequence lie one after another, in the order of
// their positions, which also follow one another.
// grid: HEADS / H, BLOCKS, ROWS
[[max_total_threads_per_threadgroup(PORT_BOUND(ATT_SIMDGROUPS * 32, ATT_ROOM))]]
kernel void attention_step(device const float* q [[buffer(0)]],
                           device const float* k [[buffer(1)]],
                           device const float* v [[buffer(2)]],
                           device const ATT_WEIGHT_T* q_weight [[buffer(3)]],  // absent: q
                           device const ATT_WEIGHT_T* k_weight [[buffer(4)]],  // absent: q
                           device const float2* angles [[buffer(5)]],
                           device ATT_T* keys [[buffer(6)]],
                           device ATT_T* values [[buffer(7)]],
                           device float* part [[buffer(8)]],
                           device float2* ml [[buffer(9)]],
                           device const float* gate [[buffer(10)]],  // absent: out
                           device ATT_OUT_T* out [[buffer(11)]],  // absent: q
                           device uint* arrivals [[buffer(12)]],  // absent: q
                           device const int* positions [[buffer(13)]],  // absent: q
                           device const int* sequences [[buffer(14)]],  // absent: q
                           device const int* blocks [[buffer(15)]],  // absent: q
                           device const int* step [[buffer(16)]],
                           uint3 tg [[threadgroup_position_in_grid]],
                           uint tid [[thread_index_in_threadgroup]],
                           uint sg [[simdgroup_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(float, shared, ATT_SHARED);
  TG_ARRAY(float, sh_m, ATT_SIMDGROUPS * ATT_H);
  TG_ARRAY(float, sh_l, ATT_SIMDGROUPS * ATT_H);
  TG_ARRAY(uint, flag, 1);
  // After a broadcast the compiler knows that all lanes have the same number, so that lanes do not diverge at
  // conditions on it. Otherwise NVRTC emits simdgroup operations after such conditions twice. It also does not compute
  // a broadcast value again.
  sg = simd_broadcast_first(sg);
#if ATT_TABLE
  // The host wrote the tables before the sequence.
  const int t = ATT_ROWS > 1 ? int(tg.z) : 0;
  if (ATT_ROWS > 1 && t >= step[STEP_TOKENS]) return;
  const int position = simd_broadcast_first(positions[t]);
  const int slots = step[STEP_POSITION] * BLOCK_ROWS;
  if (position < 0) {
    if (int(tg.y) > 0) return;
    port_wait();
    for (uint e = tid; e < ATT_H * ATT_D; e += ATT_THREADS) {
      const int at = int(tg.x * (ATT_H * ATT_D) + e);
      out[t * (ATT_HEADS * ATT_D) + (ATT_LANES ? lanes_place(at) : at)] = ATT_OUT_T(0.0f);
    }
    return;
  }
  const int sequence = sequences[t];
  int fresh = position;
  UNROLL for (int i = 1; i < ATT_ROWS; i++) {
    const int row = max(t - i, 0);  // read without a condition, so that no read waits for another one
    const bool before = positions[row] == position - i && sequences[row] == sequence;
    if (t >= i && position >= i && fresh == position - i + 1 && before) fresh = position - i;
  }
  fresh = simd_broadcast_first(fresh);
  blocks += long(sequence) * BLOCK_COLUMNS;
  arrivals += t * (ATT_HEADS / ATT_H);
#else
  const int t = 0;
  const int position = simd_broadcast_first(step[STEP_POSITION]);  // the host wrote it before the sequence
  const int fresh = position;
  const int slots = ATT_SLOTS;
#endif
  const int low = att_visible(position, position).x;
#if ATT_SHORT
  if (position + 1 - low <= ATT_SHORT) {
    if (int(tg.y) >= ATT_H) return;  // without a wait, too
    att_step<1, true>(q, k, v, q_weight, k_weight, angles, keys, values, part, ml, gate, out, arrivals, blocks, slots, t, fresh, position, low,
                      int(tg.x) * ATT_H + int(tg.y), 0, shared, sh_m, sh_l, flag, tid, sg, lane);
    return;
  }
#endif
  att_step<ATT_H, false>(q, k, v, q_weight, k_weight, angles, keys, values, part, ml, gate, out, arrivals + tg.x, blocks, slots, t, fresh, position, low,
                         int(tg.x) * ATT_H, int(tg.y), shared, sh_m, sh_l, flag, tid, sg, lane);
}
