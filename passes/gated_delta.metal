// The gated delta rule over T tokens: S = g S; S += beta (v - S k) k^T; y = S q.
// 32 threads own one row, of index dv, of the state S[Dv][Dk] of one value head; each keeps Dk/32
// neighbouring elements in registers from the first token to the last.
// q, k: [B, T, Hk, Dk]; v, y: [B, T, Hv, Dv]; g, beta: [B, T, Hv]; state: [B, Hv, Dv, Dk].
constexpr int per_thread = Dk / 32;
const uint head = thread_position_in_grid.z;
const uint batch = head / Hv;
const uint value_head = head % Hv;
const uint key_head = value_head / (Hv / Hk);
const uint dv = thread_position_in_grid.y;
const uint first = thread_position_in_threadgroup.x * per_thread;
const size_t row = (size_t(head) * Dv + dv) * Dk + first;

float s[per_thread];
for (int i = 0; i < per_thread; ++i) {
  s[i] = float(state_in[row + i]);
}
for (int t = 0; t < T; ++t) {
  const size_t token = size_t(batch) * T + t;
  const size_t key_at = (token * Hk + key_head) * Dk + first;
  const size_t gate_at = token * Hv + value_head;
  const float decay = float(g[gate_at]);
  float keys[per_thread];
  float memory = 0.0f;
  for (int i = 0; i < per_thread; ++i) {
    keys[i] = float(k[key_at + i]);
    s[i] *= decay;
    memory += s[i] * keys[i];
  }
  memory = simd_sum(memory);
  const float delta = (float(v[gate_at * Dv + dv]) - memory) * float(beta[gate_at]);
  float sum = 0.0f;
  for (int i = 0; i < per_thread; ++i) {
    s[i] += keys[i] * delta;
    sum += s[i] * float(q[key_at + i]);
  }
  sum = simd_sum(sum);
  if (thread_index_in_simdgroup == 0) {
    y[gate_at * Dv + dv] = static_cast<InT>(sum);
  }
}
for (int i = 0; i < per_thread; ++i) {
  state_out[row + i] = static_cast<StT>(s[i]);
}
