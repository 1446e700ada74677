#include "port.h"
// Sorts token-expert pairs [T * SORT_TOP] by expert, in the order of tokens within an expert, so that an expert's
// weights can be multiplied with all of its tokens at once. A second kernel weights the results and adds them up.

#ifndef SORT_TOP         // experts of a token
#define SORT_TOP 2
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
#ifndef SORT_TILES       // tiles that there is room for
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

// Returns the sum of v over the threads before the caller.
inline int sort_before(int v, threadgroup int* totals, uint simd, uint lane) {
  int sum = v;
  UNROLL for (ushort distance = 1; distance < 32; distance *= 2) {
    const int other = simd_shuffle_up(sum, distance);
    if (lane >= distance) sum += other;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 31) totals[simd] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  int before = 0;
  for (int i = 0; i < int(simd); i++) before += totals[i];
  return before + sum - v;
}

// experts_sort, with one threadgroup. Every simdgroup counts the experts in its section of the pairs. From the counts
// follow the places where it puts its pairs. order [T * SORT_TOP] gets the pairs; tiles [SORT_TILES][4] get (expert,
// first, end, 0) as indices into order, with expert -1 behind the last tile.
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
  TG_ARRAY(int, totals, SORT_SIMDS);
  const int pairs = step[STEP_TOKENS] * SORT_TOP;
  const int stretch = (pairs + SORT_THREADS - 1) / SORT_THREADS * 32;
  for (int i = int(thread_index); i < SORT_SIMDS * SORT_EXPERTS; i += SORT_THREADS) counts[i] = ushort(0);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  threadgroup ushort* mine = counts + simd * SORT_EXPERTS;
  for (int pass = 0; pass < 2; pass++) {
    for (int i = 0; i < stretch; i += 32) {
      const int pair = int(simd) * stretch + i + int(lane);
      const int expert = pair < pairs ? clamp(experts[pair], 0, SORT_EXPERTS - 1) : -1;
      int rank = 0;   // among the lanes with the same expert
      int equal = 0;
      UNROLL for (int l = 0; l < 32; l++) {
        const int other = simd_shuffle(expert, ushort(l));
        equal += other == expert ? 1 : 0;
        rank += other == expert && l < int(lane) ? 1 : 0;
      }
      const int seen = expert < 0 ? 0 : int(mine[expert]);
      if (pass == 1 && expert >= 0) order[starts[expert] + seen + rank] = pair;
      simdgroup_barrier(mem_flags::mem_threadgroup);
      if (expert >= 0 && rank == equal - 1) mine[expert] = ushort(seen + equal);
      simdgroup_barrier(mem_flags::mem_threadgroup);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (pass == 1) return;
    const int expert = int(thread_index);
    int count = 0;
    if (expert < SORT_EXPERTS) {
      for (int s = 0; s < SORT_SIMDS; s++) {
        const int n = int(counts[s * SORT_EXPERTS + expert]);
        counts[s * SORT_EXPERTS + expert] = ushort(count);
        count += n;
      }
    }
    const int start = sort_before(count, totals, simd, lane);
    const int parts = (count + SORT_ROWS - 1) / SORT_ROWS;
    const int tile = sort_before(parts, totals, simd, lane);
    if (expert < SORT_EXPERTS) starts[expert] = start;
    for (int i = 0; i < parts; i++) {
      device int* to = tiles + (tile + i) * 4;
      to[0] = expert;
      to[1] = start + i * SORT_ROWS;
      to[2] = min(start + (i + 1) * SORT_ROWS, start + count);
      to[3] = 0;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (thread_index == SORT_THREADS - 1) totals[0] = tile + parts;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = totals[0] + int(thread_index); i < SORT_TILES; i += SORT_THREADS) {
      device int* to = tiles + i * 4;
      to[0] = -1;
      to[1] = 0;
      to[2] = 0;
      to[3] = 0;
    }
  }
}

// experts_combine: y [T, N] = sum over a token's pairs of scores [T, SORT_TOP] * x [T, SORT_TOP, N], plus extra. The
// grid is (columns, tokens).
[[max_total_threads_per_threadgroup(COMBINE_THREADS)]]
kernel void experts_combine(device const float* x [[buffer(0)]],
                            device const float* scores [[buffer(1)]],
                            device const float* extra [[buffer(2)]],  // absent: x
                            device float* y [[buffer(3)]],
                            device const int* step [[buffer(4)]],
                            uint3 group [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]]) {
  const int token = int(group.y);
  const int column = int(group.x * COMBINE_THREADS + thread_index) * 4;
  if (token >= step[STEP_TOKENS] || column >= COMBINE_N) return;
  float4 sum = float4(0.0f, 0.0f, 0.0f, 0.0f);
#if COMBINE_RESIDUAL
  sum = *(device const float4*)(extra + long(token) * COMBINE_N + column);
#endif
  UNROLL for (int j = 0; j < SORT_TOP; j++) {
    const int pair = token * SORT_TOP + j;
    sum = sum + *(device const float4*)(x + long(pair) * COMBINE_N + column) * scores[pair];
  }
  *(device float4*)(y + long(token) * COMBINE_N + column) = sum;
}
