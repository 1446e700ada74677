#include "port.h"
#include "weights.h"
#include "product.h"
#include "stream.h"
#include "ring.h"
#include "lanes.h"
#include "direct.h"
#include "epilogue.h"
// The products of matmul_direct.metal for up to 8 rows of x, with the same buffers and results that differ by roundings. Weights
// are copied to threadgroup memory through the ring of ring.h, so that they arrive at the speed of the memory, as those of a
// product of one vector do. All rows of x are in threadgroup memory, too.
//
// A threadgroup has STREAM_SIMDS simdgroups that multiply and one that copies. A simdgroup multiplies its columns of a stage with
// all rows of x. The one that copies adds up the sums of the simdgroups while these multiply the next strip; behind the last strip
// all others do.
//
// The grid is (STREAM_GRID, blocks of rows of x).
#define ROWS_TILES (STREAM_STRIP / 16)
#define ROWS_PITCH (MATMUL_K * 2 + 64)                                             // bytes from one row of x to the next, so that banks differ
#define ROWS_X (STREAM_SCALES + (STREAM_SHELVES * STREAM_SHELF + 127) / 128 * 128)  // where rows of x begin, behind what ring.h has
#define ROWS_SUMS (ROWS_X + MATMUL_BM * ROWS_PITCH)                                // float [2][SIMDS][8][SUMS_PITCH]: of two strips in turns
#define ROWS_SUMS_PITCH (STREAM_STRIP + 4)                                         // so that banks differ
#define ROWS_KEPT (STREAM_SIMDS * 8 * ROWS_SUMS_PITCH)
#define ROWS_MEMORY (ROWS_SUMS + 2 * ROWS_KEPT * 4)
#define ROWS_RESULTS (ROWS_TILES * 4)  // of a lane
#define ROWS_THREADS (STREAM_THREADS + 32)

// One weight.
struct rows_one {
  device const uint* w;
  device const WEIGHT_SCALE* scales;
  device const WEIGHT_SCALE* biases;
  device const float* extra;
  device MATMUL_OUT* y;
  void place(int at, int plane, thread stream_place& p) thread { stream_row(w, scales, biases, at, p); }
  void end(int row, int col, thread const float* out) thread { matmul_write(y, extra, row, col, out[0]); }
};

// A gated pair of weights.
struct rows_pair {
  device const uint* w[2];
  device const WEIGHT_SCALE* scales[2];
  device const WEIGHT_SCALE* biases[2];
  device MATMUL_OUT* y;
  void place(int at, int plane, thread stream_place& p) thread {
    stream_row(plane ? w[1] : w[0], plane ? scales[1] : scales[0], plane ? biases[1] : biases[0], at, p);
  }
  void end(int row, int col, thread const float* out) thread { matmul_write_glu(y, row, col, out[0], out[1]); }
};

// Starts the copies of the first count rows of x.
inline void rows_copy(device const bfloat* x, int count, int lane, threadgroup uchar* to, threadgroup port_transfer* arrived) {
  if (lane == 0) port_transfer_expect(arrived, uint(count * MATMUL_K * 2));
  simdgroup_barrier(mem_flags::mem_none);
  if (lane < count) port_transfer_shared(to + lane * ROWS_PITCH, (device const uchar*)(x + long(lane) * MATMUL_K), MATMUL_K * 2, arrived);
  simdgroup_barrier(mem_flags::mem_none);
}

// A lane's codes of 32 columns of a row, as direct.h has them.
inline void rows_codes(threadgroup const uchar* from, thread uint4* out) {
  UNROLL for (int i = 0; i < DIRECT_QUADS; i++) out[i] = ((threadgroup const uint4*)from)[i];
}

// Adds to sums [2][TILES][4], of which either half is a part of the sums, the products of a simdgroup's columns of a stage with
// count rows of x, whose columns of the stage begin at x.
template <int PLANES>
inline void rows_multiply(threadgroup const uchar* stage, threadgroup const uchar* shelf, threadgroup const uchar* x, int count, int segment, int simd, int lane, thread float* sums) {
  UNROLL for (int own = 0; own < STREAM_OWN; own++) {
    const int chunk = simd * STREAM_OWN + own;
    uint4 v[4];
    threadgroup const uchar* from = x + min(lane / 4, count - 1) * ROWS_PITCH + chunk * 256 + lane % 4 * 16;
    UNROLL for (int word = 0; word < 4; word++) v[word] = *(threadgroup const uint4*)(from + word * 64);
    const int at = chunk * 128 + lane % 4 * 32;
    threadgroup const WEIGHT_SCALE* scales = (threadgroup const WEIGHT_SCALE*)shelf + lane / 4 * STREAM_GROUPS + (segment * STREAM_COLUMNS + at) / WEIGHT_GROUP;
    UNROLL for (int tile = 0; tile < ROWS_TILES; tile++) {
      uint4 codes[2][DIRECT_QUADS];
      bfloat scale[2];
      bfloat bias[2];
      UNROLL for (int h = 0; h < 2; h++) {
        const int eight = ring_eight<PLANES>(2 * tile + h);
        rows_codes(stage + (lane / 4 + eight) * STREAM_PITCH + at * WEIGHT_BITS / 8, codes[h]);
        scale[h] = scales[eight * STREAM_GROUPS];
        bias[h] = WEIGHT_BIASES ? scales[(STREAM_STRIP + eight) * STREAM_GROUPS] : bfloat(float(scale[h]) * -float(1 << (WEIGHT_BITS - 1)));
      }
      UNROLL for (int word = 0; word < 4; word++) {
        const uint4 a = direct_numbers(codes[0], word, scale[0], bias[0]);
        const uint4 b = direct_numbers(codes[1], word, scale[1], bias[1]);
        UNROLL for (int u = 0; u < 4; u += 2) {
          port_mma_bf16(sums + u / 2 * ROWS_RESULTS + tile * 4, a[u], b[u], a[u + 1], b[u + 1], v[word][u], v[word][u + 1]);
        }
      }
    }
  }
}

// Stores a simdgroup's sums of a strip, and sets them to zero.
inline void rows_keep(thread float* sums, int simd, int lane, threadgroup float* kept) {
  UNROLL for (int i = 0; i < ROWS_RESULTS; i++) {
    const int tile = i / 4, e = i % 4;
    kept[(simd * 8 + lane % 4 * 2 + e % 2) * ROWS_SUMS_PITCH + tile * 16 + e / 2 * 8 + lane / 4] = sums[i] + sums[ROWS_RESULTS + i];
    sums[i] = 0.0f;
    sums[ROWS_RESULTS + i] = 0.0f;
  }
}

// Adds up the simdgroups' sums of a strip and gives them to the product, with this many threads.
template <int PLANES, class Product>
inline void rows_finish(thread Product& product, thread const stream_strip& strip, int row0, int count, int thread_index, int threads, threadgroup const float* kept) {
  for (int i = thread_index; i < count * (STREAM_STRIP / PLANES); i += threads) {
    const int row = i / (STREAM_STRIP / PLANES), r = i % (STREAM_STRIP / PLANES);
    if (r >= strip.count) continue;
    float out[PLANES];
    UNROLL for (int p = 0; p < PLANES; p++) {
      threadgroup const float* sums = kept + row * ROWS_SUMS_PITCH + (PLANES == 1 ? r : r / 8 * 16 + p * 8 + r % 8);
      out[p] = 0.0f;
      UNROLL for (int s = 0; s < STREAM_SIMDS; s++) out[p] += sums[s * 8 * ROWS_SUMS_PITCH];
    }
    product.end(row0 + row, strip.at + r, out);
  }
}

// Runs a product of a block of rows of x.
template <int PLANES, class Product>
inline void rows_run(thread Product& product, uint3 group, int thread_index, device const bfloat* x, device const int* step, threadgroup uchar* memory, threadgroup port_transfer* arrived) {
  static_assert(PLANES != STREAM_PLANES || ROWS_MEMORY <= STREAM_BYTES, "STREAM_BYTES");
  static_assert(STREAM_STRIP % 16 == 0 && STREAM_AHEAD < STREAM_STAGES, "STREAM_STRIP and STREAM_STAGES");
  static_assert(STREAM_OWN * STREAM_SIMDS * 128 == STREAM_COLUMNS && STREAM_SEGMENTS * STREAM_COLUMNS == MATVEC_K, "STREAM_COLUMNS");
  const int row0 = int(group.y) * MATMUL_BM;
  const int count = min(step[STEP_TOKENS] - row0, MATMUL_BM);
  if (count <= 0) return;
  x += long(row0) * MATMUL_K;
  const int lane = thread_index % 32;
  const int simd = simd_broadcast_first(thread_index / 32);  // as a compiler then knows, lanes do not part
  const bool copies = simd == STREAM_SIMDS;
  const int most = STREAM_STRIP / PLANES;
  stream_strip strip;  // that is multiplied
  strip.at = stream_first(int(group.x));
  strip.end = min(stream_first(int(group.x) + 1), STREAM_ALL);
  strip.number = 0;
  stream_look(strip, most);
  stream_strip next = strip;  // that is copied
  int next_segment = 0;
  int segment = 0;
  float sums[2 * ROWS_RESULTS];
  UNROLL for (int i = 0; i < 2 * ROWS_RESULTS; i++) sums[i] = 0.0f;
  threadgroup uchar* rows = memory + ROWS_X;
  threadgroup float* kept = (threadgroup float*)(memory + ROWS_SUMS);
  if (copies && lane == 0) port_transfer_init(arrived, STREAM_STAGES + 1);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  UNROLL for (int i = 0; i < STREAM_AHEAD; i++) {
    if (next.at < next.end) {
      if (copies) ring_start<PLANES>(product, next, next_segment, i, lane, memory, arrived);
      ring_step(next, next_segment, most);
    }
  }
  int slot = 0;
  int round = 0;
  int odd = 0;  // which part of kept the strip has
  // Turn -1 is the warm-up of ring.h, with what happens to be in memory.
  int turn = group.x != ~0u ? -1 : 0;
  NOUNROLL for (; strip.at < strip.end; turn++) {
    const bool rehearsal = turn < 0;
    if (turn == 0) {
      port_wait();
      if (copies) rows_copy(x, count, lane, rows, arrived + STREAM_STAGES);
      UNROLL for (int i = STREAM_AHEAD; i < STREAM_STAGES; i++) {
        if (next.at < next.end) {
          if (copies) ring_start<PLANES>(product, next, next_segment, i, lane, memory, arrived);
          ring_step(next, next_segment, most);
        }
      }
    }
#if !PORT_TRANSFERS
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    const bool ends = rehearsal || segment == STREAM_SEGMENTS - 1;
    if (!copies) {
      if (!rehearsal) port_transfer_wait(arrived + slot, uint(round));
      if (turn == 0) port_transfer_wait(arrived + STREAM_STAGES, 0);
      rows_multiply<PLANES>(memory + (rehearsal ? STREAM_STAGES - 1 : slot) * STREAM_STAGE, ring_shelf(memory, rehearsal ? STREAM_SHELVES - 1 : strip.number),
                            rows + segment * STREAM_COLUMNS * 2, count, segment, simd, lane, sums);
      if (ends) rows_keep(sums, simd, lane, kept + odd * ROWS_KEPT);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (rehearsal) continue;
    const stream_strip done = strip;
    ring_step(strip, segment, most);
    if (next.at < next.end) {  // to the stage that this turn has read
      if (copies) ring_start<PLANES>(product, next, next_segment, slot, lane, memory, arrived);
      ring_step(next, next_segment, most);
    }
    slot++;
    if (slot == STREAM_STAGES) {
      slot = 0;
      round++;
    }
    if (!ends) continue;
    const bool last = strip.at >= strip.end;
    if (copies != last) rows_finish<PLANES>(product, done, row0, count, last ? thread_index : lane, last ? STREAM_THREADS : 32, kept + odd * ROWS_KEPT);
    odd = 1 - odd;
  }
}

// y [T, N] = x W^T; x [T, K] in the order of lanes.
// grid: GRID, T / BM
// arguments: matmul
[[max_total_threads_per_threadgroup(PORT_BOUND(ROWS_THREADS, STREAM_ROOM))]]
kernel void matmul_stream(device const uint* w [[buffer(0)]],
                          device const WEIGHT_SCALE* scales [[buffer(1)]],
                          device const WEIGHT_SCALE* biases [[buffer(2)]],
                          device const bfloat* x [[buffer(3)]],
                          device const float* extra [[buffer(4)]],
                          device MATMUL_OUT* y [[buffer(5)]],
                          device const int* step [[buffer(6)]],
                          uint3 group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, STREAM_BYTES);
  TG_ARRAY(port_transfer, arrived, STREAM_STAGES + 1);
  rows_one product = {w, scales, biases, extra, y};
  rows_run<1>(product, group, int(thread_index), x, step, memory, arrived);
}

// y [T, N] = activation(x gate^T) * (x up^T); x [T, K] in the order of lanes.
// grid: GRID, T / BM
// arguments: matmul_glu
[[max_total_threads_per_threadgroup(PORT_BOUND(ROWS_THREADS, STREAM_ROOM))]]
kernel void matmul_stream_glu(device const uint* w0 [[buffer(0)]],
                              device const WEIGHT_SCALE* scales0 [[buffer(1)]],
                              device const WEIGHT_SCALE* biases0 [[buffer(2)]],
                              device const uint* w1 [[buffer(3)]],
                              device const WEIGHT_SCALE* scales1 [[buffer(4)]],
                              device const WEIGHT_SCALE* biases1 [[buffer(5)]],
                              device const bfloat* x [[buffer(6)]],
                              device MATMUL_OUT* y [[buffer(7)]],
                              device const int* step [[buffer(8)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint thread_index [[thread_index_in_threadgroup]]) {
  TG_MEMORY(memory, STREAM_BYTES);
  TG_ARRAY(port_transfer, arrived, STREAM_STAGES + 1);
  rows_pair product = {{w0, w1}, {scales0, scales1}, {biases0, biases1}, y};
  rows_run<2>(product, group, int(thread_index), x, step, memory, arrived);
}
