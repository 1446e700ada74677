#include "port.h"
// Causal convolution of each channel over the last CONV_TAPS tokens: y[t] = activation(Σ_j w[c][j] · s[t + 1 + j])
// for the rows s of the state followed by those of x; the last CONV_TAPS rows become the state.
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
inline float conv_finish(float y) {
#if CONV_SILU
  return port_silu(y);
#else
  return y;
#endif
}

// For few tokens: the outputs and the state in one go. x [T][..]; w [CHANNELS][TAPS]; reset [1]; state; y [T][CHANNELS].
// grid: CHANNELS / 128
[[max_total_threads_per_threadgroup(128)]]
kernel void conv_step(device const float* x [[buffer(0)]],
                      device const CONV_WEIGHT_T* w [[buffer(1)]],
                      device const uchar* reset [[buffer(2)]],
                      device CONV_STATE_T* state [[buffer(3)]],
                      device float* y [[buffer(4)]],
                      device const int* step [[buffer(5)]],
                      uint i [[thread_position_in_grid]]) {
  const int c = int(i);
  if (c >= CONV_CHANNELS) return;
  const bool zero = conv_reset(reset, step);
  float row[CONV_TAPS];
  float taps[CONV_TAPS];
  UNROLL for (int j = 0; j < CONV_TAPS; j++) {
    row[j] = zero ? 0.0f : float(state[CONV_STATE_AT(j, c)]);
    taps[j] = float(w[c * CONV_TAPS + j]);
  }
  const int tokens = step[STEP_TOKENS];
  for (int t = 0; t < tokens; t++) {
    UNROLL for (int j = 0; j + 1 < CONV_TAPS; j++) row[j] = row[j + 1];
    row[CONV_TAPS - 1] = x[long(t) * CONV_X_TOKEN + c];
    float sum = 0.0f;
    UNROLL for (int j = 0; j < CONV_TAPS; j++) sum += taps[j] * row[j];
    y[long(t) * CONV_CHANNELS + c] = conv_finish(sum);
  }
  UNROLL for (int j = 0; j < CONV_TAPS; j++) state[CONV_STATE_AT(j, c)] = CONV_STATE_T(row[j]);
}

// For many tokens: the outputs alone. A thread takes CONV_TOKENS tokens of a channel. conv_state follows.
// grid: CHANNELS / 128, T / TOKENS
[[max_total_threads_per_threadgroup(128)]]
kernel void conv_tokens(device const float* x [[buffer(0)]],
                        device const CONV_WEIGHT_T* w [[buffer(1)]],
                        device const uchar* reset [[buffer(2)]],
                        device const CONV_STATE_T* state [[buffer(3)]],
                        device float* y [[buffer(4)]],
                        device const int* step [[buffer(5)]],
                        uint3 at [[thread_position_in_grid]]) {
  const int c = int(at.x);
  const int first = int(at.y) * CONV_TOKENS;
  const int end = min(first + CONV_TOKENS, step[STEP_TOKENS]);
  if (c >= CONV_CHANNELS || first >= end) return;
  const bool zero = conv_reset(reset, step);
  float row[CONV_TAPS];
  float taps[CONV_TAPS];
  UNROLL for (int j = 0; j < CONV_TAPS; j++) {
    const int t = first - CONV_TAPS + j;
    row[j] = t >= 0 ? x[long(t) * CONV_X_TOKEN + c] : (zero ? 0.0f : float(state[CONV_STATE_AT(t + CONV_TAPS, c)]));
    taps[j] = float(w[c * CONV_TAPS + j]);
  }
  for (int t = first; t < end; t++) {
    UNROLL for (int j = 0; j + 1 < CONV_TAPS; j++) row[j] = row[j + 1];
    row[CONV_TAPS - 1] = x[long(t) * CONV_X_TOKEN + c];
    float sum = 0.0f;
    UNROLL for (int j = 0; j < CONV_TAPS; j++) sum += taps[j] * row[j];
    y[long(t) * CONV_CHANNELS + c] = conv_finish(sum);
  }
}

// The state after conv_tokens.
// grid: CHANNELS / 128
[[max_total_threads_per_threadgroup(128)]]
kernel void conv_state(device const float* x [[buffer(0)]],
                       device const uchar* reset [[buffer(1)]],
                       device CONV_STATE_T* state [[buffer(2)]],
                       device const int* step [[buffer(3)]],
                       uint i [[thread_position_in_grid]]) {
  const int c = int(i);
  if (c >= CONV_CHANNELS) return;
  const bool zero = conv_reset(reset, step);
  const int tokens = step[STEP_TOKENS];
  float row[CONV_TAPS];
  UNROLL for (int j = 0; j < CONV_TAPS; j++) {
    const int t = tokens - CONV_TAPS + j;
    row[j] = t >= 0 ? x[long(t) * CONV_X_TOKEN + c] : (zero ? 0.0f : float(state[CONV_STATE_AT(t + CONV_TAPS, c)]));
  }
  UNROLL for (int j = 0; j < CONV_TAPS; j++) state[CONV_STATE_AT(j, c)] = CONV_STATE_T(row[j]);
}
