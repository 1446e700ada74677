#include "port.h"
// Sorts token-expert pairs [T * SORT_TOP] by expert, in the order of tokens within an expert, so that an expert's
// weights can be multiplied with all of its tokens at once. A second kernel weights the results and adds them up.
//
// A part is one expert of one token. Token t has the parts t * SORT_PARTS and following. Without SORT_SHARED they are its SORT_TOP
// pairs. With it the first is the shared expert, and the pairs follow. The kernel writes the numbers of the parts in the order of
// their experts, those of the shared expert first.

#define PORT_WAITS
#ifndef SORT_TOP         // experts of a token
#define SORT_TOP 2
#endif
#ifndef SORT_SHARED      // 1: a shared expert stands before those of a token
#define SORT_SHARED 0
#endif
#ifndef SORT_EXPERTS     // at most SORT_SIMDS * 32
#define SORT_EXPERTS 8
#endif
#ifndef SORT_SIMDS       // at most 32
#define SORT_SIMDS 4
#endif
#ifndef SORT_ROWS        // pairs of a tile
#define SORT_ROWS 16
#endif
#ifndef SORT_TILES       // tiles that the buffer tiles has room for
#define SORT_TILES 16
#endif
#ifndef COMBINE_N        // columns, a multiple of 4
#define COMBINE_N 64
#endif
#ifndef COMBINE_RESIDUAL // extra [T, COMBINE_N] is added
#define COMBINE_RESIDUAL 0
#endif
#ifndef COMBINE_THREADS
#define COMBINE_THREADS 32
#endif
#define SORT_THREADS (SORT_SIMDS * 32)
#define SORT_PARTS (SORT_TOP + SORT_SHARED)
// Rows of x that a thread reads before it uses any. Nine are eight experts and a shared one.
#define COMBINE_AHEAD (SORT_PARTS < 10 ? SORT_PARTS : 8)

// Returns the expert of a lane's pair, or -1 where there is no pair. equal gets the number of pairs of the simdgroup with the same
// expert, rank the number of these pairs in the lanes before. Ballots over the bits of the experts' numbers find them.
inline int sort_find(device const int* experts, int pair, int pairs, uint lane, thread int& rank, thread int& equal) {
  const int expert = pair < pairs ? clamp(experts[pair], 0, SORT_EXPERTS - 1) : -1;
  uint same = port_ballot(expert >= 0);
  UNROLL for (int bit = 1; bit < SORT_EXPERTS; bit *= 2) {
    const uint set = port_ballot((expert & bit) != 0);
    same &= (expert & bit) != 0 ? set : ~set;
  }
  rank = int(popcount(same & ((1u << lane) - 1u)));
  equal = int(popcount(same));
  return expert;
}

// Returns the number of a pair among the parts.
inline int sort_part(int pair) { return SORT_SHARED ? pair + pair / SORT_TOP + 1 : pair; }

// Returns the sum of v over the lanes before the caller.
inline int sort_before(int v, uint lane) {
  int sum = v;
  UNROLL for (ushort distance = 1; distance < 32; distance *= 2) {
    const int other = simd_shuffle_up(sum, distance);
    if (lane >= distance) sum += other;
  }
  return sum - v;
}

// counts has the number of an expert's pairs in the section of each simdgroup. Replaces each by the number of the expert's pairs in
// all sections before it, and returns the number of all its pairs. All reads are in flight together.
inline int sort_sections(threadgroup ushort* counts, int expert) {
  int mine[SORT_SIMDS];
  UNROLL for (int s = 0; s < SORT_SIMDS; s++) mine[s] = int(counts[s * SORT_EXPERTS + expert]);
  int count = 0;
  UNROLL for (int s = 0; s < SORT_SIMDS; s++) {
    counts[s * SORT_EXPERTS + expert] = ushort(count);
    count += mine[s];
  }
  return count;
}

// Writes where an expert's parts begin to starts, and the expert's tiles. All threads together write the tiles of the shared expert,
// which come first, and mark the places after the last tile as empty.
inline void sort_tiles(int count, int tokens, uint thread_index, uint simd, uint lane, threadgroup int* totals, threadgroup int* starts, device int4* tiles) {
  const int parts = (count + SORT_ROWS - 1) / SORT_ROWS;
  const int before = sort_before(count, lane), tiles_before = sort_before(parts, lane);
  if (lane == 31) {
    totals[simd] = before + count;
    totals[SORT_SIMDS + simd] = tiles_before + parts;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const int other = lane < SORT_SIMDS ? totals[lane] : 0, other_tiles = lane < SORT_SIMDS ? totals[SORT_SIMDS + lane] : 0;
  const int shared = SORT_SHARED * tokens, shared_tiles = (shared + SORT_ROWS - 1) / SORT_ROWS;
  const int start = shared + before + simd_sum(lane < simd ? other : 0);
  const int tile = shared_tiles + tiles_before + simd_sum(lane < simd ? other_tiles : 0);
  const int all = shared_tiles + simd_sum(other_tiles), expert = int(thread_index);
  if (expert < SORT_EXPERTS) starts[expert] = start;
  for (int i = 0; i < parts; i++) tiles[tile + i] = int4(expert, start + i * SORT_ROWS, min(start + (i + 1) * SORT_ROWS, start + count), 0);
  for (int i = expert; i < shared_tiles; i += SORT_THREADS) tiles[i] = int4(SORT_EXPERTS, i * SORT_ROWS, min((i + 1) * SORT_ROWS, shared), 0);
  for (int i = all + expert; i < SORT_TILES; i += SORT_THREADS) tiles[i] = int4(-1, 0, 0, 0);
}

// experts_sort, with one threadgroup. Every simdgroup counts the pairs of each expert in its section of the pairs. The
// places of its pairs in order follow from the counts. order [T * SORT_PARTS] gets the parts. tiles [SORT_TILES][4] get
// (expert, first, end, 0), where first and end are indices into order. The shared expert has the number SORT_EXPERTS.
// The expert is -1 after the last tile.
[[max_total_threads_per_threadgroup(SORT_THREADS)]]
kernel void experts_sort(device const int* experts [[buffer(0)]],
                         device int* order [[buffer(1)]],
                         device int* tiles [[buffer(2)]],
                         device const int* step [[buffer(3)]],
                         uint thread_index [[thread_index_in_threadgroup]],
                         uint simd [[simdgroup_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(ushort, counts, SORT_SIMDS * SORT_EXPERTS);
  TG_ARRAY(int, starts, SORT_EXPERTS);
  TG_ARRAY(int, totals, 2 * SORT_SIMDS);
  const int tokens = step[STEP_TOKENS], pairs = tokens * SORT_TOP;  // the host wrote it before the sequence
  const int stretch = (pairs + SORT_THREADS - 1) / SORT_THREADS * 32;
  const int first = int(simd) * stretch + int(lane);
  for (int i = int(thread_index); i < SORT_SIMDS * SORT_EXPERTS; i += SORT_THREADS) counts[i] = ushort(0);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  port_wait();
  for (int i = int(thread_index); i < SORT_SHARED * tokens; i += SORT_THREADS) order[i] = i * SORT_PARTS;
  threadgroup ushort* mine = counts + simd * SORT_EXPERTS;
  int expert = -1, rank = 0, equal = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < stretch; i += 32) {
      if (pass == 0 || stretch > 32) expert = sort_find(experts, first + i, pairs, lane, rank, equal);
      const int seen = expert < 0 ? 0 : int(mine[expert]);
      if (pass == 1 && expert >= 0) order[starts[expert] + seen + rank] = sort_part(first + i);
      simdgroup_barrier(mem_flags::mem_threadgroup);
      if (expert >= 0 && rank == equal - 1) mine[expert] = ushort(seen + equal);
      simdgroup_barrier(mem_flags::mem_threadgroup);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (pass == 1) return;
    const int count = int(thread_index) < SORT_EXPERTS ? sort_sections(counts, int(thread_index)) : 0;
    sort_tiles(count, tokens, thread_index, simd, lane, totals, starts, (device int4*)tiles);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// experts_combine: y [T, N] = sum over a token's pairs of scores [T, SORT_TOP] * x [T, SORT_PARTS, N], plus extra. With
// SORT_SHARED the score of the shared expert is the sigmoid of the token's gate. The grid is (columns, tokens).
[[max_total_threads_per_threadgroup(COMBINE_THREADS)]]
kernel void experts_combine(device const float* x [[buffer(0)]],
                            device const float* scores [[buffer(1)]],
                            device const float* extra [[buffer(2)]],  // absent: x
                            device float* y [[buffer(3)]],
                            device const int* step [[buffer(4)]],
                            device const float* gates [[buffer(5)]],  // absent: scores
                            uint3 group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]]) {
  const int token = int(group.y);
  const int column = int(group.x * COMBINE_THREADS + thread_index) * 4;
  const int tokens = step[STEP_TOKENS];  // the host wrote it before the sequence
  port_wait();
  if (token >= tokens || column >= COMBINE_N) return;
  float4 sum = float4(0.0f, 0.0f, 0.0f, 0.0f);
#if COMBINE_RESIDUAL
  sum = *(device const float4*)(extra + long(token) * COMBINE_N + column);
#endif
  x += long(token) * SORT_PARTS * COMBINE_N + column;
  scores += token * SORT_TOP;
  UNROLL for (int begin = 0; begin < SORT_PARTS; begin += COMBINE_AHEAD) {
    float4 v[COMBINE_AHEAD];  // all are read before any is used
    float score[COMBINE_AHEAD];
    UNROLL for (int j = 0; j < COMBINE_AHEAD; j++) {
      if (begin + j >= SORT_PARTS) break;
      v[j] = *(device const float4*)(x + long(begin + j) * COMBINE_N);
      score[j] = begin + j < SORT_SHARED ? port_sigmoid(gates[token]) : scores[begin + j - SORT_SHARED];
    }
    UNROLL for (int j = 0; j < COMBINE_AHEAD; j++) {
      if (begin + j < SORT_PARTS) sum = sum + v[j] * score[j];
    }
  }
  *(device float4*)(y + long(token) * COMBINE_N + column) = sum;
}
