// The kernels of the conformance test. Entries for CUDA and the emulator stand at the end, written by hand.

struct Count {
  uint n;
};

[[max_total_threads_per_threadgroup(64)]]
kernel void copy_words(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]], constant Count& p [[buffer(2)]],
                       uint i [[thread_position_in_grid]]) {
  if (i < p.n) y[i] = x[i];
}
[[max_total_threads_per_threadgroup(64)]]
kernel void add_words(device const uint* x [[buffer(0)]], device const uint* y [[buffer(1)]], device uint* z [[buffer(2)]],
                      constant Count& p [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  if (i < p.n) z[i] = x[i] + y[i];
}
// y = x * step[0] + step[1]
[[max_total_threads_per_threadgroup(64)]]
kernel void affine(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]], device const uint* step [[buffer(2)]],
                   constant Count& p [[buffer(3)]], uint i [[thread_position_in_grid]]) {
  if (i < p.n) y[i] = x[i] * step[0] + step[1];
}
// Threadgroup memory: each group turns its 64 words round.
[[max_total_threads_per_threadgroup(64)]]
kernel void turn(device const uint* x [[buffer(0)]], device uint* y [[buffer(1)]],
                 uint group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  TG_ARRAY(uint, words, 64);
  words[t] = x[group * 64 + t];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[group * 64 + t] = words[63 - t];
}
// The grid's three numbers: y[z][y][x] = x + 10 y + 100 z, over threadgroups of one simdgroup.
[[max_total_threads_per_threadgroup(32)]]
kernel void place(device float* y [[buffer(0)]], uint3 at [[threadgroup_position_in_grid]], uint3 grid [[threadgroups_per_grid]],
                  uint lane [[thread_index_in_simdgroup]]) {
  float sum = simd_sum(float(at.x + 10 * at.y + 100 * at.z) / 32.0f);
  if (lane == 0) y[(at.z * grid.y + at.y) * grid.x + at.x] = sum;
}

#if defined(PORT_ENTRY) || defined(__CUDACC_RTC__)
// Large threadgroup memory, into which four blocks of a threadgroup come, two at a time: every thread adds up its words.
// Not for Metal, which has no such memory.
#define BLOCK 30720
inline void start_block(threadgroup uchar* ring, threadgroup port_transfer* came, device const uchar* x, uint block, uint t) {
  threadgroup port_transfer* c = came + block % 2;
  if (t == 0) port_transfer_expect(c, BLOCK);
  if (t < 32) simdgroup_barrier(mem_flags::mem_threadgroup);
  if (t < 16) port_transfer_copy(ring + block % 2 * BLOCK + t * (BLOCK / 16), x + block * BLOCK + t * (BLOCK / 16), BLOCK / 16, c);
}
[[max_total_threads_per_threadgroup(64)]]
kernel void sum_blocks(device const uchar* x [[buffer(0)]], device uint* y [[buffer(1)]],
                       uint group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  TG_MEMORY(ring, 2 * BLOCK);
  TG_ARRAY(port_transfer, came, 2);
  if (t == 0) {
    port_transfer_init(came, 2);
  }
  for (uint block = 0; block < 2; block++) start_block(ring, came, x + group * (4 * BLOCK), block, t);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint sum = 0;
  for (uint block = 0; block < 4; block++) {
    port_transfer_wait(came + block % 2, block / 2);
    threadgroup const uint* words = (threadgroup const uint*)(ring + block % 2 * BLOCK);
    for (uint i = t; i < BLOCK / 4; i += 64) sum = sum * 3 + words[i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (block < 2) start_block(ring, came, x + group * (4 * BLOCK), block + 2, t);
  }
  y[group * 64 + t] = sum;
}
#endif

#ifdef PORT_ENTRY
#define ENTRY extern "C" __attribute__((visibility("default"))) void
ENTRY copy_words_entry(void* const* a) { copy_words((const uint*)a[0], (uint*)a[1], *(const Count*)a[2], PORT_thread_position_in_grid().x); }
PORT_ENTRY(copy_words, 64, 3)
ENTRY add_words_entry(void* const* a) { add_words((const uint*)a[0], (const uint*)a[1], (uint*)a[2], *(const Count*)a[3], PORT_thread_position_in_grid().x); }
PORT_ENTRY(add_words, 64, 4)
ENTRY affine_entry(void* const* a) { affine((const uint*)a[0], (uint*)a[1], (const uint*)a[2], *(const Count*)a[3], PORT_thread_position_in_grid().x); }
PORT_ENTRY(affine, 64, 4)
ENTRY turn_entry(void* const* a) { turn((const uint*)a[0], (uint*)a[1], PORT_threadgroup_position_in_grid().x, PORT_thread_index_in_threadgroup()); }
PORT_ENTRY(turn, 64, 2)
ENTRY sum_blocks_entry(void* const* a) { sum_blocks((const uchar*)a[0], (uint*)a[1], PORT_threadgroup_position_in_grid().x, PORT_thread_index_in_threadgroup()); }
PORT_ENTRY(sum_blocks, 64, 2)
ENTRY place_entry(void* const* a) { place((float*)a[0], PORT_threadgroup_position_in_grid(), PORT_threadgroups_per_grid(), PORT_thread_index_in_simdgroup()); }
PORT_ENTRY(place, 32, 1)
#elif defined(__CUDACC_RTC__)
extern "C" __global__ void __launch_bounds__(64) copy_words_entry(const uint* x, uint* y, Count p) {
  copy_words(x, y, p, PORT_thread_position_in_grid().x);
}
extern "C" __global__ void __launch_bounds__(64) add_words_entry(const uint* x, const uint* y, uint* z, Count p) {
  add_words(x, y, z, p, PORT_thread_position_in_grid().x);
}
extern "C" __global__ void __launch_bounds__(64) affine_entry(const uint* x, uint* y, const uint* step, Count p) {
  affine(x, y, step, p, PORT_thread_position_in_grid().x);
}
extern "C" __global__ void __launch_bounds__(64) turn_entry(const uint* x, uint* y) {
  turn(x, y, PORT_threadgroup_position_in_grid().x, PORT_thread_index_in_threadgroup());
}
extern "C" __global__ void __launch_bounds__(64) sum_blocks_entry(const uchar* x, uint* y) {
  sum_blocks(x, y, PORT_threadgroup_position_in_grid().x, PORT_thread_index_in_threadgroup());
}
extern "C" __global__ void __launch_bounds__(32) place_entry(float* y) {
  place(y, PORT_threadgroup_position_in_grid(), PORT_threadgroups_per_grid(), PORT_thread_index_in_simdgroup());
}
#endif
