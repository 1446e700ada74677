// One step of a causal depthwise convolution for a channel: code that conv.metal, slot_conv.metal, matvec.metal and
// stream.metal share.
#ifndef CONV_SLOTS
#define CONV_SLOTS 0           // sequences that the table of a call of several has room for, 0: there is one state
#endif
#ifndef CONV_CHANNELS
#define CONV_CHANNELS 64
#define CONV_TAPS 4
#define CONV_X_TOKEN 64        // elements from one token to the next
#define CONV_CHANNEL_FIRST 0   // the state is [CHANNELS][TAPS], not [TAPS][CHANNELS]
#define CONV_SILU 1
#define CONV_RESET 0           // the state counts as zeros 1: where reset[0] is not 0, 2: at position 0
#define CONV_TOKENS 16         // of a thread of conv_tokens
#define CONV_STATE_T float
#define CONV_WEIGHT_T float
#endif
#if CONV_CHANNEL_FIRST
#define CONV_STATE_AT(row, c) ((c) * CONV_TAPS + (row))
#else
#define CONV_STATE_AT(row, c) ((row) * CONV_CHANNELS + (c))
#endif

inline bool conv_reset(device const uchar* reset, device const int* step) {
#if CONV_RESET == 1
  return reset[0] != 0;
#elif CONV_RESET == 2
  return step[STEP_POSITION] == 0;
#else
  return false;
#endif
}

// Reads the rows of a channel's state.
inline void conv_rows(device const CONV_STATE_T* state, int c, thread float* row) {
  UNROLL for (int j = 0; j < CONV_TAPS; j++) row[j] = float(state[CONV_STATE_AT(j, c)]);
}

inline void conv_taps(device const CONV_WEIGHT_T* w, int c, thread float* taps) {
  UNROLL for (int j = 0; j < CONV_TAPS; j++) taps[j] = float(w[c * CONV_TAPS + j]);
}

// Returns the output for the rows in row.
inline float conv_output(thread const float* row, thread const float* taps) {
  float sum = 0.0f;
  UNROLL for (int j = 0; j < CONV_TAPS; j++) sum += taps[j] * row[j];
#if CONV_SILU
  return port_silu(sum);
#else
  return sum;
#endif
}

// Drops the first row and appends x.
inline void conv_shift(thread float* row, float x) {
  UNROLL for (int j = 0; j + 1 < CONV_TAPS; j++) row[j] = row[j + 1];
  row[CONV_TAPS - 1] = x;
}

// Sets the rows to zeros if the state is reset.
inline void conv_clear(bool zero, thread float* row) {
  UNROLL for (int j = 0; j < CONV_TAPS; j++) row[j] = zero ? 0.0f : row[j];
}

inline void conv_write(device CONV_STATE_T* next, int c, thread const float* row) {
  UNROLL for (int j = 0; j < CONV_TAPS; j++) next[CONV_STATE_AT(j, c)] = CONV_STATE_T(row[j]);
}

// Which slots of a pool the state of a call's only row is read from and written to, negative for none; or, with one
// state, 0 for both.
struct conv_place {
  int from;
  int to;
  bool absent;  // the row is of no sequence
};

// Finds the state. With CONV_SLOTS the tables say which slots it is in (ir/ragged.go describes them).
inline void conv_find(device const uchar* reset, device const int* entries, device const int* writes, device const int* step, thread conv_place& at) {
#if CONV_SLOTS
  // No read waits for another one.
  const int to = writes[0];
  at.from = -1;
  at.absent = true;
  for (int n = 0; n < CONV_SLOTS; n++) {
    const int rows = entries[3 * n + 1];
    const int slot = entries[3 * n + 2];
    at.from = rows > 0 ? slot : at.from;
    at.absent = at.absent && rows <= 0;
  }
  at.to = at.absent ? -1 : to;
#else
  at.from = conv_reset(reset, step) ? -1 : 0;
  at.to = 0;
  at.absent = false;
#endif
}

// Returns the first element of a slot in a pool; that of slot 0 for none.
inline long conv_slot(int slot) {
#if CONV_SLOTS
  return long(max(slot, 0)) * (CONV_CHANNELS * CONV_TAPS);
#else
  return 0;
#endif
}

// Does the step of a channel: x becomes the last row of the state, which is written to next; the output is written to
// y, 0 for a row of no sequence.
inline void conv_advance(device CONV_STATE_T* next, int c, thread const conv_place& at, float x, thread float* row, thread const float* taps, device float* y) {
  conv_clear(at.from < 0, row);
  conv_shift(row, x);
  if (at.to >= 0) conv_write(next + conv_slot(at.to), c, row);
  y[c] = at.absent ? 0.0f : conv_output(row, taps);
}
