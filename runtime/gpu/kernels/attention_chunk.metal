#include "port.h"
#include "rows.h"
// Tiled attention of the tokens of a chunk over a cache of keys and values in bf16 (Dao, FlashAttention-2,
// arXiv:2307.08691). It rounds queries and attention weights to bf16 and adds in fp32. A simdgroup computes 16 tokens
// of one query head. The simdgroups of a threadgroup have CHUNK_H heads of one key-value head and CHUNK_ROWS blocks of
// tokens, so that all read the same keys and values from threadgroup memory. attention.metal says which positions a
// token attends to.
//
// With block-wise caches (blocks.metal) the tokens are rows of many sequences. A threadgroup takes its rows run by run,
// where a run is neighbouring rows of one sequence. It leaves short runs to block_attention.metal.
#ifndef CHUNK_D
#define CHUNK_D 64           // width of a head, a multiple of 16
#define CHUNK_HEADS 1
#define CHUNK_KV_HEADS 1
#define CHUNK_H 1
#define CHUNK_ROWS 1
#define CHUNK_KEYS 32        // that are read at a time, a multiple of 16
#define CHUNK_DV 64          // columns of the output that a threadgroup makes: grid.z parts of D
#define CHUNK_Q_REGISTERS 1       // the queries stay in registers
#define CHUNK_Q_TOKEN 64     // elements of q from one token to the next and from one head to the next
#define CHUNK_Q_HEAD 64
#define CHUNK_SLOTS 1
#define CHUNK_BLOCK_ROWS 0   // positions of a block; 0: no blocks
#define CHUNK_COLUMNS 1      // blocks that the table has for a sequence
#define CHUNK_WINDOW 0
#define CHUNK_SCALE 1.0f     // of the scores, times log2(e)
#define CHUNK_GATED 0        // the output times sigmoid(gate)
#define CHUNK_GATE_TOKEN 64
#define CHUNK_GATE_HEAD 64
#endif
#define CHUNK_GROUP (CHUNK_HEADS / CHUNK_KV_HEADS)
#define CHUNK_SIMDGROUPS (CHUNK_H * CHUNK_ROWS)
#define CHUNK_THREADS (CHUNK_SIMDGROUPS * 32)
#define CHUNK_TILES (CHUNK_D / 16)
#define CHUNK_KEY_TILES (CHUNK_KEYS / 16)
#define CHUNK_OUT_TILES (CHUNK_DV / 16)
#define CHUNK_LD (CHUNK_D + 8)      // padded rows, so that the rows of a tile lie in different banks
#define CHUNK_LDV (CHUNK_DV + 8)

// Reads a 16x16 tile of the queries. Rows past the last one of the block repeat it.
inline void chunk_queries(thread tile_a& a, device const float* q, int rows, uint lane) {
  UNROLL for (short i = 0; i < 4; i++) {
    const short2 at = tile_coord(lane, short(2 * i));
    device const float* p = q + long(min(int(at.x), rows - 1)) * CHUNK_Q_TOKEN + at.y;
    tile_set_a(a, i, p[0] * CHUNK_SCALE, p[1] * CHUNK_SCALE);
  }
}

// Returns the row of the cache that a position lies in.
inline long chunk_row(device const int* table, int position) {
#if CHUNK_BLOCK_ROWS
  return long(table[position / CHUNK_BLOCK_ROWS % CHUNK_COLUMNS]) * CHUNK_BLOCK_ROWS + position % CHUNK_BLOCK_ROWS;
#else
  return position % CHUNK_SLOTS;
#endif
}

// q, gate: heads at their strides; keys, values [KV_HEADS][SLOTS][D]; out [T][HEADS][D]. With blocks keys and values are
// [KV_HEADS][units][BLOCK_ROWS][D], and step has the units in the place of a position.
// grid: T / (16 · ROWS), HEADS / H, D / DV
[[max_total_threads_per_threadgroup(CHUNK_THREADS)]]
kernel void attention_chunk(device const float* q [[buffer(0)]],
                            device const bfloat* keys [[buffer(1)]],
                            device const bfloat* values [[buffer(2)]],
                            device const float* gate [[buffer(3)]],  // absent: out
                            device float* out [[buffer(4)]],
                            device const int* positions [[buffer(5)]],  // absent: q
                            device const int* sequences [[buffer(6)]],  // absent: q
                            device const int* blocks [[buffer(7)]],  // absent: q
                            device const int* step [[buffer(8)]],
                            uint3 tg [[threadgroup_position_in_grid]],
                            uint tid [[thread_index_in_threadgroup]],
                            uint sg [[simdgroup_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(bfloat, ks, CHUNK_KEYS * CHUNK_LD);
  TG_ARRAY(bfloat, vs, CHUNK_KEYS * CHUNK_LDV);
  const int tokens = step[STEP_TOKENS];
  const int block0 = int(tg.x) * (16 * CHUNK_ROWS);
  if (block0 >= tokens) return;
  const int head = int(tg.y) * CHUNK_H + int(sg) % CHUNK_H;
  const int kv_head = int(tg.y) * CHUNK_H / CHUNK_GROUP;
  const int limit = min(block0 + 16 * CHUNK_ROWS, tokens);
  int start = block0;  // the threadgroup's tokens are start to stop - 1
#if CHUNK_BLOCK_ROWS
  const long cache = long(kv_head) * step[STEP_POSITION] * CHUNK_BLOCK_ROWS * CHUNK_D;
  for (;;) {
  while (start < limit && !rows_many(positions, sequences, start, tokens)) start++;
  if (start >= limit) return;
  int stop = start + 1;
  while (stop < limit && rows_follow(positions, sequences, stop)) stop++;
  const int position = positions[start] - start;
  const int oldest = 0;
  device const int* table = blocks + long(sequences[start]) * CHUNK_COLUMNS;
#else
  const long cache = long(kv_head) * CHUNK_SLOTS * CHUNK_D;
  const int stop = limit;
  const int position = step[STEP_POSITION];
  const int oldest = max(0, position + tokens - CHUNK_SLOTS);
  device const int* table = step;
  {
#endif
  const int token0 = min(start + int(sg) / CHUNK_H * 16, stop - 1);  // a simdgroup past the end computes the last token and drops the result
  const int rows = min(stop - token0, 16);
  const bool present = start + int(sg) / CHUNK_H * 16 < stop;
  device const bfloat* ck = keys + cache;
  device const bfloat* cv = values + cache + int(tg.z) * CHUNK_DV;
  device const float* cq = q + long(token0) * CHUNK_Q_TOKEN + head * CHUNK_Q_HEAD;

  // the positions that any of the threadgroup's tokens attends to
  int low = oldest;
  if (CHUNK_WINDOW > 0) low = max(low, position + start - CHUNK_WINDOW + 1);
  const int high = position + stop;

#if CHUNK_Q_REGISTERS
  tile_a queries[CHUNK_TILES];
  UNROLL for (int i = 0; i < CHUNK_TILES; i++) chunk_queries(queries[i], cq + i * 16, rows, lane);
#endif
  tile_c o[CHUNK_OUT_TILES];
  UNROLL for (int i = 0; i < CHUNK_OUT_TILES; i++) tile_zero(o[i]);
  // for the two rows of the tile of which a lane has elements
  float m[2] = {-1e30f, -1e30f};
  float l[2] = {0.0f, 0.0f};
  int from[2];
  int to[2];
  UNROLL for (short e = 0; e < 8; e++) {
    const int at = position + token0 + int(tile_coord(lane, e).x);
    to[tile_row(e)] = at;
    from[tile_row(e)] = CHUNK_WINDOW > 0 ? max(oldest, at - CHUNK_WINDOW + 1) : oldest;
  }

  for (int key0 = low; key0 < high; key0 += CHUNK_KEYS) {
    for (int i = int(tid); i < CHUNK_KEYS * (CHUNK_D / 8); i += CHUNK_THREADS) {
      const int row = i / (CHUNK_D / 8);
      const int col = i % (CHUNK_D / 8) * 8;
      uint4 k = uint4(0, 0, 0, 0);
      if (key0 + row < high) k = *(device const uint4*)(ck + chunk_row(table, key0 + row) * CHUNK_D + col);
      *(threadgroup uint4*)(ks + row * CHUNK_LD + col) = k;
    }
    for (int i = int(tid); i < CHUNK_KEYS * (CHUNK_DV / 8); i += CHUNK_THREADS) {
      const int row = i / (CHUNK_DV / 8);
      const int col = i % (CHUNK_DV / 8) * 8;
      uint4 v = uint4(0, 0, 0, 0);
      if (key0 + row < high) v = *(device const uint4*)(cv + chunk_row(table, key0 + row) * CHUNK_D + col);
      *(threadgroup uint4*)(vs + row * CHUNK_LDV + col) = v;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    tile_c s[CHUNK_KEY_TILES];
    UNROLL for (int j = 0; j < CHUNK_KEY_TILES; j++) tile_zero(s[j]);
    UNROLL for (int i = 0; i < CHUNK_TILES; i++) {
#if !CHUNK_Q_REGISTERS
      tile_a query;
      chunk_queries(query, cq + i * 16, rows, lane);
#endif
      UNROLL for (int j = 0; j < CHUNK_KEY_TILES; j++) {
        tile_b key;
        tile_load_bt(key, ks + j * 16 * CHUNK_LD + i * 16, CHUNK_LD, lane);
#if CHUNK_Q_REGISTERS
        tile_mma(s[j], queries[i], key);
#else
        tile_mma(s[j], query, key);
#endif
      }
    }
    float top[2] = {-1e30f, -1e30f};
    UNROLL for (int j = 0; j < CHUNK_KEY_TILES; j++) {
      UNROLL for (short e = 0; e < 8; e++) {
        const int at = key0 + j * 16 + int(tile_coord(lane, e).y);
        const short r = tile_row(e);
        const bool visible = at >= from[r] && at <= to[r] && at < high;
        const float score = visible ? tile_get(s[j], e) : -1e30f;
        tile_set(s[j], e, score);
        top[r] = max(top[r], score);
      }
    }
    float factor[2];
    UNROLL for (short r = 0; r < 2; r++) {
      const float grown = max(m[r], tile_row_max(top[r]));
      factor[r] = fast::exp2(m[r] - grown);
      m[r] = grown;
      l[r] *= factor[r];
    }
    UNROLL for (int i = 0; i < CHUNK_OUT_TILES; i++) {
      UNROLL for (short e = 0; e < 8; e++) tile_set(o[i], e, tile_get(o[i], e) * factor[tile_row(e)]);
    }
    UNROLL for (int j = 0; j < CHUNK_KEY_TILES; j++) {
      tile_a weights;
      UNROLL for (short i = 0; i < 4; i++) {
        const short r = tile_row(short(2 * i));
        const float s0 = tile_get(s[j], short(2 * i));
        const float s1 = tile_get(s[j], short(2 * i + 1));
        const float w0 = s0 > -1e30f ? fast::exp2(s0 - m[r]) : 0.0f;
        const float w1 = s1 > -1e30f ? fast::exp2(s1 - m[r]) : 0.0f;
        l[r] += w0 + w1;
        tile_set_a(weights, i, w0, w1);
      }
      UNROLL for (int i = 0; i < CHUNK_OUT_TILES; i++) {
        tile_b value;
        tile_load_b(value, vs + j * 16 * CHUNK_LDV + i * 16, CHUNK_LDV, lane);
        tile_mma(o[i], weights, value);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  UNROLL for (short r = 0; r < 2; r++) l[r] = 1.0f / tile_row_sum(l[r]);
  UNROLL for (int i = 0; i < CHUNK_OUT_TILES; i++) {
    UNROLL for (short e = 0; e < 8; e++) {
      const short2 at = tile_coord(lane, e);
      if (present && at.x < rows) {
        const int d = int(tg.z) * CHUNK_DV + i * 16 + at.y;
        float v = tile_get(o[i], e) * l[tile_row(e)];
#if CHUNK_GATED
        v *= port_sigmoid(gate[long(token0 + at.x) * CHUNK_GATE_TOKEN + head * CHUNK_GATE_HEAD + d]);
#endif
        out[(long(token0 + at.x) * CHUNK_HEADS + head) * CHUNK_D + d] = v;
      }
    }
  }
  start = stop;
  }
}
