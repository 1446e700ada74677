// Metal: what the kernels need in addition to the language.
#include <metal_stdlib>
#include <metal_simdgroup>
#include <metal_simdgroup_matrix>
using namespace metal;

#define PORT_BOUND(threads, room) threads
#define TG_ARRAY(T, name, n) alignas(16) threadgroup T name[n]
// Declares the large threadgroup memory of a kernel, at most one: name points to bytes bytes, aligned to 128.
#define TG_MEMORY(name, bytes)                      \
  alignas(128) threadgroup uchar name##_memory[bytes]; \
  threadgroup uchar* const name = name##_memory
#define UNROLL _Pragma("clang loop unroll(full)")
#define NOUNROLL _Pragma("clang loop unroll(disable)")

// Two numbers rounded to bf16, the first in the lower half.
inline uint port_pack_bf16(float a, float b) {
  return uint(as_type<ushort>(bfloat(a))) | (uint(as_type<ushort>(bfloat(b))) << 16);
}
// Converts eight 4-bit codes to bf16(scale * q + bias), in order.
inline uint4 port_dequant8(uint w, float scale, float bias) {
  uint4 r;
  UNROLL for (int i = 0; i < 4; i++) {
    r[i] = port_pack_bf16(scale * float((w >> (8 * i)) & 15u) + bias, scale * float((w >> (8 * i + 4)) & 15u) + bias);
  }
  return r;
}
inline uint port_and_or(uint v, uint mask, uint bits) { return (v & mask) | bits; }
inline uint port_fma_pair(uint a, uint b, uint c) {
  return port_pack_bf16(fma(as_type<float>(a << 16), as_type<float>(b << 16), as_type<float>(c << 16)),
                        fma(as_type<float>(a & 0xffff0000u), as_type<float>(b & 0xffff0000u), as_type<float>(c & 0xffff0000u)));
}
#define PORT_DEQUANT_UNIT 1.0f
typedef float2 port_affine;  // scale and bias
inline port_affine port_affine_of(uint scale, uint bias) { return float2(as_type<float>(scale << 16), as_type<float>(bias << 16)); }
inline uint4 port_dequant_pairs(uint w, port_affine a) {
  uint4 r;
  UNROLL for (int i = 0; i < 4; i++) {
    r[i] = port_pack_bf16(a.x * float((w >> (4 * i)) & 15u) + a.y, a.x * float((w >> (4 * i + 16)) & 15u) + a.y);
  }
  return r;
}
inline uint port_twice(uint a, uint b, int i) { return ((i & 2 ? b : a) >> (i % 2 * 16) & 0xffffu) * 0x10001u; }
// Returns 1 + (byte i of w without its top bit) / 128, for a byte whose top bit is set.
inline float port_byte_unit(uint w, int i) { return as_type<float>(0x3f000000u | (((w >> (8 * i)) & 0xffu) << 16)); }
// Returns the lanes where b is true, lane 0 in the lowest bit.
inline uint port_ballot(bool b) { return uint((simd_vote::vote_t)simd_ballot(b)); }
// Returns byte i of w.
inline float port_byte_float(uint w, int i) { return float((w >> (8 * i)) & 0xffu); }

inline void port_release() {}
inline void port_publish() {}
inline int port_published(device const int* p) { return *p; }
// Waits until the results of the kernels before this one are visible. A device may start a kernel before those are
// done. If the source defines PORT_WAITS, every thread of its kernels calls it before it reads what other kernels
// write, and before it writes; it may read weights earlier. Other sources do not call it.
inline void port_wait() {}

// Says that a later kernel will read the weights from p on, so that a device may load them into a cache.
inline void port_prefetch(device const void* p, uint bytes) {}

// Kernels that use it do not run on this target; see port_last.
inline bool port_simd_last(device uint* arrivals, uint count, uint lane) { return true; }

inline uint2 port_read_once(device const uint2* p) { return *p; }
inline uint4 port_read_once(device const uint4* p) { return *p; }

// -- transfers: see common.h ---------------------------------------------------------------------------------
// Here the thread that starts a copy makes it, and the barrier before the wait is what orders.
#define PORT_TRANSFERS 0
struct port_transfer { uint unused; };
inline void port_transfer_init(threadgroup port_transfer* t, int count) {}
inline void port_transfer_expect(threadgroup port_transfer* t, uint bytes) {}
inline void port_transfer_copy(threadgroup void* to, device const void* from, uint bytes, threadgroup port_transfer* t) {
  threadgroup uint4* out = (threadgroup uint4*)to;
  device const uint4* in = (device const uint4*)from;
  for (uint i = 0; i < bytes / 16; i++) out[i] = in[i];
}
inline void port_transfer_shared(threadgroup void* to, device const void* from, uint bytes, threadgroup port_transfer* t) {
  port_transfer_copy(to, from, bytes, t);
}
inline void port_transfer_wait(threadgroup port_transfer* t, uint turn) {}

// Kernels that use arrivals do not run on this target.
struct port_arrivals { uint unused; };
inline void port_arrivals_init(threadgroup port_arrivals* a, int count, uint simdgroups) {}
inline void port_arrive(threadgroup port_arrivals* a, uint lane) {}
inline void port_arrivals_wait(threadgroup port_arrivals* a, uint turn) {}

// Here a thread makes its copies at once.
inline threadgroup uchar* port_panels(threadgroup uchar* memory) { return memory; }
inline void port_copy(threadgroup void* to, device const void* from, bool present) {
  *(threadgroup uint4*)to = present ? *(device const uint4*)from : uint4(0, 0, 0, 0);
}
inline void port_copy_half(threadgroup void* to, device const void* from, bool present) {
  *(threadgroup uint2*)to = present ? *(device const uint2*)from : uint2(0, 0);
}
inline void port_copies_end() {}
template <int N> inline void port_copies_arrived() {}
template <int N> inline void port_copies_wait() {}
inline void port_panels_written() {}

#define PORT_GROUPS 0
// Apple's GPUs have no such instruction; this code is correct, not fast.
inline void port_mma_u8s8(thread int* c, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) {
  const uint lane = simd_prefix_exclusive_sum(1u);
  UNROLL for (uint j = 0; j < 4; j++) {
    const ushort row = ushort(lane / 4 * 4 + j);
    const uint a[4] = {simd_shuffle(a0, row), simd_shuffle(a1, row), simd_shuffle(a2, row), simd_shuffle(a3, row)};
    UNROLL for (uint e = 0; e < 2; e++) {
      const ushort column = ushort((lane % 4 * 2 + e) * 4 + j);
      const uint b[2] = {simd_shuffle(b0, column), simd_shuffle(b1, column)};
      UNROLL for (uint k = 0; k < 8; k++) {
        const int v = int(b[k / 4] << (24 - k % 4 * 8)) >> 24;
        c[e] += int((a[k / 4 * 2] >> (k % 4 * 8)) & 0xffu) * v;
        c[2 + e] += int((a[k / 4 * 2 + 1] >> (k % 4 * 8)) & 0xffu) * v;
      }
    }
  }
}

inline void port_mma_bf16(thread float* c, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) {
  const uint lane = simd_prefix_exclusive_sum(1u);
  UNROLL for (uint j = 0; j < 4; j++) {
    const ushort row = ushort(lane / 4 * 4 + j);
    const uint a[4] = {simd_shuffle(a0, row), simd_shuffle(a1, row), simd_shuffle(a2, row), simd_shuffle(a3, row)};
    UNROLL for (uint e = 0; e < 2; e++) {
      const ushort column = ushort((lane % 4 * 2 + e) * 4 + j);
      const uint b[2] = {simd_shuffle(b0, column), simd_shuffle(b1, column)};
      UNROLL for (uint k = 0; k < 4; k++) {
        const uint shift = k % 2 == 0 ? 16u : 0u;  // the lower half first
        const float v = as_type<float>(b[k / 2] << shift & 0xffff0000u);
        c[e] += as_type<float>(a[k / 2 * 2] << shift & 0xffff0000u) * v;
        c[2 + e] += as_type<float>(a[k / 2 * 2 + 1] << shift & 0xffff0000u) * v;
      }
    }
  }
}

// -- tile16: 16x16x16 multiply-accumulate by one simdgroup ---------------------------------------------------
// bf16 operands in threadgroup memory, sums in fp32: 2x2x2 operations on simdgroup_matrix 8x8 of floats.
struct tile_a { simdgroup_matrix<float, 8, 8> m[4]; };
struct tile_b { simdgroup_matrix<float, 8, 8> m[4]; };
struct tile_c { simdgroup_matrix<float, 8, 8> m[4]; };

inline short2 port_frag_coord(uint lane) {  // (row, column) of element 0; element 1 is in the next column
  const short l = short(lane);
  const short q = l / 4;
  const short row = (q & 4) + (l / 2) % 4;
  const short col = (q & 2) * 2 + (l % 2) * 2;
  return short2(row, col);
}
inline void tile_zero(thread tile_c& c) {
  UNROLL for (short i = 0; i < 4; i++) c.m[i] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
}
inline void tile_load_a(thread tile_a& a, threadgroup const bfloat* p, uint ld, uint lane) {
  short2 rc = port_frag_coord(lane);
  UNROLL for (short i = 0; i < 2; i++) {
    UNROLL for (short j = 0; j < 2; j++) {
      threadgroup const bfloat* q = p + (i * 8 + rc.x) * ld + j * 8 + rc.y;
      a.m[i * 2 + j].thread_elements()[0] = float(q[0]);
      a.m[i * 2 + j].thread_elements()[1] = float(q[1]);
    }
  }
}
// p holds B transposed: 16 rows of n, 16 columns of k.
inline void tile_load_bt(thread tile_b& b, threadgroup const bfloat* p, uint ld, uint lane) {
  short2 rc = port_frag_coord(lane);
  UNROLL for (short i = 0; i < 2; i++) {    // block of k
    UNROLL for (short j = 0; j < 2; j++) {  // block of n
      threadgroup const bfloat* q = p + (j * 8 + rc.y) * ld + i * 8 + rc.x;
      b.m[i * 2 + j].thread_elements()[0] = float(q[0]);
      b.m[i * 2 + j].thread_elements()[1] = float(q[ld]);
    }
  }
}
// p has B not transposed: 16 rows of k, 16 columns of n.
inline void tile_load_b(thread tile_b& b, threadgroup const bfloat* p, uint ld, uint lane) {
  short2 rc = port_frag_coord(lane);
  UNROLL for (short i = 0; i < 2; i++) {
    UNROLL for (short j = 0; j < 2; j++) {
      threadgroup const bfloat* q = p + (i * 8 + rc.x) * ld + j * 8 + rc.y;
      b.m[i * 2 + j].thread_elements()[0] = float(q[0]);
      b.m[i * 2 + j].thread_elements()[1] = float(q[1]);
    }
  }
}
inline void tile_mma(thread tile_c& c, thread tile_a& a, thread tile_b& b) {
  UNROLL for (short i = 0; i < 2; i++)
    UNROLL for (short j = 0; j < 2; j++)
      UNROLL for (short k = 0; k < 2; k++)
        simdgroup_multiply_accumulate(c.m[i * 2 + j], a.m[i * 2 + k], b.m[k * 2 + j], c.m[i * 2 + j]);
}
// Returns the (row, column) in the tile of element e (0 to 7) of the calling lane. Elements 2i and 2i + 1 are
// neighbours in a row.
inline short2 tile_coord(uint lane, short e) {
  const short2 rc = port_frag_coord(lane);
  const short row = (e / 4) * 8 + rc.x;
  const short col = ((e / 2) % 2) * 8 + rc.y + e % 2;
  return short2(row, col);
}
inline float tile_get(thread tile_c& c, short e) { return c.m[e / 2].thread_elements()[e % 2]; }
inline void tile_set(thread tile_c& c, short e, float v) { c.m[e / 2].thread_elements()[e % 2] = v; }
// Sets elements 2i and 2i + 1 of the calling lane in a tile of A, rounded to bf16. They lie where those of a tile of C
// do.
inline void tile_set_a(thread tile_a& a, short i, float v0, float v1) {
  a.m[i].thread_elements()[0] = float(bfloat(v0));
  a.m[i].thread_elements()[1] = float(bfloat(v1));
}
// A lane has elements of two rows. tile_row returns which of them element e is in; the reductions below are over the
// lanes that share a row.
inline short tile_row(short e) { return e / 4; }
inline float tile_row_sum(float v) {
  v += simd_shuffle_xor(v, ushort(1));
  return v + simd_shuffle_xor(v, ushort(8));
}
inline float tile_row_max(float v) {
  v = max(v, simd_shuffle_xor(v, ushort(1)));
  return max(v, simd_shuffle_xor(v, ushort(8)));
}
