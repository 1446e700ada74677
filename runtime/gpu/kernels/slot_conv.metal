#include "port.h"
#include "conv.h"
#include "slots.h"
// The convolution of conv.metal in a call of several sequences, each with its state in a slot of a pool. ir/ragged.go
// describes the tables.
//
// One thread for each channel of a sequence reads and writes states, and computes the first SLOT_HEAD rows of the
// sequence, which depend on its state. So a state may be read and written in the same slot. Later rows depend on x
// alone. They are computed by threads that take CONV_TOKENS rows of the call each, of whichever sequences these are.
#define PORT_WAITS
#define SLOT_SIZE (CONV_CHANNELS * CONV_TAPS)
#if CONV_TAPS > CONV_TOKENS
#define SLOT_HEAD CONV_TAPS
#else
#define SLOT_HEAD CONV_TOKENS
#endif

// Rounds x as a state stores it. So it does not matter whether a row is in the same call as the ones after it.
inline float slot_stored(float v) { return float(CONV_STATE_T(v)); }

// Reads the rows of the call before row r, which are of the same sequence.
inline void slot_window(device const float* x, int r, int c, thread float* row) {
  UNROLL for (int j = 0; j < CONV_TAPS; j++) row[j] = slot_stored(x[long(r - CONV_TAPS + j) * CONV_X_TOKEN + c]);
}

// Computes the output of row r. v is the channel of x in this row. It becomes the last row of the window.
inline void slot_output(float v, int r, int c, thread float* row, thread const float* taps, bool present, device float* y) {
  conv_shift(row, v);
  const float out = conv_output(row, taps);
  if (present) y[long(r) * CONV_CHANNELS + c] = out;
  row[CONV_TAPS - 1] = slot_stored(row[CONV_TAPS - 1]);
}

// Does the work of a sequence that uses its state. The sequence has count rows, from first on; its state is in slot from.
// x and writes of a row are read before the results of the previous row are written.
inline void slot_sequence(device const float* x, thread const float* taps, int first, int count, int from, device const int* writes, device CONV_STATE_T* state,
                          device float* y, int c, bool present, int lane) {
  const int head = min(count, SLOT_HEAD);
  float row[CONV_TAPS];
  conv_rows(state + long(max(from, 0)) * SLOT_SIZE, c, row);
  float v = x[long(first) * CONV_X_TOKEN + c];
  int to = writes[first];
  conv_clear(from < 0, row);
  for (int t = 0; t < head; t++) {
    const int next = first + min(t + 1, head - 1);
    const float next_v = x[long(next) * CONV_X_TOKEN + c];
    const int next_to = writes[next];
    slot_output(v, first + t, c, row, taps, present, y);
    if (to >= 0 && present) conv_write(state + long(to) * SLOT_SIZE, c, row);
    v = next_v;
    to = next_to;
  }
  for (int t = head; t < count; t += 32) {
    // Few rows write a state: a simdgroup checks 32 of them at a time.
    if (!simd_any(t + lane < count && writes[first + min(t + lane, count - 1)] >= 0)) continue;
    for (int r = first + t; r < first + min(t + 32, count); r++) {
      const int slot = writes[r];
      if (slot < 0) continue;
      slot_window(x, r + 1, c, row);
      if (present) conv_write(state + long(slot) * SLOT_SIZE, c, row);
    }
  }
}

// x [T][..]; w [CHANNELS][TAPS]; entries [ENTRIES][3]; writes [T]; state, a pool of slots each of which is that of conv_step; y [T][CHANNELS],
// zeros in the rows of no sequence. No sequence reads a slot that another one writes.
// grid: CHANNELS / 128, min(ENTRIES, T) + T / TOKENS
[[max_total_threads_per_threadgroup(128)]]
kernel void slot_conv(device const float* x [[buffer(0)]],
                      device const CONV_WEIGHT_T* w [[buffer(1)]],
                      device const int* entries [[buffer(2)]],
                      device const int* writes [[buffer(3)]],
                      device CONV_STATE_T* state [[buffer(4)]],
                      device float* y [[buffer(5)]],
                      device const int* step [[buffer(6)]],
                      uint3 tg [[threadgroup_position_in_grid]],
                      uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(int, begins, CONV_TOKENS);  // the first row of each row's sequence, -1 for a row of none
  const int tid = int(thread_index);
  const bool present = int(tg.x) * 128 + tid < CONV_CHANNELS;
  const int c = min(int(tg.x) * 128 + tid, CONV_CHANNELS - 1);
  // The host wrote step and entries before the sequence.
  const int rows = step[STEP_TOKENS];
  const int sequences = min(SLOT_ENTRIES, rows);  // that have rows, at most
  float taps[CONV_TAPS];
  conv_taps(w, c, taps);
  if (int(tg.y) < sequences) {
    int n = int(tg.y), at = entries[3 * n], count = entries[3 * n + 1], from = entries[3 * n + 2];
    port_wait();
    while (true) {
      if (count > 0) slot_sequence(x, taps, at, count, from, writes, state, y, c, present, tid % 32);
      n += sequences;
      if (n >= SLOT_ENTRIES) return;
      at = entries[3 * n];
      count = entries[3 * n + 1];
      from = entries[3 * n + 2];
    }
  }
  port_wait();
  const int first = (int(tg.y) - sequences) * CONV_TOKENS;
  const int end = min(first + CONV_TOKENS, rows);
  if (first >= end) return;
  slot_begins(entries, first, end, tid, 128, begins);
  float row[CONV_TAPS];
  bool filled = false;
  for (int r = first; r < end; r++) {
    const int begin = begins[r - first];
    if (begin < 0 && present) y[long(r) * CONV_CHANNELS + c] = 0.0f;
    const bool ours = begin >= 0 && r - begin >= SLOT_HEAD;
    if (ours) {
      if (!filled) slot_window(x, r, c, row);
      slot_output(x[long(r) * CONV_X_TOKEN + c], r, c, row, taps, present, y);
    }
    filled = ours;
  }
}
