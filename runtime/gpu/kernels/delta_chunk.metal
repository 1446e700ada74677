#include "port.h"
// The gated delta rule (delta.metal) for many tokens, in chunks of CHUNK_LENGTH (Yang, Kautz and Hatamizadeh,
// arXiv:2412.06464, section 3.3; the WY form of Yang et al., arXiv:2406.06484). With Γ_t the product of
// g_1 … g_t in a chunk and S the state before it,
//
//   u_t + Σ_{i<t} A_ti u_i = β_t (v_t − Γ_t S k_t),   A_ti = β_t (Γ_t/Γ_i) (k_t · k_i)
//   y_t = Γ_t S q_t + Σ_{i≤t} M_ti u_i,               M_ti = (Γ_t/Γ_i) (q_t · k_i)
//   S' = Γ_C S + Σ_t (Γ_C/Γ_t) u_t k_tᵀ
//
// delta_solve computes M and, for all chunks at once, u = U − W Sᵀ by forward substitution: (I + A) W has the
// rows β_t Γ_t k_t, (I + A) U the rows β_t v_t. delta_scan then goes from chunk to chunk. Quotients of Γ are
// made of sums of logarithms, so that none of them is 0/0. Everything is fp32.
#ifndef CHUNK_LENGTH
#define CHUNK_LENGTH 32       // 32 or 64
#define CHUNK_DK 64           // a multiple of 32
#define CHUNK_DV 64           // a multiple of CHUNK_COLUMNS
#define CHUNK_K_HEADS 1
#define CHUNK_HEADS 1
#define CHUNK_Q_TOKEN 64      // elements from one token to the next, multiples of 4; heads follow each other
#define CHUNK_K_TOKEN 64
#define CHUNK_V_TOKEN 64
#define CHUNK_G_TOKEN 1
#define CHUNK_BETA_TOKEN 1
#define CHUNK_COLUMNS 16      // rows of a head's state that a threadgroup of delta_scan keeps
#define CHUNK_RESET 0
#define CHUNK_STATE_T float
#endif
#define CHUNK_SLICE (1024 / CHUNK_LENGTH)  // columns of q and k that are multiplied at a time
#define CHUNK_LD (CHUNK_SLICE + 1)
#define CHUNK_SOLVERS 256     // threads of delta_solve
#define CHUNK_BLOCKS (CHUNK_LENGTH * CHUNK_LENGTH / 4 / CHUNK_SOLVERS)  // 2x2 blocks of A and M of a thread
#define CHUNK_SCANNERS (CHUNK_LENGTH * CHUNK_COLUMNS / 4)               // threads of delta_scan
#define CHUNK_STRETCH 4  // rows of the substitution between two barriers
#define CHUNK_SLD (CHUNK_COLUMNS + 4)

// q, k, v, g, beta: as for delta_step, q and k normalized; sums [T][HEADS] of log g in a chunk;
// w [T][HEADS][DK]; u [T][HEADS][DV]; m [chunks][HEADS][LENGTH][LENGTH], 0 above the diagonal.
// grid: chunks, HEADS
[[max_total_threads_per_threadgroup(CHUNK_SOLVERS)]]
kernel void delta_solve(device const float* q [[buffer(0)]],
                        device const float* k [[buffer(1)]],
                        device const float* v [[buffer(2)]],
                        device const float* g [[buffer(3)]],
                        device const float* beta [[buffer(4)]],
                        device float* sums [[buffer(5)]],
                        device float* w [[buffer(6)]],
                        device float* u [[buffer(7)]],
                        device float* m [[buffer(8)]],
                        device const int* step [[buffer(9)]],
                        uint3 tg [[threadgroup_position_in_grid]],
                        uint tid [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, ks, CHUNK_LENGTH * CHUNK_LD);
  TG_ARRAY(float, qs, CHUNK_LENGTH * CHUNK_LD);
  TG_ARRAY(float, a, CHUNK_LENGTH * CHUNK_LENGTH);
  TG_ARRAY(float, logs, CHUNK_LENGTH);
  TG_ARRAY(float, rates, CHUNK_LENGTH);
  TG_ARRAY(float, decays, CHUNK_LENGTH);     // Γ_t
  const int head = int(tg.y);
  const int first = int(tg.x) * CHUNK_LENGTH;
  const int count = min(step[STEP_TOKENS] - first, CHUNK_LENGTH);
  if (count <= 0) return;
  const int key_head = head / (CHUNK_HEADS / CHUNK_K_HEADS);
  q += long(first) * CHUNK_Q_TOKEN + key_head * CHUNK_DK;
  k += long(first) * CHUNK_K_TOKEN + key_head * CHUNK_DK;
  v += long(first) * CHUNK_V_TOKEN + head * CHUNK_DV;
  w += (long(first) * CHUNK_HEADS + head) * CHUNK_DK;
  u += (long(first) * CHUNK_HEADS + head) * CHUNK_DV;
  m += (long(tg.x) * CHUNK_HEADS + head) * (CHUNK_LENGTH * CHUNK_LENGTH);

  // tokens past the end: g is 1, β is 0
  if (int(tid) < CHUNK_LENGTH) {
    const long t = first + int(tid);
    const bool present = int(tid) < count;
    logs[tid] = present ? precise::log(max(g[t * CHUNK_G_TOKEN + head], 1.2e-38f)) : 0.0f;
    rates[tid] = present ? beta[t * CHUNK_BETA_TOKEN + head] : 0.0f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  if (int(tid) < CHUNK_LENGTH) {
    for (int i = 0; i <= int(tid); i++) sum += logs[i];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (int(tid) < CHUNK_LENGTH) {
    logs[tid] = sum;
    decays[tid] = precise::exp(sum);
    if (int(tid) < count) sums[long(first + int(tid)) * CHUNK_HEADS + head] = sum;
  }

  float kk[CHUNK_BLOCKS][4];
  float qk[CHUNK_BLOCKS][4];
  UNROLL for (int b = 0; b < CHUNK_BLOCKS; b++) {
    UNROLL for (int i = 0; i < 4; i++) kk[b][i] = qk[b][i] = 0.0f;
  }
  for (int slice = 0; slice < CHUNK_DK; slice += CHUNK_SLICE) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = int(tid); i < CHUNK_LENGTH * CHUNK_SLICE; i += CHUNK_SOLVERS) {
      const int t = i / CHUNK_SLICE;
      const int c = i % CHUNK_SLICE;
      const bool present = t < count;
      ks[t * CHUNK_LD + c] = present ? k[long(t) * CHUNK_K_TOKEN + slice + c] : 0.0f;
      qs[t * CHUNK_LD + c] = present ? q[long(t) * CHUNK_Q_TOKEN + slice + c] : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL for (int b = 0; b < CHUNK_BLOCKS; b++) {
      const int block = int(tid) + b * CHUNK_SOLVERS;
      const int t = block / (CHUNK_LENGTH / 2) * 2;
      const int i = block % (CHUNK_LENGTH / 2) * 2;
      if (i <= t) {
        for (int c = 0; c < CHUNK_SLICE; c++) {
          const float k0 = ks[i * CHUNK_LD + c];
          const float k1 = ks[(i + 1) * CHUNK_LD + c];
          const float t0 = ks[t * CHUNK_LD + c];
          const float t1 = ks[(t + 1) * CHUNK_LD + c];
          const float q0 = qs[t * CHUNK_LD + c];
          const float q1 = qs[(t + 1) * CHUNK_LD + c];
          kk[b][0] += t0 * k0;
          kk[b][1] += t0 * k1;
          kk[b][2] += t1 * k0;
          kk[b][3] += t1 * k1;
          qk[b][0] += q0 * k0;
          qk[b][1] += q0 * k1;
          qk[b][2] += q1 * k0;
          qk[b][3] += q1 * k1;
        }
      }
    }
  }
  UNROLL for (int b = 0; b < CHUNK_BLOCKS; b++) {
    UNROLL for (int j = 0; j < 4; j++) {
      const int block = int(tid) + b * CHUNK_SOLVERS;
      const int t = block / (CHUNK_LENGTH / 2) * 2 + j / 2;
      const int i = block % (CHUNK_LENGTH / 2) * 2 + j % 2;
      const float ratio = i <= t ? precise::exp(logs[t] - logs[i]) : 0.0f;
      a[t * CHUNK_LENGTH + i] = i < t ? rates[t] * ratio * kk[b][j] : 0.0f;
      m[t * CHUNK_LENGTH + i] = ratio * qk[b][j];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  // one column of W or U to a thread
  for (int first_column = 0; first_column < CHUNK_DK + CHUNK_DV; first_column += CHUNK_SOLVERS) {
    const int column = min(first_column + int(tid), CHUNK_DK + CHUNK_DV - 1);
    const bool is_w = column < CHUNK_DK;
    const int c = is_w ? column : column - CHUNK_DK;
    device const float* from = is_w ? k + c : v + c;
    device float* to = is_w ? w + c : u + c;
    const int from_token = is_w ? CHUNK_K_TOKEN : CHUNK_V_TOKEN;
    const int to_token = is_w ? CHUNK_HEADS * CHUNK_DK : CHUNK_HEADS * CHUNK_DV;
    float x[CHUNK_LENGTH];
    UNROLL for (int t = 0; t < CHUNK_LENGTH; t++) {
      float r = 0.0f;
      if (t < count) r = rates[t] * (is_w ? decays[t] : 1.0f) * from[long(t) * from_token];
      UNROLL for (int i = 0; i < t; i++) r -= a[t * CHUNK_LENGTH + i] * x[i];
      x[t] = r;
      if (t < count && first_column + int(tid) < CHUNK_DK + CHUNK_DV) to[long(t) * to_token] = r;
      // Loads of later rows are not to be hoisted over this: there are more of them than registers.
      if (t % CHUNK_STRETCH == CHUNK_STRETCH - 1) simdgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
}

// q, k: as for delta_solve; sums, w, u, m: what it made; reset [1]; state [HEADS][DV][DK]; y [T][HEADS][DV].
// grid: DV / COLUMNS, HEADS
[[max_total_threads_per_threadgroup(CHUNK_SCANNERS)]]
kernel void delta_scan(device const float* q [[buffer(0)]],
                       device const float* k [[buffer(1)]],
                       device const float* sums [[buffer(2)]],
                       device const float* w [[buffer(3)]],
                       device const float* u [[buffer(4)]],
                       device const float* m [[buffer(5)]],
                       device const uchar* reset [[buffer(6)]],
                       device CHUNK_STATE_T* state [[buffer(7)]],
                       device float* y [[buffer(8)]],
                       device const int* step [[buffer(9)]],
                       uint3 tg [[threadgroup_position_in_grid]],
                       uint tid [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, s, CHUNK_DK * CHUNK_SLD);  // [DK][COLUMNS]
  TG_ARRAY(float, us, CHUNK_LENGTH * CHUNK_SLD);
  TG_ARRAY(float, before, CHUNK_LENGTH);     // Γ_t
  TG_ARRAY(float, after, CHUNK_LENGTH);      // Γ_C / Γ_t
  const int head = int(tg.y);
  const int column0 = int(tg.x) * CHUNK_COLUMNS;
  const int key_head = head / (CHUNK_HEADS / CHUNK_K_HEADS);
  const int tokens = step[STEP_TOKENS];
  q += key_head * CHUNK_DK;
  k += key_head * CHUNK_DK;
  state += (long(head) * CHUNK_DV + column0) * CHUNK_DK;
#if CHUNK_RESET == 1
  const bool zero = reset[0] != 0;
#elif CHUNK_RESET == 2
  const bool zero = step[STEP_POSITION] == 0;
#else
  const bool zero = false;
#endif
  for (int i = int(tid); i < CHUNK_COLUMNS * CHUNK_DK; i += CHUNK_SCANNERS) {
    s[i % CHUNK_DK * CHUNK_SLD + i / CHUNK_DK] = zero ? 0.0f : float(state[i]);
  }
  const int t = int(tid) / (CHUNK_COLUMNS / 4);  // the token in a chunk and the columns of the thread
  const int c = int(tid) % (CHUNK_COLUMNS / 4) * 4;
  for (int first = 0; first < tokens; first += CHUNK_LENGTH) {
    const int count = min(tokens - first, CHUNK_LENGTH);
    if (int(tid) < CHUNK_LENGTH) {
      const float end = sums[long(first + count - 1) * CHUNK_HEADS + head];
      const float at = int(tid) < count ? sums[long(first + int(tid)) * CHUNK_HEADS + head] : end;
      before[tid] = precise::exp(at);
      after[tid] = precise::exp(end - at);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const long row = long(first + t) * CHUNK_HEADS + head;
    float4 out = float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 own = float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (t < count) {
      own = *(device const float4*)(u + row * CHUNK_DV + column0 + c);
      device const float4* wr = (device const float4*)(w + row * CHUNK_DK);
      device const float4* qr = (device const float4*)(q + long(first + t) * CHUNK_Q_TOKEN);
      for (int i = 0; i < CHUNK_DK / 4; i++) {
        const float4 w4 = wr[i];
        const float4 q4 = qr[i];
        UNROLL for (int j = 0; j < 4; j++) {
          const float4 sj = *(threadgroup const float4*)(s + (i * 4 + j) * CHUNK_SLD + c);
          own = own - sj * w4[j];
          out = out + sj * q4[j];
        }
      }
      out = out * before[t];
    }
    *(threadgroup float4*)(us + t * CHUNK_SLD + c) = own;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t < count) {
      device const float* mr = m + ((long(first / CHUNK_LENGTH) * CHUNK_HEADS + head) * CHUNK_LENGTH + t) * CHUNK_LENGTH;
      for (int i = 0; i <= t; i++) out = out + *(threadgroup const float4*)(us + i * CHUNK_SLD + c) * mr[i];
      *(device float4*)(y + row * CHUNK_DV + column0 + c) = out;
    }
    const float end = before[count - 1];
    for (int d = int(tid); d < CHUNK_DK; d += CHUNK_SCANNERS) {
      float4 sd[CHUNK_COLUMNS / 4];
      threadgroup float4* at = (threadgroup float4*)(s + d * CHUNK_SLD);
      UNROLL for (int j = 0; j < CHUNK_COLUMNS / 4; j++) sd[j] = at[j] * end;
      for (int i = 0; i < count; i++) {
        const float key = after[i] * k[long(first + i) * CHUNK_K_TOKEN + d];
        threadgroup const float4* from = (threadgroup const float4*)(us + i * CHUNK_SLD);
        UNROLL for (int j = 0; j < CHUNK_COLUMNS / 4; j++) sd[j] = sd[j] + from[j] * key;
      }
      UNROLL for (int j = 0; j < CHUNK_COLUMNS / 4; j++) at[j] = sd[j];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (int i = int(tid); i < CHUNK_COLUMNS * CHUNK_DK; i += CHUNK_SCANNERS) {
    state[i] = CHUNK_STATE_T(s[i % CHUNK_DK * CHUNK_SLD + i / CHUNK_DK]);
  }
}
