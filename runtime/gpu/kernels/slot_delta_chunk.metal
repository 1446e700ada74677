#include "port.h"
#include "delta_chunk.h"
#include "slots.h"
// The gated delta rule in chunks (delta_chunk.metal) in a call of several sequences, each with its state in a slot of a
// pool. Chunks begin at the first row of each sequence that has more than SLOT_MOST rows; slot_delta.metal takes the
// others. CHUNK_SLOTS is 1.
//
// In many calls all sequences decode, so none has chunks. Both kernels find that out with one read per thread. They read
// entries before port_wait, since the host writes entries before the call.
#define PORT_WAITS
#ifndef SLOT_MOST
#define SLOT_MOST 8
#endif
#ifndef SLOT_SCANS
#define SLOT_SCANS 1  // sequences that slot_delta_scan takes through their chunks at the same time
#endif
#define SLOT_WORDS ((SLOT_ENTRIES + 31) / 32)

// Returns the number of the lowest bit that is set.
inline int slot_lowest(uint bits) { return int(popcount(~bits & (bits - 1u))); }

// Writes to starts the number of tokens of the chunk that begins at each of the rows [window, window + LENGTH), 0 where
// none begins. Every chunk but the last one of a sequence has LENGTH rows, so each sequence has at most one beginning
// there.
inline void slot_chunks(device const int* entries, int window, int tid, threadgroup int* starts) {
  for (int from = 0; from < SLOT_ENTRIES; from += CHUNK_SOLVERS) {
    const int n = from + tid;
    const int begin = n < SLOT_ENTRIES ? entries[3 * n] : 0;
    const int count = n < SLOT_ENTRIES ? entries[3 * n + 1] : 0;
    const int start = begin + (max(window - begin, 0) + CHUNK_LENGTH - 1) / CHUNK_LENGTH * CHUNK_LENGTH;
    if (from == 0) {
      if (tid < CHUNK_LENGTH) starts[tid] = 0;
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (count > SLOT_MOST && start < min(window + CHUNK_LENGTH, begin + count)) starts[start - window] = min(begin + count - start, CHUNK_LENGTH);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Writes to chunked [WORDS] one bit for each sequence. It is set if the sequence has more than SLOT_MOST rows.
inline void slot_chunked(device const int* entries, int tid, threadgroup uint* chunked) {
  for (int word = tid / 32; word < SLOT_WORDS; word += CHUNK_SCANNERS / 32) {
    const int n = word * 32 + tid % 32;
    const uint bits = port_ballot(n < SLOT_ENTRIES && entries[3 * min(n, SLOT_ENTRIES - 1) + 1] > SLOT_MOST);
    if (tid % 32 == 0) chunked[word] = bits;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Like delta_solve, for chunks that begin in LENGTH rows of the call. m is [T][HEADS][LENGTH]: a chunk's rows of M
// begin at its first token. grid: T / LENGTH, HEADS
[[max_total_threads_per_threadgroup(CHUNK_SOLVERS)]]
kernel void slot_delta_solve(device const float* q [[buffer(0)]],
                             device const float* k [[buffer(1)]],
                             device const float* v [[buffer(2)]],
                             device const float* g [[buffer(3)]],
                             device const float* beta [[buffer(4)]],
                             device const int* entries [[buffer(5)]],
                             device float* sums [[buffer(6)]],
                             device float* w [[buffer(7)]],
                             device float* u [[buffer(8)]],
                             device float* m [[buffer(9)]],
                             uint3 tg [[threadgroup_position_in_grid]],
                             uint tid [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, ks, CHUNK_LENGTH * CHUNK_LD);
  TG_ARRAY(float, qs, CHUNK_LENGTH * CHUNK_LD);
  TG_ARRAY(float, a, CHUNK_LENGTH * CHUNK_LENGTH);
  TG_ARRAY(float, logs, CHUNK_LENGTH);
  TG_ARRAY(float, rates, CHUNK_LENGTH);
  TG_ARRAY(float, decays, CHUNK_LENGTH);
  TG_ARRAY(int, starts, CHUNK_LENGTH);
  const int head = int(tg.y);
  const int window = int(tg.x) * CHUNK_LENGTH;
  slot_chunks(entries, window, int(tid), starts);
  port_wait();
  for (int row = 0; row < CHUNK_LENGTH; row += 32) {
    for (uint bits = port_ballot(starts[row + int(tid) % 32] > 0); bits != 0u; bits &= bits - 1u) {
      const int at = row + slot_lowest(bits), first = window + at;
      chunk_solve(q, k, v, g, beta, sums, w, u, m + (long(first) * CHUNK_HEADS + head) * CHUNK_LENGTH, first, starts[at], head, int(tid), ks, qs, a, logs, rates, decays);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
}

// As delta_scan: a threadgroup takes COLUMNS rows of a head's state through all chunks of a sequence. Of the sequences that have
// chunks it takes every SCANS-th one. entries [ENTRIES][3]; writes [T]; state, a pool of slots [HEADS][DV][DK]. No sequence
// reads a slot that another one writes.
// grid: DV / COLUMNS, HEADS, SCANS
[[max_total_threads_per_threadgroup(CHUNK_SCANNERS)]]
kernel void slot_delta_scan(device const float* q [[buffer(0)]],
                            device const float* k [[buffer(1)]],
                            device const float* sums [[buffer(2)]],
                            device const float* w [[buffer(3)]],
                            device const float* u [[buffer(4)]],
                            device const float* m [[buffer(5)]],
                            device const int* entries [[buffer(6)]],
                            device const int* writes [[buffer(7)]],
                            device CHUNK_STATE_T* state [[buffer(8)]],
                            device float* y [[buffer(9)]],
                            uint3 tg [[threadgroup_position_in_grid]],
                            uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, s, CHUNK_DK * SCAN_LD);  // [DK][COLUMNS]
  TG_ARRAY(float, us, CHUNK_LENGTH * SCAN_LD);
  TG_ARRAY(float, staged, CHUNK_BUFFERS * SCAN_STAGE);
  TG_ARRAY(float, gates, 4 * CHUNK_LENGTH);
  TG_ARRAY(uint, chunked, SLOT_WORDS);
  const int tid = int(thread_index % CHUNK_SCANNERS);
  const int head = int(tg.y);
  const int column0 = int(tg.x) * CHUNK_COLUMNS;
  const int key_head = head / (CHUNK_HEADS / CHUNK_K_HEADS);
  state += (long(head) * CHUNK_DV + column0) * CHUNK_DK;
  slot_chunked(entries, tid, chunked);
  port_wait();
  int before = 0;  // sequences with chunks so far
  for (int word = 0; word < SLOT_WORDS; word++) {
    for (uint bits = chunked[word]; bits != 0u; bits &= bits - 1u) {
      if (before++ % SLOT_SCANS != int(tg.z)) continue;
      const int n = word * 32 + slot_lowest(bits);
      const long first = entries[3 * n];
      const int count = entries[3 * n + 1];
      const int slot = entries[3 * n + 2];
      scan_source from;
      from.q = q + first * CHUNK_Q_TOKEN + key_head * CHUNK_DK;
      from.k = k + first * CHUNK_K_TOKEN + key_head * CHUNK_DK;
      from.w = w + (first * CHUNK_HEADS + head) * CHUNK_DK;
      from.m = m + (first * CHUNK_HEADS + head) * CHUNK_LENGTH;
      from.last = count - 1;
      const long values = (first * CHUNK_HEADS + head) * CHUNK_DV + column0;
      chunk_scan(from, sums + first * CHUNK_HEADS + head, u + values, y + values, state + long(max(slot, 0)) * CHUNK_STATE, writes + first, state, slot < 0, count, tid,
                 s, us, staged, gates);
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
}
