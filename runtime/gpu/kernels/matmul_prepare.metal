#include "port.h"
#include "lanes.h"
// Brings rows of x, f32 [T, K], into the form that tiled products read, after a norm if there is one. The forms are: rows of
// bf16; rows of f32 (PREPARE_EXACT); rows of bf16 in the order of lanes (PREPARE_LANES, see lanes.h); and rows of bf16 packed in
// tiles (PREPARE_EIGHTS, see matmul_packed.metal).
//
// A thread takes eight columns of a row. In packed rows it takes four such eights, which stand together there. It reads all of
// them before it uses any, and writes pieces of 16 bytes. Without a norm the grid is (blocks of rows, blocks of columns). With a
// norm a threadgroup has all columns of its rows, and a thread takes PREPARE_EACH times as many columns.
#define PORT_WAITS
#ifndef PREPARE_K          // a multiple of 8
#define PREPARE_K 256
#endif
#ifndef PREPARE_EXACT
#define PREPARE_EXACT 0
#endif
#ifndef PREPARE_NORM       // as MATVEC_NORM
#define PREPARE_NORM 0
#endif
#ifndef PREPARE_EPS
#define PREPARE_EPS 1e-6f
#endif
#ifndef PREPARE_EIGHTS     // a tile has so many times eight rows; 0 for rows that are not packed
#define PREPARE_EIGHTS 0
#endif
#ifndef PREPARE_LANES      // rows in the order of lanes
#define PREPARE_LANES 0
#endif
#ifndef PREPARE_ROWS       // rows of a threadgroup: a power of two, at most 32
#define PREPARE_ROWS 1
#endif
#ifndef PREPARE_EACH       // items of a row that a thread takes
#define PREPARE_EACH 1
#endif
#ifndef PREPARE_THREADS    // a multiple of 32
#define PREPARE_THREADS 128
#endif
#if PREPARE_NORM == 1
#define PREPARE_NORM_T bfloat
#else
#define PREPARE_NORM_T float
#endif
#if PREPARE_EXACT
#define PREPARE_T float
#else
#define PREPARE_T bfloat
#endif
#define PREPARE_WEIGHTED (PREPARE_NORM == 1 || PREPARE_NORM == 2)
#define PREPARE_RUNS (PREPARE_EIGHTS ? 4 : 1)               // eights of columns that a thread takes at a time: an item
#define PREPARE_ITEMS (PREPARE_K / 8 / PREPARE_RUNS)        // items of a row
#define PREPARE_WIDTH (PREPARE_THREADS / PREPARE_ROWS)      // items of a row that a threadgroup takes at a time
#define PREPARE_SIMDS (PREPARE_THREADS / 32)

// Returns the first column of eight number run of an item.
inline int prepare_column(int item, int run) { return PREPARE_EIGHTS ? lanes_column(item, run) : item * 8; }

// Writes an item of a row.
inline void prepare_write(device PREPARE_T* y, int row, int item, thread const float v[PREPARE_RUNS][8]) {
#if PREPARE_EXACT
  device float4* to = (device float4*)(y + long(row) * PREPARE_K + item * 8);
  UNROLL for (int i = 0; i < 2; i++) to[i] = float4(v[0][4 * i], v[0][4 * i + 1], v[0][4 * i + 2], v[0][4 * i + 3]);
#elif PREPARE_EIGHTS
  lanes_pack(y, row, item, PREPARE_K, PREPARE_EIGHTS, v[0]);
#else
  uint4 piece;
  UNROLL for (int i = 0; i < 4; i++) piece[i] = PREPARE_LANES ? port_pack_bf16(v[0][i], v[0][i + 4]) : port_pack_bf16(v[0][2 * i], v[0][2 * i + 1]);
  *(device uint4*)(y + long(row) * PREPARE_K + (PREPARE_LANES ? lanes_place(item * 8) : item * 8)) = piece;
#endif
}

// Returns the factor of a norm for a row, 1 / RMS. squares is the sum of the squares of the elements of the row that the thread has.
// All threads call it.
inline float prepare_factor(float squares, int thread_index, threadgroup float* partial) {
  UNROLL for (ushort distance = PREPARE_ROWS; distance < 32; distance *= 2) squares += simd_shuffle_xor(squares, distance);
  if (thread_index % 32 < PREPARE_ROWS) partial[thread_index / 32 * PREPARE_ROWS + thread_index % 32] = squares;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float total = 0.0f;
  UNROLL for (int i = 0; i < PREPARE_SIMDS; i++) total += partial[i * PREPARE_ROWS + thread_index % PREPARE_ROWS];
  return precise::rsqrt(total / float(PREPARE_K) + PREPARE_EPS);
}

// grid: T / ROWS, K / 8 / RUNS / WIDTH, or 1 with a norm
[[max_total_threads_per_threadgroup(PREPARE_THREADS)]]
kernel void matmul_prepare(device const float* x [[buffer(0)]],
                           device const PREPARE_NORM_T* norm [[buffer(1)]],  // absent: x
                           device PREPARE_T* y [[buffer(2)]],
                           device const int* step [[buffer(3)]],
                           uint3 group [[threadgroup_position_in_grid]],
                           uint thread_index [[thread_index_in_threadgroup]]) {
#if PREPARE_NORM
  TG_ARRAY(float, partial, PREPARE_SIMDS * PREPARE_ROWS);
#endif
  const int first = int(group.y) * PREPARE_WIDTH + int(thread_index) / PREPARE_ROWS;
#if PREPARE_WEIGHTED
  float weights[PREPARE_EACH][PREPARE_RUNS][8];
  UNROLL for (int e = 0; e < PREPARE_EACH; e++) {
    UNROLL for (int r = 0; r < PREPARE_RUNS; r++) {
      const int column = prepare_column(min(first + e * PREPARE_WIDTH, PREPARE_ITEMS - 1), r);
      UNROLL for (int i = 0; i < 8; i += 4) {
        const float4 w = port_four(norm + column + i);
        UNROLL for (int j = 0; j < 4; j++) weights[e][r][i + j] = w[j];
      }
    }
  }
#endif
  const int tokens = step[STEP_TOKENS];  // the host wrote it before the sequence
  port_wait();
  const int row = int(group.x) * PREPARE_ROWS + int(thread_index) % PREPARE_ROWS;
  if (int(group.x) * PREPARE_ROWS >= tokens) return;
  device const float* from = x + long(min(row, tokens - 1)) * PREPARE_K;
  float v[PREPARE_EACH][PREPARE_RUNS][8];
  UNROLL for (int e = 0; e < PREPARE_EACH; e++) {
    UNROLL for (int r = 0; r < PREPARE_RUNS; r++) {
      const int item = first + e * PREPARE_WIDTH;
      UNROLL for (int i = 0; i < 8; i += 4) {
        float4 f = float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (item < PREPARE_ITEMS) f = *(device const float4*)(from + prepare_column(item, r) + i);
        UNROLL for (int j = 0; j < 4; j++) v[e][r][i + j] = f[j];
      }
    }
  }
#if PREPARE_NORM
  float squares = 0.0f;
  UNROLL for (int i = 0; i < PREPARE_EACH * PREPARE_RUNS * 8; i++) squares += v[i / 8 / PREPARE_RUNS][i / 8 % PREPARE_RUNS][i % 8] * v[i / 8 / PREPARE_RUNS][i / 8 % PREPARE_RUNS][i % 8];
  const float factor = prepare_factor(squares, int(thread_index), partial);
#endif
  UNROLL for (int e = 0; e < PREPARE_EACH; e++) {
#if PREPARE_NORM
    UNROLL for (int i = 0; i < PREPARE_RUNS * 8; i++) {
      v[e][i / 8][i % 8] *= factor;
#if PREPARE_WEIGHTED
      v[e][i / 8][i % 8] *= weights[e][i / 8][i % 8];
#endif
    }
#endif
    const int item = first + e * PREPARE_WIDTH;
    if (row < tokens && item < PREPARE_ITEMS) prepare_write(y, row, item, v[e]);
  }
}
