// One token of the gated delta rule: code that delta.metal and slot_delta.metal share.
#define PORT_WAITS
#ifndef DELTA_DK
#define DELTA_DK 64           // a multiple of 32
#define DELTA_DV 64
#define DELTA_K_HEADS 1
#define DELTA_HEADS 1
#define DELTA_Q_TOKEN 64      // elements from one token to the next; heads follow each other
#define DELTA_K_TOKEN 64
#define DELTA_V_TOKEN 64
#define DELTA_G_TOKEN 1
#define DELTA_BETA_TOKEN 1
#define DELTA_QK_NORM 0       // q and k are RMS-normalized first
#define DELTA_EPS 1e-6f
#define DELTA_GATES 0         // g and β are made of their inputs first: see delta_gates
#define DELTA_RESET 0         // the state counts as zeros 1: where reset[0] is not 0, 2: at position 0
#define DELTA_EARLY 0         // no kernel of the sequence writes state and reset before: they are read before port_wait
#define DELTA_LANES 8         // 8 or 16 that share a row
#define DELTA_ROWS 1
#define DELTA_SIMDGROUPS 4
#define DELTA_STATE_T float
#define DELTA_WEIGHT_T float
#define DELTA_GATE_T float
#endif
#define DELTA_EACH (DELTA_DK / DELTA_LANES)
#define DELTA_BLOCK (DELTA_ROWS * (32 / DELTA_LANES) * DELTA_SIMDGROUPS)  // rows of a threadgroup

inline float delta_decay(float x, float bias, float rate) {
  x += bias;
  return precise::exp(rate * (max(x, 0.0f) + port_log1p(precise::exp(-fabs(x)))));
}

inline void delta_put(device float* p, float4 v) { *(device float4*)p = v; }
inline void delta_put(device bfloat* p, float4 v) {
  UNROLL for (int j = 0; j < 4; j++) p[j] = bfloat(v[j]);
}

// A lane's columns out of DK: groups of four, LANES groups apart.
template <typename T>
inline void delta_columns(device const T* from, int lane, thread float* out) {
  UNROLL for (int i = 0; i < DELTA_EACH; i += 4) {
    const float4 v = port_four(from + i * DELTA_LANES + 4 * lane);
    UNROLL for (int j = 0; j < 4; j++) out[i + j] = v[j];
  }
}

// Returns the sum over the lanes of a row.
inline float delta_sum(float v) {
  UNROLL for (ushort distance = 1; distance < DELTA_LANES; distance *= 2) v += simd_shuffle_xor(v, distance);
  return v;
}

// Reads a lane's share of the state, for rows from row0 on. Rows past the last one read it again and are not written.
inline void delta_state(device const DELTA_STATE_T* state, int row0, int lane, thread float* s) {
  UNROLL for (int r = 0; r < DELTA_ROWS; r++) delta_columns(state + min(row0 + r, DELTA_DV - 1) * DELTA_DK, lane, s + r * DELTA_EACH);
}

// The addresses of the operands of a rule.
struct delta_source {
  device const float* q;
  device const float* k;
  device const float* v;
  device const float* g;
  device const float* beta;
};

// A lane's share of the weights of the norms and of the gates, where the rule has them.
struct delta_weights {
  float keys[DELTA_EACH];
  float queries[DELTA_EACH];
  float bias;
  float rate;
};

inline void delta_read_weights(device const DELTA_WEIGHT_T* q_weight, device const DELTA_WEIGHT_T* k_weight, device const DELTA_GATE_T* bias,
                               device const DELTA_GATE_T* rate, int head, int lane, thread delta_weights& to) {
#if DELTA_QK_NORM
  delta_columns(k_weight, lane, to.keys);
  delta_columns(q_weight, lane, to.queries);
#endif
#if DELTA_GATES
  to.bias = float(bias[head]);
  to.rate = float(rate[head]);
#endif
}

// Computes token t: its result goes to y, and s becomes the state after it.
inline void delta_token(thread const delta_source& from, thread const delta_weights& weights, long t, int head, int row0, int lane, thread float* s, device float* y) {
  const int key_head = head / (DELTA_HEADS / DELTA_K_HEADS);
  float keys[DELTA_EACH];
  float queries[DELTA_EACH];
  float values[DELTA_ROWS];
  // All reads come before the first branch, which computes with some of them.
  float decay = from.g[t * DELTA_G_TOKEN + head];
  float write = from.beta[t * DELTA_BETA_TOKEN + head];
  delta_columns(from.k + t * DELTA_K_TOKEN + key_head * DELTA_DK, lane, keys);
  delta_columns(from.q + t * DELTA_Q_TOKEN + key_head * DELTA_DK, lane, queries);
  UNROLL for (int r = 0; r < DELTA_ROWS; r++) values[r] = from.v[t * DELTA_V_TOKEN + head * DELTA_DV + min(row0 + r, DELTA_DV - 1)];
#if DELTA_GATES
  decay = delta_decay(decay, weights.bias, weights.rate);
  write = port_sigmoid(write);
#endif
  float key_factor = 1.0f;
  float query_factor = 1.0f;
#if DELTA_QK_NORM
  {
    float kk = 0.0f;
    float qq = 0.0f;
    UNROLL for (int i = 0; i < DELTA_EACH; i++) {
      kk += keys[i] * keys[i];
      qq += queries[i] * queries[i];
      keys[i] *= weights.keys[i];
      queries[i] *= weights.queries[i];
    }
    key_factor = precise::rsqrt(delta_sum(kk) / float(DELTA_DK) + DELTA_EPS);
    query_factor = precise::rsqrt(delta_sum(qq) / float(DELTA_DK) + DELTA_EPS);
  }
#endif
  float kq = 0.0f;
  UNROLL for (int i = 0; i < DELTA_EACH; i++) kq += keys[i] * queries[i];
  kq = delta_sum(kq) * key_factor;
  UNROLL for (int r = 0; r < DELTA_ROWS; r++) {
    float memory = 0.0f;
    float sum = 0.0f;
    UNROLL for (int i = 0; i < DELTA_EACH; i++) {
      memory += s[r * DELTA_EACH + i] * keys[i];
      sum += s[r * DELTA_EACH + i] * queries[i];
    }
    const float delta = (values[r] - delta_sum(memory) * (decay * key_factor)) * write;
    sum = (delta_sum(sum) * decay + kq * delta) * query_factor;
    const float factor = key_factor * delta;
    UNROLL for (int i = 0; i < DELTA_EACH; i++) s[r * DELTA_EACH + i] = s[r * DELTA_EACH + i] * decay + keys[i] * factor;
    if (lane == 0 && row0 + r < DELTA_DV) y[(t * DELTA_HEADS + head) * DELTA_DV + row0 + r] = sum;
  }
}

// Writes a lane's share of the state.
inline void delta_store(device DELTA_STATE_T* next, int row0, int lane, thread const float* s) {
  UNROLL for (int r = 0; r < DELTA_ROWS; r++) {
    if (row0 + r < DELTA_DV) {
      device DELTA_STATE_T* to = next + (row0 + r) * DELTA_DK + 4 * lane;
      UNROLL for (int i = 0; i < DELTA_EACH; i += 4) {
        delta_put(to + i * DELTA_LANES, float4(s[r * DELTA_EACH + i], s[r * DELTA_EACH + i + 1], s[r * DELTA_EACH + i + 2], s[r * DELTA_EACH + i + 3]));
      }
    }
  }
}
