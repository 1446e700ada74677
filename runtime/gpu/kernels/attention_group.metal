#include "port.h"
#include "rows.h"
// Attention as in attention_chunk.metal, with the same buffers, by products of four simdgroups (port_group_multiply):
// online softmax over tiles of keys and values that are copied ahead (Dao, FlashAttention-2, arXiv:2307.08691; Shah et
// al., FlashAttention-3, arXiv:2407.08608). While a tile's scores become weights, the device multiplies the weights of
// the tile before with values, and the queries with the keys of the tile behind.
//
// A threadgroup is two groups of four simdgroups. The rows of its matrices are GROUP_H query heads of each of its tokens,
// heads first, which all read the same keys and values. Either each group has 64 rows of its own; or (GROUP_SPLIT) both
// have the same 64 rows, and a group has half of the columns of queries, keys and values, since a thread has no registers
// for a whole output. Each of them then has a part of every score, and adds the other's.
#ifndef GROUP_D
#define GROUP_D 64           // width of a head: 64, 128 or 256, or with GROUP_SPLIT 512
#define GROUP_HEADS 1
#define GROUP_KV_HEADS 1
#define GROUP_H 1            // a power of two up to 64
#define GROUP_SPLIT 0
#define GROUP_KEYS 64        // of a tile: 64, with GROUP_SPLIT 32
#define GROUP_SLACK 8        // largest binary logarithm of a weight before the sums are divided
#define GROUP_Q_TOKEN 64     // elements of q from one token to the next and from one head to the next
#define GROUP_Q_HEAD 64
#define GROUP_SLOTS 1
#define GROUP_BLOCK_ROWS 0   // positions of a block; 0: no blocks
#define GROUP_COLUMNS 1      // blocks that the table has for a sequence
#define GROUP_WINDOW 0
#define GROUP_SCALE 1.0f     // of the scores, times log2(e)
#define GROUP_GATED 0        // the output times sigmoid(gate)
#define GROUP_GATE_TOKEN 64
#define GROUP_GATE_HEAD 64
#endif
#define GROUP_THREADS 256
#define GROUP_ROWS (GROUP_SPLIT ? 64 : 128)              // of a threadgroup
#define GROUP_TOKENS (GROUP_ROWS / GROUP_H)
#define GROUP_PIECES (GROUP_D / 8)                       // of 16 bytes, of a key or value
#define GROUP_STRIDE (GROUP_THREADS / GROUP_PIECES)      // rows that the threadgroup copies at a time
// The rows of a tile have to be looked for one by one: they may be in several blocks, or each slot in several rows.
#define GROUP_ROWS_APART (GROUP_BLOCK_ROWS ? GROUP_BLOCK_ROWS % GROUP_KEYS : GROUP_SLOTS < GROUP_KEYS)
#define GROUP_PART (GROUP_SPLIT ? GROUP_D / 2 : GROUP_D)  // columns that four simdgroups multiply
#define GROUP_PANEL (GROUP_KEYS * 128)                   // bytes of 64 columns of a tile
#define GROUP_TILE (GROUP_KEYS * GROUP_D * 2)
#define GROUP_SCORES (GROUP_KEYS / 2)                    // that a thread has
#define GROUP_SUMS (GROUP_PART / 2)                      // of the output that a thread has
#define GROUP_QUERIES (GROUP_ROWS * GROUP_D * 2)         // bytes of them
#define GROUP_EXCHANGE (GROUP_SPLIT ? GROUP_THREADS * GROUP_SCORES * 4 : 0)  // bytes of the parts of a tile's scores
#define GROUP_MEMORY (PORT_PANELS_ROOM + GROUP_QUERIES + 4 * GROUP_TILE + 2 * GROUP_EXCHANGE)
// Where the tiles of a run are in memory, and the parts of their scores, behind the queries.
#define GROUP_KEYS_AT(tile) (GROUP_QUERIES + uint((tile) & 1) * GROUP_TILE)
#define GROUP_VALUES_AT(tile) (GROUP_QUERIES + 2 * GROUP_TILE + uint((tile) & 1) * GROUP_TILE)
#define GROUP_EXCHANGE_AT(tile) (GROUP_QUERIES + 4 * GROUP_TILE + uint((tile) & 1) * GROUP_EXCHANGE)
#define GROUP_LEAST -1e29f   // of the largest score so far; what is not visible has -1e30

// What a run of tokens attends to.
struct group_run {
  int start, stop;        // the tokens are start to stop - 1
  int position;           // of token 0, if it were of the run
  int oldest, low, high;  // the oldest position of the cache; any token sees some of low to high - 1
  int row;                // of the cache, where the rows of its head begin
  int table;              // where the run's blocks begin in the table
};

// What a threadgroup reads.
struct group_inputs {
  device const float* q;
  device const bfloat* keys;
  device const bfloat* values;
  device const int* blocks;
};

// Returns the row of the cache that has a position.
inline int group_place(thread const group_inputs& in, thread const group_run& run, int at) {
#if GROUP_BLOCK_ROWS
  return run.row + in.blocks[run.table + at / GROUP_BLOCK_ROWS % GROUP_COLUMNS] * GROUP_BLOCK_ROWS + at % GROUP_BLOCK_ROWS;
#else
  return run.row + at % GROUP_SLOTS;
#endif
}

// Starts the copies of a tile of a cache to panels; base is the row of its first position. Positions that no token sees
// become zeros. A thread copies the same piece of every GROUP_STRIDE-th row.
inline void group_copy(threadgroup uchar* to, device const bfloat* cache, thread const group_inputs& in, thread const group_run& run, int tile, int base, int thread_index) {
  const int first = tile * GROUP_KEYS, row0 = thread_index / GROUP_PIECES, piece = thread_index % GROUP_PIECES;
  threadgroup uchar* panel = to + piece / 8 * GROUP_PANEL;
  const int place = port_panel_piece(row0, piece % 8);  // row0 and row have no bits in common: exclusive or adds them
  device const bfloat* from = cache + long(base + row0) * GROUP_D + piece * 8;
#if !GROUP_ROWS_APART
  if (first >= run.low && first + GROUP_KEYS <= run.high && (GROUP_BLOCK_ROWS || base - run.row + GROUP_KEYS <= GROUP_SLOTS)) {
    UNROLL for (int row = 0; row < GROUP_KEYS; row += GROUP_STRIDE) {
      port_copy(panel + row * 128 + (place ^ (row % 8 * 16)), from + row * GROUP_D, true);
    }
    return;
  }
#endif
  UNROLL for (int row = 0; row < GROUP_KEYS; row += GROUP_STRIDE) {
    const int at = first + row0 + row;
    const bool present = at >= run.low && at < run.high;
#if GROUP_BLOCK_ROWS && !GROUP_ROWS_APART
    device const bfloat* key = present ? from + row * GROUP_D : cache;
#else
    device const bfloat* key = present ? cache + long(group_place(in, run, at)) * GROUP_D + piece * 8 : cache;
#endif
    port_copy(panel + row * 128 + (place ^ (row % 8 * 16)), key, present);
  }
}

// The row of the threadgroup that a thread's elements of scores and output are in: r is 0, or 1 for those eight rows below.
inline int group_row(int thread_index, int r) {
  return (GROUP_SPLIT ? 0 : thread_index / 128 * 64) + thread_index / 32 % 4 * 16 + thread_index % 32 / 4 + 8 * r;
}

// The queries of a row of the threadgroup. Rows past the last token repeat it.
inline device const float* group_query(device const float* q, thread const group_run& run, int head0, int row) {
  return q + long(min(run.start + row / GROUP_H, run.stop - 1)) * GROUP_Q_TOKEN + (head0 + row % GROUP_H) * GROUP_Q_HEAD;
}

// Two queries, scaled, in bf16.
inline uint group_pair(device const float* q) { return port_pack_bf16(q[0] * GROUP_SCALE, q[1] * GROUP_SCALE); }

// Writes the queries to panels of GROUP_ROWS rows.
inline void group_queries(threadgroup uchar* to, device const float* q, thread const group_run& run, int head0, int thread_index) {
  for (int i = thread_index; i < GROUP_ROWS * GROUP_PIECES; i += GROUP_THREADS) {
    const int row = i / GROUP_PIECES, piece = i % GROUP_PIECES;
    device const float* from = group_query(q, run, head0, row) + piece * 8;
    *(threadgroup uint4*)(to + piece / 8 * (GROUP_ROWS * 128) + port_panel_piece(row, piece % 8)) =
        uint4(group_pair(from), group_pair(from + 2), group_pair(from + 4), group_pair(from + 6));
  }
  port_panels_written();
}

// Sets s to the scores of a group's rows with the keys of a tile: all of them, or (GROUP_SPLIT) what its columns give.
inline void group_scores(thread float* s, threadgroup const uchar* memory, int tile, int group, int thread_index) {
  const uint q = uint(group) * (GROUP_SPLIT ? GROUP_PART * GROUP_ROWS * 2 : 64 * 128);
  const uint k = GROUP_KEYS_AT(tile) + (GROUP_SPLIT ? uint(group) * (GROUP_PART * GROUP_KEYS * 2) : 0u);
  port_group_panels<GROUP_KEYS / 8, 1>(s, memory, q, GROUP_ROWS * 128, k, GROUP_PANEL, 0, thread_index);
  UNROLL for (int i = 1; i < GROUP_PART / 16; i++) {
    port_group_panels<GROUP_KEYS / 8, 0>(s, memory, q, GROUP_ROWS * 128, k, GROUP_PANEL, i, thread_index);
  }
}

// Adds to o the product of the weights w with the values of a tile.
inline void group_values(thread float* o, thread const uint* w, threadgroup const uchar* memory, int tile, int group, int thread_index) {
  const uint v = GROUP_VALUES_AT(tile) + (GROUP_SPLIT ? uint(group) * (GROUP_PART * GROUP_KEYS * 2) : 0u);
  UNROLL for (int i = 0; i < GROUP_KEYS / 16; i++) {
    port_group_columns<GROUP_PART / 8>(o, w + 4 * i, memory, v, GROUP_PANEL, i, thread_index);
  }
}

// With GROUP_SPLIT: group_give writes this group's part of the scores, and behind a barrier group_take adds the other's.
inline void group_give(thread const float* s, threadgroup uchar* exchange, int thread_index) {
  threadgroup float4* to = (threadgroup float4*)exchange + thread_index;
  UNROLL for (int i = 0; GROUP_SPLIT && i < GROUP_SCORES / 4; i++) {
    to[i * GROUP_THREADS] = float4(s[4 * i], s[4 * i + 1], s[4 * i + 2], s[4 * i + 3]);
  }
}
inline void group_take(thread float* s, threadgroup const uchar* exchange, int thread_index) {
  threadgroup const float4* from = (threadgroup const float4*)exchange + (thread_index ^ 128);
  UNROLL for (int i = 0; GROUP_SPLIT && i < GROUP_SCORES / 4; i++) {
    const float4 more = from[i * GROUP_THREADS];
    UNROLL for (int j = 0; j < 4; j++) s[4 * i + j] += more[j];
  }
}

// The maximum, or the sum, of the four lanes that have a row.
inline float group_four_max(float v) {
  v = max(v, simd_shuffle_xor(v, 1));
  return max(v, simd_shuffle_xor(v, 2));
}
inline float group_four_sum(float v) {
  v += simd_shuffle_xor(v, 1);
  return v + simd_shuffle_xor(v, 2);
}

// A thread has elements of two rows, eight apart.
struct group_softmax {
  float most[2];    // weights are 2 to the power of a score minus this; it is the largest score so far, less GROUP_SLACK at most
  float sum[2];     // of the weights that this thread has
  float factor[2];  // of the sums so far
};

// Makes weights of the scores of a tile, whose first key is at position first.
inline void group_weights(thread float* s, thread group_softmax& of, thread const group_run& run, int first, int thread_index) {
  float top[2] = {-1e30f, -1e30f};
  const int last = run.position + run.stop - 1;
  const bool inside = first >= run.oldest && first + GROUP_KEYS - 1 <= run.position + run.start &&
                      (GROUP_WINDOW == 0 || first > last - GROUP_WINDOW);
  if (!inside) {
    const int column = first + thread_index % 4 * 2;
    int position[2];
    UNROLL for (int r = 0; r < 2; r++) {
      position[r] = run.position + min(run.start + group_row(thread_index, r) / GROUP_H, run.stop - 1);
    }
    UNROLL for (int i = 0; i < GROUP_SCORES; i++) {
      const int key = column + i / 4 * 8 + i % 2, at = position[i / 2 % 2];
      const bool visible = key >= run.oldest && key <= at && (GROUP_WINDOW == 0 || key > at - GROUP_WINDOW);
      s[i] = visible ? s[i] : -1e30f;
    }
  }
  UNROLL for (int i = 0; i < GROUP_SCORES; i++) top[i / 2 % 2] = max(top[i / 2 % 2], s[i]);
  UNROLL for (int r = 0; r < 2; r++) {
    const float highest = group_four_max(top[r]);
    const float grown = highest > of.most[r] + float(GROUP_SLACK) ? highest : of.most[r];
    of.factor[r] = fast::exp2(of.most[r] - grown);
    of.most[r] = grown;
    of.sum[r] *= of.factor[r];
  }
  UNROLL for (int i = 0; i < GROUP_SCORES; i++) {
    s[i] = fast::exp2(s[i] - of.most[i / 2 % 2]);
    of.sum[i / 2 % 2] += s[i];
  }
}

// Packs weights as the products with values take them: in the order of their rows' pairs.
inline void group_pack(thread uint* w, thread const float* s) {
  UNROLL for (int i = 0; i < GROUP_SCORES / 2; i++) w[i] = port_pack_bf16(s[2 * i], s[2 * i + 1]);
}

// Waits for the output's sums, and multiplies them by the factors of their rows where one is not 1. No sum of weights is
// negative. That is asked so that the wait stays behind the weights: compilers put it before them, where nothing depends
// on them, and then products and weights no longer overlap.
inline void group_rescale(thread float* o, thread const group_softmax& of) {
  if (simd_any(of.factor[0] != 1.0f || of.factor[1] != 1.0f || of.sum[0] + of.sum[1] < 0.0f)) {
    port_group_wait<0>();
    port_group_taken<GROUP_SUMS>(o);
    UNROLL for (int i = 0; i < GROUP_SUMS; i++) o[i] *= of.factor[i / 2 % 2];
  }
  port_group_wait<0>();
  port_group_taken<GROUP_SUMS>(o);
}

// Writes the output of the rows of the run that a thread has elements of.
inline void group_write(device float* out, device const float* gate, thread float* o, thread group_softmax& of, thread const group_run& run, int head0, int thread_index) {
  const int column0 = (GROUP_SPLIT ? thread_index / 128 * GROUP_PART : 0) + thread_index % 4 * 2;
  UNROLL for (int r = 0; r < 2; r++) {
    const float scale = 1.0f / group_four_sum(of.sum[r]);
    const int row = group_row(thread_index, r), token = run.start + row / GROUP_H, head = head0 + row % GROUP_H;
    if (token < run.stop) {
      device float* to = out + (long(token) * GROUP_HEADS + head) * GROUP_D + column0;
#if GROUP_GATED
      device const float* by = gate + long(token) * GROUP_GATE_TOKEN + head * GROUP_GATE_HEAD + column0;
#endif
      UNROLL for (int i = 0; i < GROUP_SUMS / 4; i++) {
        float2 v = float2(o[4 * i + 2 * r] * scale, o[4 * i + 2 * r + 1] * scale);
#if GROUP_GATED
        v = v * float2(port_sigmoid(by[8 * i]), port_sigmoid(by[8 * i + 1]));
#endif
        *(device float2*)(to + 8 * i) = v;
      }
    }
  }
}

// Starts the product of the weights w with the values of tile j and, with MORE, the scores of tile j + 2.
template <int MORE>
inline void group_products(thread float* next, thread float* o, thread const uint* w, threadgroup uchar* memory, int j, int group, int thread_index) {
  port_group_begin();
  if (MORE) group_scores(next, memory, j + 2, group, thread_index);
  group_values(o, w, memory, j, group, thread_index);
  port_group_end();
}

// One step of the loop over tiles, counted from the run's first: the softmax of the scores s of tile j + 1, beside the
// product of the weights w with the values of tile j. s becomes w, and with MORE there are the scores of tile j + 2
// in its place. base has the bases of tiles j + 1 to j + 3.
template <int MORE>
inline void group_step(thread float* o, thread float* s, thread uint* w, thread group_softmax& of, thread const group_inputs& in, thread const group_run& run, thread int* base,
                       threadgroup uchar* memory, int j, int first, int count, int group, int thread_index) {
  float next[GROUP_SCORES];
  port_copies_wait<0>();
  // Keys j + 2 and values j are there, and the other group's part of s; keys j + 1 and values j - 1 are multiplied.
  threadgroup_barrier(mem_flags::mem_threadgroup);
  // Twice the code, in which the groups' places in memory are constants: computed ones take registers and instructions.
  if (group == 0) {
    group_products<MORE>(next, o, w, memory, j, 0, thread_index);
  } else {
    group_products<MORE>(next, o, w, memory, j, 1, thread_index);
  }
  group_copy(memory + GROUP_VALUES_AT(j + 1), in.values, in, run, first + j + 1, base[0], thread_index);
  if (MORE) {
    if (j + 3 < count) group_copy(memory + GROUP_KEYS_AT(j + 3), in.keys, in, run, first + j + 3, base[2], thread_index);
    base[0] = base[1];
    base[1] = base[2];
    base[2] = group_place(in, run, (first + j + 4) * GROUP_KEYS);
  }
  port_copies_end();
  group_take(s, memory + GROUP_EXCHANGE_AT(j + 1), thread_index);
  group_weights(s, of, run, (first + j + 1) * GROUP_KEYS, thread_index);
  group_rescale(o, of);
  group_pack(w, s);
  if (MORE) {
    port_group_taken<GROUP_SCORES>(next);
    UNROLL for (int i = 0; i < GROUP_SCORES; i++) s[i] = next[i];
    group_give(s, memory + GROUP_EXCHANGE_AT(j + 2), thread_index);
  }
}

// Attention of a run of tokens.
inline void group_attend(thread const group_inputs& in, device const float* gate, device float* out, thread const group_run& run, int head0,
                         threadgroup uchar* memory, int group, int thread_index) {
  const int first = run.low / GROUP_KEYS, count = (run.high - 1) / GROUP_KEYS + 1 - first;
  int base[3];
  UNROLL for (int i = 0; i < 3; i++) base[i] = group_place(in, run, (first + i) * GROUP_KEYS);
  group_copy(memory + GROUP_KEYS_AT(0), in.keys, in, run, first, base[0], thread_index);
  port_copies_end();
  if (count > 1) group_copy(memory + GROUP_KEYS_AT(1), in.keys, in, run, first + 1, base[1], thread_index);
  port_copies_end();
  group_queries(memory, in.q, run, head0, thread_index);
  float s[GROUP_SCORES], next[GROUP_SCORES], o[GROUP_SUMS];
  uint w[GROUP_SCORES / 2];
  group_softmax of;
  UNROLL for (int i = 0; i < GROUP_SUMS; i++) o[i] = 0.0f;
  UNROLL for (int r = 0; r < 2; r++) {
    of.most[r] = GROUP_LEAST;
    of.sum[r] = 0.0f;
  }
  port_copies_wait<1>();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  port_group_begin();
  group_scores(s, memory, 0, group, thread_index);
  port_group_end();
  port_group_wait<0>();
  port_group_taken<GROUP_SCORES>(s);
  group_give(s, memory + GROUP_EXCHANGE_AT(0), thread_index);
  port_copies_wait<0>();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  port_group_begin();
  group_scores(next, memory, 1, group, thread_index);  // of one tile alone: what nobody reads
  port_group_end();
  group_copy(memory + GROUP_VALUES_AT(0), in.values, in, run, first, base[0], thread_index);
  if (count > 2) group_copy(memory + GROUP_KEYS_AT(2), in.keys, in, run, first + 2, base[2], thread_index);
  port_copies_end();
  base[0] = base[1];
  base[1] = base[2];
  base[2] = group_place(in, run, (first + 3) * GROUP_KEYS);
  group_take(s, memory + GROUP_EXCHANGE_AT(0), thread_index);
  group_weights(s, of, run, first * GROUP_KEYS, thread_index);
  port_group_wait<0>();
  port_group_taken<GROUP_SCORES>(next);
  group_pack(w, s);
  UNROLL for (int i = 0; i < GROUP_SCORES; i++) s[i] = next[i];
  group_give(s, memory + GROUP_EXCHANGE_AT(1), thread_index);
  int j = 0;
  NOUNROLL for (; j + 2 < count; j++) group_step<1>(o, s, w, of, in, run, base, memory, j, first, count, group, thread_index);
  if (j + 1 < count) {
    group_step<0>(o, s, w, of, in, run, base, memory, j, first, count, group, thread_index);
    j++;
  }
  port_copies_wait<0>();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  port_group_begin();
  group_values(o, w, memory, j, group, thread_index);
  port_group_end();
  port_group_wait<0>();
  port_group_taken<GROUP_SUMS>(o);
  group_write(out, gate, o, of, run, head0, thread_index);
}

// q, gate: heads at their strides; keys, values [KV_HEADS][SLOTS][D]; out [T][HEADS][D]. With blocks keys and values are
// [KV_HEADS][units][BLOCK_ROWS][D], and step has the units in the place of a position.
// grid: T / TOKENS, HEADS / H
// arguments: attention_chunk
[[max_total_threads_per_threadgroup(PORT_BOUND(GROUP_THREADS, 1))]]
kernel void attention_group(device const float* q [[buffer(0)]],
                            device const bfloat* keys [[buffer(1)]],
                            device const bfloat* values [[buffer(2)]],
                            device const float* gate [[buffer(3)]],
                            device float* out [[buffer(4)]],
                            device const int* positions [[buffer(5)]],
                            device const int* sequences [[buffer(6)]],
                            device const int* blocks [[buffer(7)]],
                            device const int* step [[buffer(8)]],
                            uint3 tg [[threadgroup_position_in_grid]],
                            uint tid [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, GROUP_MEMORY);
  threadgroup uchar* panels = port_panels(memory);
  const int group = int(tid) / 128;
  const int tokens = step[STEP_TOKENS];
  const int block0 = ((tokens - 1) / GROUP_TOKENS - int(tg.x)) * GROUP_TOKENS;  // the last tokens, which see most, first
  if (block0 < 0) return;
  const int head0 = int(tg.y) * GROUP_H, limit = min(block0 + GROUP_TOKENS, tokens);
  const int kv_head = head0 / (GROUP_HEADS / GROUP_KV_HEADS);
  const group_inputs in = {q, keys, values, blocks};
  group_run run;
#if GROUP_BLOCK_ROWS
  run.row = kv_head * step[STEP_POSITION] * GROUP_BLOCK_ROWS;
  run.stop = block0;
  for (;;) {
    run.start = run.stop;
    while (run.start < limit && !rows_many(positions, sequences, run.start, tokens)) run.start++;
    if (run.start >= limit) return;
    run.stop = run.start + 1;
    while (run.stop < limit && rows_follow(positions, sequences, run.stop)) run.stop++;
    run.position = positions[run.start] - run.start;
    run.oldest = 0;
    run.table = sequences[run.start] * GROUP_COLUMNS;
#else
  run.row = kv_head * GROUP_SLOTS;
  {
    run.start = block0;
    run.stop = limit;
    run.position = step[STEP_POSITION];
    run.oldest = max(0, run.position + tokens - GROUP_SLOTS);
    run.table = 0;
#endif
    run.low = run.oldest;
    if (GROUP_WINDOW > 0) run.low = max(run.low, run.position + run.start - GROUP_WINDOW + 1);
    run.high = run.position + run.stop;
    threadgroup_barrier(mem_flags::mem_threadgroup);  // the run before is done with the memory
    group_attend(in, gate, out, run, head0, panels, group, int(tid));
  }
}
