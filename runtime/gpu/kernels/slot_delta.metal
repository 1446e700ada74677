#include "port.h"
#include "delta.h"
#include "slots.h"
// The gated delta rule of delta.metal, token by token, in a call of several sequences, each with its state in a slot of
// a pool. A threadgroup takes some rows of a head's state through all rows of the call that belong to a sequence. So a
// state may be read and written in the same slot. slot_delta_chunk.metal is the form for sequences with many rows.
#ifndef SLOT_MOST
#define SLOT_MOST 8  // sequences with more rows are left to another kernel
#endif
#ifndef SLOT_ONE
#define SLOT_ONE 0  // the call has one row
#endif
#define SLOT_ROWS 32  // rows of the call in which a threadgroup looks for rows of no sequence
#define SLOT_SIZE (DELTA_HEADS * DELTA_DV * DELTA_DK)

// q, k, v, g, beta, the weights of norms and gates: as of delta_step, of T rows; entries [ENTRIES][3]; writes [T]; state, a pool of
// slots [HEADS][DV][DK]; y [T][HEADS][DV], zeros in the rows of no sequence. No sequence reads a slot that another one writes.
// grid: DV / BLOCK, HEADS, min(ENTRIES, T) + T / ROWS; with ONE, whose threadgroups see for themselves to a row of no sequence, 1
[[max_total_threads_per_threadgroup(DELTA_SIMDGROUPS * 32)]]
kernel void slot_delta(device const float* q [[buffer(0)]],
                       device const float* k [[buffer(1)]],
                       device const float* v [[buffer(2)]],
                       device const float* g [[buffer(3)]],
                       device const float* beta [[buffer(4)]],
                       device const DELTA_WEIGHT_T* q_weight [[buffer(5)]],  // absent: v
                       device const DELTA_WEIGHT_T* k_weight [[buffer(6)]],  // absent: v
                       device const DELTA_GATE_T* bias [[buffer(7)]],  // absent: v
                       device const DELTA_GATE_T* rate [[buffer(8)]],  // absent: v
                       device const int* entries [[buffer(9)]],
                       device const int* writes [[buffer(10)]],
                       device DELTA_STATE_T* state [[buffer(11)]],
                       device float* y [[buffer(12)]],
                       device const int* step [[buffer(13)]],
                       uint3 tg [[threadgroup_position_in_grid]],
                       uint sg [[simdgroup_index_in_threadgroup]],
                       uint thread_index [[thread_index_in_simdgroup]]) {
#if !SLOT_ONE
  TG_ARRAY(int, begins, SLOT_ROWS);
#endif
  const int head = int(tg.y);
  const int lane = int(thread_index) % DELTA_LANES;
  const int block = int(tg.x) * DELTA_BLOCK;
  const int row0 = block + (int(sg) * (32 / DELTA_LANES) + int(thread_index) / DELTA_LANES) * DELTA_ROWS;
#if SLOT_ONE
  const int sequences = 1;
  bool none = true;
#else
  const int rows = step[STEP_TOKENS];
  const int sequences = min(SLOT_ENTRIES, rows);  // that have rows, at most
  if (int(tg.z) >= sequences) {
    port_wait();
    const int first = (int(tg.z) - sequences) * SLOT_ROWS;
    const int end = min(first + SLOT_ROWS, rows);
    if (first >= end) return;
    const int tid = int(sg) * 32 + int(thread_index);
    slot_begins(entries, first, end, tid, DELTA_SIMDGROUPS * 32, begins);
    const int width = min(DELTA_BLOCK, DELTA_DV - block);
    for (int i = tid; i < (end - first) * width; i += DELTA_SIMDGROUPS * 32) {
      const int r = i / width;
      if (begins[r] < 0) y[(long(first + r) * DELTA_HEADS + head) * DELTA_DV + block + i % width] = 0.0f;
    }
    return;
  }
#endif
  state += long(head) * DELTA_DV * DELTA_DK;
  delta_source from;
  from.q = q;
  from.k = k;
  from.v = v;
  from.g = g;
  from.beta = beta;
  float s[DELTA_ROWS * DELTA_EACH];
#if DELTA_EARLY
  delta_state(state + long(max(entries[3 * int(tg.z) + 2], 0)) * SLOT_SIZE, row0, lane, s);
#endif
  delta_weights weights;
  delta_read_weights(q_weight, k_weight, bias, rate, head, lane, weights);
  port_wait();
  for (int n = int(tg.z); n < SLOT_ENTRIES; n += sequences) {
    const int first = entries[3 * n];
    const int count = entries[3 * n + 1];
    const int slot = entries[3 * n + 2];
    if (count <= 0 || count > SLOT_MOST) continue;
#if SLOT_ONE
    none = false;
#endif
    if (!DELTA_EARLY || n >= sequences) delta_state(state + long(max(slot, 0)) * SLOT_SIZE, row0, lane, s);
    UNROLL for (int i = 0; i < DELTA_ROWS * DELTA_EACH; i++) s[i] = slot < 0 ? 0.0f : s[i];
    for (int r = first; r < first + count; r++) {
      delta_token(from, weights, r, head, row0, lane, s, y);
      // Rounds as a state stores it. So it does not matter which rows are in the same call.
      UNROLL for (int i = 0; i < DELTA_ROWS * DELTA_EACH; i++) s[i] = float(DELTA_STATE_T(s[i]));
      const int to = writes[r];
      if (to >= 0) delta_store(state + long(to) * SLOT_SIZE, row0, lane, s);
    }
  }
#if SLOT_ONE
  UNROLL for (int r = 0; r < DELTA_ROWS; r++) {
    if (none && lane == 0 && row0 + r < DELTA_DV) y[head * DELTA_DV + row0 + r] = 0.0f;
  }
#endif
}
