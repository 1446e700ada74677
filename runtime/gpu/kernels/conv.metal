#include "port.h"
#include "conv.h"
// Causal depthwise convolution over the last CONV_TAPS tokens: y[t] = activation(Σ_j w[c][j] · s[t + 1 + j]), where s
// is the rows of the state followed by those of x. The last CONV_TAPS rows of s become the state.

// For a few tokens: results and new state in one kernel. x [T][..]; w [CHANNELS][TAPS]; reset [1]; state; y
// [T][CHANNELS]; next, the new state, which may be state itself. grid: CHANNELS / 128
[[max_total_threads_per_threadgroup(128)]]
kernel void conv_step(device const float* x [[buffer(0)]],
                      device const CONV_WEIGHT_T* w [[buffer(1)]],
                      device const uchar* reset [[buffer(2)]],  // absent: w
                      device const CONV_STATE_T* state [[buffer(3)]],
                      device float* y [[buffer(4)]],
                      device CONV_STATE_T* next [[buffer(5)]],
                      device const int* step [[buffer(6)]],
                      uint i [[thread_position_in_grid]]) {
  const int c = int(i);
  if (c >= CONV_CHANNELS) return;
  const bool zero = conv_reset(reset, step);
  float row[CONV_TAPS];
  float taps[CONV_TAPS];
  conv_rows(state, c, row);
  conv_taps(w, c, taps);
  conv_clear(zero, row);
  const int tokens = step[STEP_TOKENS];
  for (int t = 0; t < tokens; t++) {
    conv_shift(row, x[long(t) * CONV_X_TOKEN + c]);
    y[long(t) * CONV_CHANNELS + c] = conv_output(row, taps);
  }
  conv_write(next, c, row);
}

// For many tokens: the results alone. A thread computes CONV_TOKENS tokens of a channel. conv_state follows. grid:
// CHANNELS / 128, T / TOKENS
[[max_total_threads_per_threadgroup(128)]]
kernel void conv_tokens(device const float* x [[buffer(0)]],
                        device const CONV_WEIGHT_T* w [[buffer(1)]],
                        device const uchar* reset [[buffer(2)]],  // absent: w
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
  }
  conv_taps(w, c, taps);
  for (int t = first; t < end; t++) {
    conv_shift(row, x[long(t) * CONV_X_TOKEN + c]);
    y[long(t) * CONV_CHANNELS + c] = conv_output(row, taps);
  }
}

// Writes the new state after conv_tokens. grid: CHANNELS / 128
[[max_total_threads_per_threadgroup(128)]]
kernel void conv_state(device const float* x [[buffer(0)]],
                       device const uchar* reset [[buffer(1)]],  // absent: x
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
  conv_write(state, c, row);
}
