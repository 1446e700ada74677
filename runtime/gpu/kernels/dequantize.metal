#include "port.h"
#include "weights.h"
// Converts a stored weight [N, K] to bf16 [N, K], for a library of matrix products. A thread converts eight columns of
// a row. The grid is (rows, columns), because only its first dimension may be as large as a vocabulary.

#ifndef DEQUANTIZE_K
#define DEQUANTIZE_K 64
#endif
#ifndef DEQUANTIZE_THREADS
#define DEQUANTIZE_THREADS 64
#endif

[[max_total_threads_per_threadgroup(DEQUANTIZE_THREADS)]]
kernel void dequantize(device const uint* w [[buffer(0)]],
                       device const WEIGHT_SCALE* scales [[buffer(1)]],
                       device const WEIGHT_SCALE* biases [[buffer(2)]],
                       device uint* y [[buffer(3)]],
                       uint3 group [[threadgroup_position_in_grid]],
                       uint thread_index [[thread_index_in_threadgroup]]) {
  const int k = int(group.y * DEQUANTIZE_THREADS + thread_index) * 8;
  if (k >= DEQUANTIZE_K) return;
  float v[8];
  weight_read8(w, scales, biases, long(group.x), k, DEQUANTIZE_K, v);
  *(device uint4*)(y + (long(group.x) * DEQUANTIZE_K + k) / 2) =
      uint4(port_pack_bf16(v[0], v[1]), port_pack_bf16(v[2], v[3]), port_pack_bf16(v[4], v[5]), port_pack_bf16(v[6], v[7]));
}
