#include "port.h"
#include "delta_chunk.h"
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
  chunk_solve(q, k, v, g, beta, sums, w, u, m + (long(tg.x) * CHUNK_HEADS + head) * (CHUNK_LENGTH * CHUNK_LENGTH), first, count, head, int(tid), ks, qs, a, logs,
              rates, decays);
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
                       device const uchar* reset [[buffer(6)]],  // absent: q
                       device CHUNK_STATE_T* state [[buffer(7)]],
                       device float* y [[buffer(8)]],
                       device const int* step [[buffer(9)]],
                       uint3 tg [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]]) {
  TG_ARRAY(float, s, CHUNK_DK * SCAN_LD);  // [DK][COLUMNS]
  TG_ARRAY(float, us, CHUNK_LENGTH * SCAN_LD);
  TG_ARRAY(float, staged, CHUNK_BUFFERS * SCAN_STAGE);
  TG_ARRAY(float, gates, 4 * CHUNK_LENGTH);  // Γ_t and Γ_C / Γ_t of a chunk, and of the one after it
  const int tid = int(thread_index % CHUNK_SCANNERS);  // which tells compilers its range
  const int head = int(tg.y);
  const int column0 = int(tg.x) * CHUNK_COLUMNS;
  const int key_head = head / (CHUNK_HEADS / CHUNK_K_HEADS);
  const int tokens = step[STEP_TOKENS];
  scan_source from;
  from.q = q + key_head * CHUNK_DK;
  from.k = k + key_head * CHUNK_DK;
  from.w = w + head * CHUNK_DK;
  from.m = m + head * (CHUNK_LENGTH * CHUNK_LENGTH);
  from.last = max(tokens - 1, 0);
  sums += head;
  u += head * CHUNK_DV + column0;
  y += head * CHUNK_DV + column0;
  state += (long(head) * CHUNK_DV + column0) * CHUNK_DK;
#if CHUNK_RESET == 1
  const bool zero = reset[0] != 0;
#elif CHUNK_RESET == 2
  const bool zero = step[STEP_POSITION] == 0;
#else
  const bool zero = false;
#endif
  chunk_scan(from, sums, u, y, state, zero, tokens, tid, s, us, staged, gates);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  scan_store(s, tid, state);
}
