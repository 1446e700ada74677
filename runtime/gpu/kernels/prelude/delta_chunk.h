// The gated delta rule in chunks: code that delta_chunk.metal, which has the formulas, and slot_delta_chunk.metal
// share.
#ifndef CHUNK_LENGTH
#define CHUNK_LENGTH 32       // 32 or 64
#define CHUNK_DK 64           // a multiple of 32
#define CHUNK_DV 64           // a multiple of CHUNK_COLUMNS
#define CHUNK_K_HEADS 1
#define CHUNK_HEADS 1
#define CHUNK_Q_TOKEN 64      // elements from one token to the next, of q and k multiples of 4; heads follow each other
#define CHUNK_K_TOKEN 64
#define CHUNK_V_TOKEN 64
#define CHUNK_G_TOKEN 1
#define CHUNK_BETA_TOKEN 1
#define CHUNK_COLUMNS 16      // rows of a head's state that a threadgroup of delta_scan keeps: 4, 8, 16 or 32
#define CHUNK_PARTS 8         // lanes that share a tile of delta_scan's sums: 1, 2, 4 or 8
#define CHUNK_BUFFERS 1       // stages of delta_scan that have memory of their own: 1 or 2
#define CHUNK_RESET 0
#define CHUNK_STATE_T float
#endif
#ifndef CHUNK_SLOTS
#define CHUNK_SLOTS 0         // chunks begin at any row of the call, and states behind rows in the middle are kept
#endif
#define CHUNK_SLICE (1024 / CHUNK_LENGTH)  // columns of q and k that are multiplied at a time
#define CHUNK_LD (CHUNK_SLICE + 1)
#define CHUNK_SOLVERS 256     // threads of delta_solve
#define CHUNK_BLOCKS (CHUNK_LENGTH * CHUNK_LENGTH / 4 / CHUNK_SOLVERS)  // 2x2 blocks of A and M of a thread
#define CHUNK_STRETCH 4  // rows of the substitution between two barriers
#if CHUNK_SLOTS
#define CHUNK_M_ROW (CHUNK_HEADS * CHUNK_LENGTH)  // numbers from one row of M to the next, [T][HEADS][LENGTH]
#else
#define CHUNK_M_ROW CHUNK_LENGTH                  // [chunks][HEADS][LENGTH][LENGTH]
#endif

// Computes W, U and M of a chunk of count tokens, from token first on, for a head, with all threads. m is where the M
// of the chunk begins.
inline void chunk_solve(device const float* q, device const float* k, device const float* v, device const float* g, device const float* beta,
                        device float* sums, device float* w, device float* u, device float* m, int first, int count, int head, int tid,
                        threadgroup float* ks, threadgroup float* qs, threadgroup float* a, threadgroup float* logs, threadgroup float* rates,
                        threadgroup float* decays) {
  const int key_head = head / (CHUNK_HEADS / CHUNK_K_HEADS);
  q += long(first) * CHUNK_Q_TOKEN + key_head * CHUNK_DK;
  k += long(first) * CHUNK_K_TOKEN + key_head * CHUNK_DK;
  v += long(first) * CHUNK_V_TOKEN + head * CHUNK_DV;
  w += (long(first) * CHUNK_HEADS + head) * CHUNK_DK;
  u += (long(first) * CHUNK_HEADS + head) * CHUNK_DV;

  // tokens past the end get g = 1 and β = 0
  if (tid < CHUNK_LENGTH) {
    const long t = first + tid;
    const bool present = tid < count;
    logs[tid] = present ? precise::log(max(g[t * CHUNK_G_TOKEN + head], 1.2e-38f)) : 0.0f;
    rates[tid] = present ? beta[t * CHUNK_BETA_TOKEN + head] : 0.0f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  if (tid < CHUNK_LENGTH) {
    for (int i = 0; i <= tid; i++) sum += logs[i];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid < CHUNK_LENGTH) {
    logs[tid] = sum;
    decays[tid] = precise::exp(sum);
    if (tid < count) sums[long(first + tid) * CHUNK_HEADS + head] = sum;
  }

  float kk[CHUNK_BLOCKS][4];
  float qk[CHUNK_BLOCKS][4];
  UNROLL for (int b = 0; b < CHUNK_BLOCKS; b++) {
    UNROLL for (int i = 0; i < 4; i++) kk[b][i] = qk[b][i] = 0.0f;
  }
  for (int slice = 0; slice < CHUNK_DK; slice += CHUNK_SLICE) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = tid; i < CHUNK_LENGTH * CHUNK_SLICE; i += CHUNK_SOLVERS) {
      const int t = i / CHUNK_SLICE;
      const int c = i % CHUNK_SLICE;
      const bool present = t < count;
      ks[t * CHUNK_LD + c] = present ? k[long(t) * CHUNK_K_TOKEN + slice + c] : 0.0f;
      qs[t * CHUNK_LD + c] = present ? q[long(t) * CHUNK_Q_TOKEN + slice + c] : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    UNROLL for (int b = 0; b < CHUNK_BLOCKS; b++) {
      const int block = tid + b * CHUNK_SOLVERS;
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
      const int block = tid + b * CHUNK_SOLVERS;
      const int t = block / (CHUNK_LENGTH / 2) * 2 + j / 2;
      const int i = block % (CHUNK_LENGTH / 2) * 2 + j % 2;
      const float ratio = i <= t ? precise::exp(logs[t] - logs[i]) : 0.0f;
      a[t * CHUNK_LENGTH + i] = i < t ? rates[t] * ratio * kk[b][j] : 0.0f;
      if (!CHUNK_SLOTS || t < count) m[t * CHUNK_M_ROW + i] = ratio * qk[b][j];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  // a thread computes one column of W or U
  for (int first_column = 0; first_column < CHUNK_DK + CHUNK_DV; first_column += CHUNK_SOLVERS) {
    const int column = min(first_column + tid, CHUNK_DK + CHUNK_DV - 1);
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
      if (t < count && first_column + tid < CHUNK_DK + CHUNK_DV) to[long(t) * to_token] = r;
      // A barrier against hoisting: there are not enough registers to load all later rows in advance.
      if (t % CHUNK_STRETCH == CHUNK_STRETCH - 1) simdgroup_barrier(mem_flags::mem_threadgroup);
    }
  }
}

// delta_scan. A threadgroup has COLUMNS rows of a head's state in threadgroup memory, as columns of Sᵀ. The other
// factors come in stages: for a chunk, SLICE columns of q and w at a time, then SLICE columns of M, then k for some
// tokens. The next stage is loaded, with neighbouring lanes reading neighbouring elements, before the present one is
// multiplied.
//
// A thread computes tiles of 4 x 4 sums: first of tokens and columns, then of rows and columns of Sᵀ. PARTS lanes share
// a tile, and each adds a part of the summands.
#define SCAN_GROUPS (CHUNK_COLUMNS / 4)
#define CHUNK_SCANNERS (CHUNK_LENGTH / 4 * SCAN_GROUPS * CHUNK_PARTS)  // threads of delta_scan
#if CHUNK_COLUMNS < 32
#define SCAN_LD (CHUNK_COLUMNS + 4)
#else
#define SCAN_LD CHUNK_COLUMNS
#endif
#define SCAN_ROW (CHUNK_SLICE + 4)
#define SCAN_STAGE (2 * CHUNK_LENGTH * SCAN_ROW)
#if CHUNK_DK <= 32
#define SCAN_FIT 64
#elif CHUNK_DK <= 64
#define SCAN_FIT 32
#elif CHUNK_DK <= 128
#define SCAN_FIT 16
#else
#define SCAN_FIT 8
#endif
#define SCAN_KEYS (SCAN_FIT < CHUNK_LENGTH ? SCAN_FIT : CHUNK_LENGTH)  // tokens of a stage of k
#define SCAN_PRODUCTS (CHUNK_DK / CHUNK_SLICE)                        // stages of q and w
#define SCAN_MIXES (CHUNK_LENGTH / CHUNK_SLICE)                       // stages of M
#define SCAN_UPDATES (CHUNK_LENGTH / SCAN_KEYS)                       // stages of k
#define SCAN_EACH (512 / CHUNK_SCANNERS)  // vectors of four that a thread reads for a stage
#if CHUNK_PARTS >= 4
#define SCAN_KEPT 1  // tokens of a thread's tile whose sums it has at last
#else
#define SCAN_KEPT (4 / CHUNK_PARTS)
#endif
// Lanes that share a tile of the state, which has DK / 4 times GROUPS tiles.
#if CHUNK_LENGTH * CHUNK_PARTS >= 4 * CHUNK_DK
#define SCAN_SHARE 4
#elif CHUNK_LENGTH * CHUNK_PARTS >= 2 * CHUNK_DK
#define SCAN_SHARE 2
#else
#define SCAN_SHARE 1
#endif
#define SCAN_ROWS (CHUNK_SCANNERS / (SCAN_GROUPS * SCAN_SHARE))     // tiles that lie beneath each other, of all threads
#define SCAN_TILES ((CHUNK_DK / 4 + SCAN_ROWS - 1) / SCAN_ROWS)  // of a thread

// The inputs of delta_scan for a head.
struct scan_source {
  device const float* q;
  device const float* k;
  device const float* w;
  device const float* m;
  int last;  // token
};

// The scan_read functions load a thread's part of a stage of the chunk that begins at token first. For tokens past the
// end they load the last token again, since unconditional loads can all be in flight together; u is 0 there.

// Loads columns of q, and below them of w.
inline void scan_read_products(thread const scan_source& from, int first, int stage, int tid, thread float4* out) {
  UNROLL for (int e = 0; e < SCAN_EACH; e++) {
    const int i = tid + e * CHUNK_SCANNERS;
    const int t = min(first + i / (CHUNK_SLICE / 4) % CHUNK_LENGTH, from.last);
    const int c = stage * CHUNK_SLICE + i % (CHUNK_SLICE / 4) * 4;
    out[e] = port_four((i < 256 ? from.q + long(t) * CHUNK_Q_TOKEN : from.w + long(t) * (CHUNK_HEADS * CHUNK_DK)) + c);
  }
}

// Loads columns of M, which fill half of a stage.
inline void scan_read_mixes(thread const scan_source& from, int first, int stage, int tid, thread float4* out) {
#if CHUNK_SLOTS
  device const float* m = from.m + stage * CHUNK_SLICE;
#else
  device const float* m = from.m + long(first / CHUNK_LENGTH) * (CHUNK_HEADS * CHUNK_LENGTH * CHUNK_LENGTH) + stage * CHUNK_SLICE;
#endif
  UNROLL for (int e = 0; e < SCAN_EACH; e++) {
    const int i = tid + e * CHUNK_SCANNERS;
#if CHUNK_SLOTS
    const long row = min(first + i / (CHUNK_SLICE / 4), from.last);
#else
    const int row = i / (CHUNK_SLICE / 4);
#endif
    if (i < 256) out[e] = port_four(m + row * CHUNK_M_ROW + i % (CHUNK_SLICE / 4) * 4);
  }
}

// Loads the keys of some tokens.
inline void scan_read_keys(thread const scan_source& from, int first, int stage, int tid, thread float4* out) {
  UNROLL for (int e = 0; e < SCAN_EACH; e++) {
    const int i = tid + e * CHUNK_SCANNERS;
    const int t = min(first + stage * SCAN_KEYS + i / (CHUNK_DK / 4), from.last);
    out[e] = port_four(from.k + long(t) * CHUNK_K_TOKEN + i % (CHUNK_DK / 4) * 4);
  }
}

// Stores loaded rows to threadgroup memory: rows of q and w, or half as many of M.
template <int COUNT> inline void scan_put_rows(int tid, thread const float4* v, threadgroup float* to) {
  UNROLL for (int e = 0; e < SCAN_EACH; e++) {
    const int i = tid + e * CHUNK_SCANNERS;
    if (i < COUNT) *(threadgroup float4*)(to + i / (CHUNK_SLICE / 4) * SCAN_ROW + i % (CHUNK_SLICE / 4) * 4) = v[e];
  }
}

// Stores keys, each multiplied by the decay from its token to the end of the chunk.
inline void scan_put_keys(int stage, int tid, thread const float4* v, threadgroup const float* after, threadgroup float* to) {
  UNROLL for (int e = 0; e < SCAN_EACH; e++) {
    const int i = tid + e * CHUNK_SCANNERS;
    if (i < SCAN_KEYS * (CHUNK_DK / 4)) *(threadgroup float4*)(to + i * 4) = v[e] * after[stage * SCAN_KEYS + i / (CHUNK_DK / 4)];
  }
}

// Returns the memory for the next stage. With one buffer it waits until all threads are done with the stage before.
inline threadgroup float* scan_room(threadgroup float* staged, thread int& turn) {
  if (CHUNK_BUFFERS == 1) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return staged;
  }
  turn = 1 - turn;
  return staged + turn * SCAN_STAGE;
}

// Adds to the sums of tokens and columns, for q and w, the products of a stage's rows, which are LENGTH rows apart, and
// rows of s.
inline void scan_multiply(threadgroup const float* rows, threadgroup const float* s, int part, thread float4* sums) {
  rows += part * 4;
  s += part * 4 * SCAN_LD;
  UNROLL for (int i = 0; i < CHUNK_SLICE / 4 / CHUNK_PARTS; i++) {
    float4 si[4];
    UNROLL for (int j = 0; j < 4; j++) si[j] = *(threadgroup const float4*)(s + (i * CHUNK_PARTS * 4 + j) * SCAN_LD);
    UNROLL for (int r = 0; r < 8; r++) {
      const float4 x = *(threadgroup const float4*)(rows + (r / 4 * CHUNK_LENGTH + r % 4) * SCAN_ROW + i * CHUNK_PARTS * 4);
      UNROLL for (int j = 0; j < 4; j++) sums[r] = sums[r] + si[j] * x[j];
    }
  }
}

// Adds to the sums of tokens and columns the products of a stage's rows of M and u. M is 0 for later tokens, but a NaN
// of theirs must not reach earlier tokens either, so they are skipped.
inline void scan_mix(threadgroup const float* rows, threadgroup const float* u, int stage, int tile_token, int part, thread float4* sums) {
  rows += part * 4;
  u += part * 4 * SCAN_LD;
  UNROLL for (int i = 0; i < CHUNK_SLICE / 4 / CHUNK_PARTS; i++) {
    const int at = stage * CHUNK_SLICE + (i * CHUNK_PARTS + part) * 4;  // the token of the first of four rows of u
    float4 ui[4];
    UNROLL for (int j = 0; j < 4; j++) ui[j] = *(threadgroup const float4*)(u + (i * CHUNK_PARTS * 4 + j) * SCAN_LD);
    UNROLL for (int r = 0; r < 4; r++) {
      const float4 x = *(threadgroup const float4*)(rows + r * SCAN_ROW + i * CHUNK_PARTS * 4);
      UNROLL for (int j = 0; j < 4; j++) {
        if (at + j <= tile_token + r) sums[r] = sums[r] + ui[j] * x[j];
      }
    }
  }
}

inline float4 scan_of_lane(float4 v, int distance) {
  const ushort d = ushort(distance);
  return float4(simd_shuffle_xor(v.x, d), simd_shuffle_xor(v.y, d), simd_shuffle_xor(v.z, d), simd_shuffle_xor(v.w, d));
}
inline float4 scan_choose(bool first, float4 a, float4 b) {
  return float4(first ? a.x : b.x, first ? a.y : b.y, first ? a.z : b.z, first ? a.w : b.w);
}

// Returns the first row whose sum a lane has after scan_gather.
inline int scan_first(int lanes, int part) {
  return (lanes > 1 ? part % 2 * 2 : 0) + (lanes > 2 ? part / 2 % 2 : 0);
}
// Adds 4 rows over LANES lanes that are GROUPS apart. Afterwards each lane has 4 / LANES of the rows; with 8 lanes,
// pairs of lanes have the same one.
template <int LANES> inline void scan_gather(thread float4* rows, int part) {
  if (LANES > 1) {
    const bool up = part % 2 != 0;
    UNROLL for (int i = 0; i < 2; i++) rows[i] = scan_choose(up, rows[i + 2], rows[i]) + scan_of_lane(scan_choose(up, rows[i], rows[i + 2]), SCAN_GROUPS);
  }
  if (LANES > 2) {
    const bool up = part / 2 % 2 != 0;
    rows[0] = scan_choose(up, rows[1], rows[0]) + scan_of_lane(scan_choose(up, rows[0], rows[1]), 2 * SCAN_GROUPS);
  }
  if (LANES > 4) rows[0] = rows[0] + scan_of_lane(rows[0], 4 * SCAN_GROUPS);
}

// Returns log Γ at a thread's token of a chunk and at the end of the chunk.
inline float2 scan_logs(device const float* sums, int first, int last, int tid) {
  return float2(sums[long(min(first + min(tid, CHUNK_LENGTH - 1), last)) * CHUNK_HEADS], sums[long(min(first + CHUNK_LENGTH - 1, last)) * CHUNK_HEADS]);
}

// Writes the state.
inline void scan_store(threadgroup const float* s, int tid, device CHUNK_STATE_T* state) {
  for (int i = tid; i < CHUNK_COLUMNS * CHUNK_DK; i += CHUNK_SCANNERS) {
    state[i] = CHUNK_STATE_T(s[i % CHUNK_DK * SCAN_LD + i / CHUNK_DK]);
  }
}

#if CHUNK_SLOTS
#define CHUNK_STATE (CHUNK_HEADS * CHUNK_DV * CHUNK_DK)  // numbers of a slot
#define SCAN_HELD ((CHUNK_COLUMNS * CHUNK_DK + CHUNK_SCANNERS - 1) / CHUNK_SCANNERS)  // of a thread

// Writes to state the state after token at of a chunk, which is not the chunk's last token. It is computed by the same
// sum, over the tokens up to at.
inline void scan_keep(thread const scan_source& from, device const float* sums, int first, int at, threadgroup const float* s, threadgroup const float* us,
                      threadgroup const float* before, int tid, device CHUNK_STATE_T* state) {
  float held[SCAN_HELD];
  UNROLL for (int i = 0; i < SCAN_HELD; i++) {
    const int n = min(tid + i * CHUNK_SCANNERS, CHUNK_COLUMNS * CHUNK_DK - 1);
    held[i] = s[n % CHUNK_DK * SCAN_LD + n / CHUNK_DK] * before[at];
  }
  const float end = sums[long(first + at) * CHUNK_HEADS];
  for (int t = 0; t <= at; t++) {
    const float factor = precise::exp(end - sums[long(first + t) * CHUNK_HEADS]);
    UNROLL for (int i = 0; i < SCAN_HELD; i++) {
      const int n = min(tid + i * CHUNK_SCANNERS, CHUNK_COLUMNS * CHUNK_DK - 1);
      held[i] += us[t * SCAN_LD + n / CHUNK_DK] * (from.k[long(first + t) * CHUNK_K_TOKEN + n % CHUNK_DK] * factor);
    }
  }
  UNROLL for (int i = 0; i < SCAN_HELD; i++) {
    const int n = tid + i * CHUNK_SCANNERS;
    if (n < CHUNK_COLUMNS * CHUNK_DK) state[n] = CHUNK_STATE_T(held[i]);
  }
}

// Writes the states after those tokens of a chunk, except for its last one, that have a slot in writes.
inline void scan_keep_middle(thread const scan_source& from, device const float* sums, device const int* writes, int first, int count, threadgroup const float* s,
                             threadgroup const float* us, threadgroup const float* before, device CHUNK_STATE_T* pool, int tid) {
  for (int t = 0; t < count - 1; t += 32) {
    // Few tokens have one: a simdgroup checks 32 tokens at a time.
    const int mine = t + tid % 32;
    if (!simd_any(mine < count - 1 && writes[first + min(mine, count - 1)] >= 0)) continue;
    for (int at = t; at < min(t + 32, count - 1); at++) {
      const int to = writes[first + at];
      if (to >= 0) scan_keep(from, sums, first, at, s, us, before, tid, pool + long(to) * CHUNK_STATE);
    }
  }
}
#endif

// Takes the state through the chunks of count tokens, with all threads. With CHUNK_SLOTS it also writes states after
// tokens in the middle, to the slots of pool that writes names. sums, u, y and state begin at the first token, the head
// and the threadgroup's columns.
inline void chunk_scan(thread const scan_source& from, device const float* sums, device const float* u, device float* y, device const CHUNK_STATE_T* state,
#if CHUNK_SLOTS
                       device const int* writes, device CHUNK_STATE_T* pool,
#endif
                       bool zero, int tokens, int tid, threadgroup float* s, threadgroup float* us, threadgroup float* staged, threadgroup float* gates) {
  float4 fetched[SCAN_EACH];
  scan_read_products(from, 0, 0, tid, fetched);
  float2 logs = scan_logs(sums, 0, from.last, tid);
  for (int i = tid; i < CHUNK_COLUMNS * CHUNK_DK; i += CHUNK_SCANNERS) {
    s[i % CHUNK_DK * SCAN_LD + i / CHUNK_DK] = zero ? 0.0f : float(state[i]);
  }

  const int column = tid % SCAN_GROUPS * 4;
  const int part = tid / SCAN_GROUPS % CHUNK_PARTS;
  const int tile_token = tid / (SCAN_GROUPS * CHUNK_PARTS) * 4;
  const int token = tile_token + scan_first(CHUNK_PARTS, part);
  const int share = tid / SCAN_GROUPS % SCAN_SHARE;
  const int tile_row = tid / (SCAN_GROUPS * SCAN_SHARE) * 4;
  int turn = 0;
  for (int first = 0; first < tokens; first += CHUNK_LENGTH) {
    const int count = min(tokens - first, CHUNK_LENGTH);
    // The gates of the chunk before may still be in use.
    threadgroup float* before = gates + first / CHUNK_LENGTH % 2 * (2 * CHUNK_LENGTH);
    threadgroup float* after = before + CHUNK_LENGTH;
    if (tid < CHUNK_LENGTH) {
      before[tid] = precise::exp(logs.x);
      after[tid] = precise::exp(logs.y - logs.x);
    }
    logs = scan_logs(sums, first + CHUNK_LENGTH, from.last, tid);
    float4 own[SCAN_KEPT];
    UNROLL for (int i = 0; i < SCAN_KEPT; i++) {
      own[i] = port_four(u + long(min(first + token + i, from.last)) * (CHUNK_HEADS * CHUNK_DV) + column);
    }
    float4 products[8];  // with q, then with w
    UNROLL for (int i = 0; i < 8; i++) products[i] = float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int stage = 0; stage < SCAN_PRODUCTS; stage++) {
      threadgroup float* memory = scan_room(staged, turn);
      scan_put_rows<512>(tid, fetched, memory);
      if (stage + 1 < SCAN_PRODUCTS) {
        scan_read_products(from, first, stage + 1, tid, fetched);
      } else {
        scan_read_mixes(from, first, 0, tid, fetched);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      scan_multiply(memory + tile_token * SCAN_ROW, s + stage * CHUNK_SLICE * SCAN_LD + column, part, products);
    }
    scan_gather<CHUNK_PARTS>(products + 4, part);
    UNROLL for (int i = 0; i < SCAN_KEPT; i++) {
      const float4 left = scan_choose(token + i < count, own[i] - products[4 + i], float4(0.0f, 0.0f, 0.0f, 0.0f));
      if (part < 4) *(threadgroup float4*)(us + (token + i) * SCAN_LD + column) = left;
    }
    UNROLL for (int i = 0; i < 4; i++) products[i] = products[i] * before[tile_token + i];

    for (int stage = 0; stage < SCAN_MIXES; stage++) {
      threadgroup float* memory = scan_room(staged, turn);
      scan_put_rows<256>(tid, fetched, memory);
      if (stage + 1 < SCAN_MIXES) {
        scan_read_mixes(from, first, stage + 1, tid, fetched);
      } else {
        scan_read_keys(from, first, 0, tid, fetched);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      scan_mix(memory + tile_token * SCAN_ROW, us + stage * CHUNK_SLICE * SCAN_LD + column, stage, tile_token, part, products);
    }
    scan_gather<CHUNK_PARTS>(products, part);
    UNROLL for (int i = 0; i < SCAN_KEPT; i++) {
      if (part < 4 && token + i < count) *(device float4*)(y + long(first + token + i) * (CHUNK_HEADS * CHUNK_DV) + column) = products[i];
    }

#if CHUNK_SLOTS
    scan_keep_middle(from, sums, writes, first, count, s, us, before, pool, tid);
#endif
    float4 update[SCAN_TILES][4];
    UNROLL for (int i = 0; i < SCAN_TILES * 4; i++) update[i / 4][i % 4] = float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (int stage = 0; stage < SCAN_UPDATES; stage++) {
      threadgroup float* memory = scan_room(staged, turn);
      scan_put_keys(stage, tid, fetched, after, memory);
      if (stage + 1 < SCAN_UPDATES) {
        scan_read_keys(from, first, stage + 1, tid, fetched);
      } else {
        scan_read_products(from, first + CHUNK_LENGTH, 0, tid, fetched);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      UNROLL for (int i = 0; i < SCAN_KEYS; i += SCAN_SHARE) {
        const float4 ui = *(threadgroup const float4*)(us + (stage * SCAN_KEYS + i + share) * SCAN_LD + column);
        UNROLL for (int tile = 0; tile < SCAN_TILES; tile++) {
          const int row = min(tile_row + tile * SCAN_ROWS * 4, CHUNK_DK - 4);
          const float4 ki = *(threadgroup const float4*)(memory + (i + share) * CHUNK_DK + row);
          UNROLL for (int j = 0; j < 4; j++) update[tile][j] = update[tile][j] + ui * ki[j];
        }
      }
    }
    const float end = before[count - 1];
    UNROLL for (int tile = 0; tile < SCAN_TILES; tile++) {
      scan_gather<SCAN_SHARE>(update[tile], share);
      const int row = tile_row + tile * SCAN_ROWS * 4;
      UNROLL for (int j = 0; j < 4 / SCAN_SHARE; j++) {
        threadgroup float4* at = (threadgroup float4*)(s + (row + scan_first(SCAN_SHARE, share) + j) * SCAN_LD + column);
        if (row < CHUNK_DK) *at = *at * end + update[tile][j];
      }
    }
#if CHUNK_SLOTS
    if (writes[first + count - 1] >= 0) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      scan_store(s, tid, pool + long(writes[first + count - 1]) * CHUNK_STATE);
    }
#endif
  }
}
