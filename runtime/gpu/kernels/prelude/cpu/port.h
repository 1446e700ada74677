// The emulator: Metal's language in C++17. simdgroup operations and barriers suspend the fiber; see emulator.h.
#pragma once
#include "emulator.h"

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

namespace metal {

// -- vectors -------------------------------------------------------------------------------------------------
template <class T, int N> struct vec;
#define PORT_INDEX(N)                                                            \
  T& operator[](int i) { return ((T*)this)[i]; }                                 \
  const T& operator[](int i) const { return ((const T*)this)[i]; }
template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
  T x, y;
  vec() = default;
  explicit vec(T s) : x(s), y(s) {}
  vec(T a, T b) : x(a), y(b) {}
  PORT_INDEX(2)
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
  T x, y, z;
  vec() = default;
  explicit vec(T s) : x(s), y(s), z(s) {}
  vec(T a, T b, T c) : x(a), y(b), z(c) {}
  PORT_INDEX(3)
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
  T x, y, z, w;
  vec() = default;
  explicit vec(T s) : x(s), y(s), z(s), w(s) {}
  vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
  PORT_INDEX(4)
};
#define PORT_BINARY(op)                                                                                         \
  template <class T, int N> vec<T, N> operator op(vec<T, N> a, vec<T, N> b) {                                   \
    vec<T, N> r; for (int i = 0; i < N; i++) r[i] = a[i] op b[i]; return r; }                                   \
  template <class T, int N> vec<T, N> operator op(vec<T, N> a, T b) {                                           \
    vec<T, N> r; for (int i = 0; i < N; i++) r[i] = a[i] op b; return r; }                                      \
  template <class T, int N> vec<T, N> operator op(T a, vec<T, N> b) {                                           \
    vec<T, N> r; for (int i = 0; i < N; i++) r[i] = a op b[i]; return r; }
PORT_BINARY(+) PORT_BINARY(-) PORT_BINARY(*) PORT_BINARY(/)
typedef vec<float, 2> float2;
typedef vec<float, 3> float3;
typedef vec<float, 4> float4;
typedef vec<uint, 2> uint2;
typedef vec<uint, 3> uint3;
typedef vec<uint, 4> uint4;
typedef vec<int, 2> int2;
typedef vec<int, 4> int4;
typedef vec<short, 2> short2;
typedef vec<ushort, 2> ushort2;
typedef vec<ulong, 2> ulong2;

template <class T, class U> inline T as_type(U u) {
  static_assert(sizeof(T) == sizeof(U), "as_type between sizes");
  T t;
  __builtin_memcpy(&t, &u, sizeof t);
  return t;
}

// A bfloat is converted explicitly and read freely. Arithmetic on two bfloats does not compile, since Metal would round
// it.
struct alignas(2) bfloat {
  ushort bits;
  bfloat() = default;
  explicit bfloat(float f) {
    const uint u = as_type<uint>(f);
    bits = (u & 0x7fffffffu) > 0x7f800000u ? ushort((u >> 16) | 0x40) : ushort((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
  }
  operator float() const { return as_type<float>(uint(bits) << 16); }
};
bfloat operator+(bfloat, bfloat) = delete;
bfloat operator-(bfloat, bfloat) = delete;
bfloat operator*(bfloat, bfloat) = delete;
bfloat operator/(bfloat, bfloat) = delete;
template <> inline ushort as_type<ushort, bfloat>(bfloat b) { return b.bits; }

// -- barriers and simd operations ----------------------------------------------------------------------------
#define PORT_AT int line = __builtin_LINE()
#define PORT_LANE (emulator_group()->current & 31)
enum class mem_flags { mem_none, mem_device, mem_threadgroup, mem_texture };
inline mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }
inline void threadgroup_barrier(mem_flags, PORT_AT) { emulator_pause(emulator::AT_BARRIER, "threadgroup_barrier", line); }
inline void simdgroup_barrier(mem_flags, PORT_AT) { emulator::exchange(0, "simdgroup_barrier", line); }
template <class T> T simd_shuffle_xor(T v, ushort m, PORT_AT) {
  auto& s = emulator::exchange(v, "simd_shuffle_xor", line);
  return s[(PORT_LANE ^ m) & 31][0];
}
template <class T> T simd_shuffle_down(T v, ushort d, PORT_AT) {
  auto& s = emulator::exchange(v, "simd_shuffle_down", line);
  const int l = PORT_LANE + d;
  return l < 32 ? s[l][0] : v;
}
template <class T> T simd_shuffle_up(T v, ushort d, PORT_AT) {
  auto& s = emulator::exchange(v, "simd_shuffle_up", line);
  const int l = PORT_LANE - d;
  return l >= 0 ? s[l][0] : v;
}
template <class T> T simd_shuffle(T v, ushort l, PORT_AT) { return emulator::exchange(v, "simd_shuffle", line)[l & 31][0]; }
template <class T> T simd_broadcast(T v, ushort l, PORT_AT) { return emulator::exchange(v, "simd_broadcast", line)[l & 31][0]; }
template <class T> T simd_broadcast_first(T v, PORT_AT) { return emulator::exchange(v, "simd_broadcast_first", line)[0][0]; }
// Adds in butterfly order, as on CUDA.
template <class T> T simd_sum(T v, PORT_AT) {
  auto& s = emulator::exchange(v, "simd_sum", line);
  T a[32], b[32];
  for (int i = 0; i < 32; i++) a[i] = s[i][0];
  for (int m = 16; m > 0; m >>= 1) {
    for (int i = 0; i < 32; i++) b[i] = a[i] + a[i ^ m];
    __builtin_memcpy(a, b, sizeof a);
  }
  return a[PORT_LANE];
}
template <class T> T simd_max(T v, PORT_AT) {
  auto& s = emulator::exchange(v, "simd_max", line);
  T r = s[0][0];
  for (int i = 1; i < 32; i++) r = s[i][0] > r ? s[i][0] : r;
  return r;
}
template <class T> T simd_min(T v, PORT_AT) {
  auto& s = emulator::exchange(v, "simd_min", line);
  T r = s[0][0];
  for (int i = 1; i < 32; i++) r = s[i][0] < r ? s[i][0] : r;
  return r;
}
inline bool simd_any(bool v, PORT_AT) {
  auto& s = emulator::exchange(int(v), "simd_any", line);
  bool r = false;
  for (int i = 0; i < 32; i++) r |= s[i][0] != 0;
  return r;
}
inline bool simd_all(bool v, PORT_AT) {
  auto& s = emulator::exchange(int(v), "simd_all", line);
  bool r = true;
  for (int i = 0; i < 32; i++) r &= s[i][0] != 0;
  return r;
}
// Returns the lanes where v is true, lane 0 in the lowest bit.
inline uint port_ballot(bool v, PORT_AT) {
  auto& s = emulator::exchange(int(v), "port_ballot", line);
  uint r = 0;
  for (int i = 0; i < 32; i++) r |= s[i][0] != 0 ? 1u << i : 0u;
  return r;
}

inline void port_release() {}
inline void port_publish() {}
inline int port_published(const int* p) { return *p; }
// Waits until the results of the kernels before this one are visible. A device may start a kernel before those are
// done. If the source defines PORT_WAITS, every thread of its kernels calls it before it reads what other kernels
// write, and before it writes; it may read weights earlier. Other sources do not call it.
inline void port_wait() {}

// Says that a later kernel will read the weights from p on, so that a device may load them into a cache. Here both ends
// are read, so that a wrong address is found.
inline void port_prefetch(const void* p, uint bytes) {
  const volatile uchar* at = (const volatile uchar*)p;
  if (bytes > 0) (void)(at[0] + at[bytes - 1]);
}

// Reports whether the threadgroup is the last of count threadgroups that call this with the same counter, which is 0
// before and after. The last one sees what the others wrote to device memory before their calls. Metal does not order
// memory between threadgroups, so kernels that use it have another form there.
inline bool port_last(uint* arrivals, uint count, uint thread_index, uint* flag, PORT_AT) {
  threadgroup_barrier(mem_flags::mem_device, line);
  if (thread_index == 0) {
    *flag = __atomic_add_fetch(arrivals, 1u, __ATOMIC_ACQ_REL) == count;
    if (*flag != 0) __atomic_store_n(arrivals, 0u, __ATOMIC_RELAXED);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup, line);
  return *flag != 0;
}

// Like port_last for simdgroups: reports whether the simdgroup is the last of count simdgroups that call this with the same counter.
inline bool port_simd_last(uint* arrivals, uint count, uint lane, PORT_AT) {
  emulator::exchange(0, "port_simd_last", line);
  uint arrived = 0;
  if (lane == 0 && (arrived = __atomic_add_fetch(arrivals, 1u, __ATOMIC_ACQ_REL)) == count) __atomic_store_n(arrivals, 0u, __ATOMIC_RELAXED);
  return simd_broadcast_first(arrived, line) == count;
}

inline uint2 port_read_once(const uint2* p) { return *p; }
inline uint4 port_read_once(const uint4* p) { return *p; }

// -- transfers: see common.h ---------------------------------------------------------------------------------
// Here a copy is made when somebody waits for it, and what it will overwrite is NaN until then; the emulator checks
// the rules.
#define PORT_TRANSFERS 1
struct port_transfer { ulong unused; };
inline void port_transfer_init(port_transfer* t, int count, PORT_AT) {
  for (int i = 0; i < count; i++) emulator_transfer_init(t + i, line);
}
inline void port_transfer_expect(port_transfer* t, uint bytes, PORT_AT) { emulator_transfer_expect(t, bytes, line); }
inline void port_transfer_copy(void* to, const void* from, uint bytes, port_transfer* t, PORT_AT) {
  emulator_transfer_copy(to, from, bytes, t, line);
}
inline void port_transfer_shared(void* to, const void* from, uint bytes, port_transfer* t, PORT_AT) {
  emulator_transfer_copy(to, from, bytes, t, line);
}
inline void port_transfer_wait(port_transfer* t, uint turn, PORT_AT) {
  emulator::exchange(0, "port_transfer_wait", line);
  emulator_transfer_wait(t, turn, line);
}

struct port_arrivals { ulong unused; };
inline void port_arrivals_init(port_arrivals* a, int count, uint simdgroups, PORT_AT) {
  for (int i = 0; i < count; i++) emulator_arrivals_init(a + i, simdgroups, line);
}
inline void port_arrive(port_arrivals* a, uint lane, PORT_AT) {
  emulator::exchange(0, "port_arrive", line);
  if (lane == 0) emulator_arrive(a, line);
}
inline void port_arrivals_wait(port_arrivals* a, uint turn, PORT_AT) {
  emulator::exchange(0, "port_arrivals_wait", line);
  emulator_arrivals_wait(a, turn, line);
}

inline uchar* port_panels(uchar* memory) { return memory; }
inline void port_copy(void* to, const void* from, bool present, PORT_AT) { emulator_copy(to, from, present, 16, line); }
inline void port_copy_half(void* to, const void* from, bool present, PORT_AT) { emulator_copy(to, from, present, 8, line); }
inline void port_copies_end() { emulator_copies_end(); }
template <int N> inline void port_copies_arrived() { emulator_copies_wait(N); }
template <int N> inline void port_copies_wait() { emulator_copies_wait(N); }
inline void port_panels_written() {}

#define PORT_GROUPS 0
inline void port_mma_u8s8(int* c, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1, PORT_AT) {
  uint a[32][4];  // copies: after the second exchange, a faster lane may overwrite the slots of the first
  __builtin_memcpy(a, emulator::exchange(uint4(a0, a1, a2, a3), "port_mma_u8s8", line), sizeof a);
  auto& b = emulator::exchange(uint2(b0, b1), "port_mma_u8s8", line);
  const int g = PORT_LANE / 4, j = PORT_LANE % 4;
  for (int i = 0; i < 4; i++) {
    for (int k = 0; k < 32; k++) {
      const int half = k / 16, from = k % 16 / 4, shift = k % 4 * 8;
      const uchar x = uchar(a[g * 4 + from][half * 2 + i / 2] >> shift);
      const signed char y = (signed char)(b[(j * 2 + i % 2) * 4 + from][0][half] >> shift);
      c[i] += int(x) * int(y);
    }
  }
}

inline void port_mma_bf16(float* c, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1, PORT_AT) {
  uint a[32][4];  // copies, as above
  __builtin_memcpy(a, emulator::exchange(uint4(a0, a1, a2, a3), "port_mma_bf16", line), sizeof a);
  auto& b = emulator::exchange(uint2(b0, b1), "port_mma_bf16", line);
  const int g = PORT_LANE / 4, j = PORT_LANE % 4;
  const auto number = [](uint pair, int which) { return as_type<float>(which == 0 ? pair << 16 : pair & 0xffff0000u); };
  for (int i = 0; i < 4; i++) {
    for (int k = 0; k < 16; k++) {
      const int half = k / 8, from = k % 8 / 2;
      c[i] += number(a[g * 4 + from][half * 2 + i / 2], k % 2) * number(b[(j * 2 + i % 2) * 4 + from][0][half], k % 2);
    }
  }
}

// -- functions -----------------------------------------------------------------------------------------------
template <class T> inline T min(T a, T b) { return b < a ? b : a; }
template <class T> inline T max(T a, T b) { return a < b ? b : a; }
template <class T> inline T clamp(T v, T lo, T hi) { return v < lo ? lo : (v > hi ? hi : v); }
template <class T> inline T select(T a, T b, bool c) { return c ? b : a; }
inline float exp(float v) { return __builtin_expf(v); }
inline float exp2(float v) { return __builtin_exp2f(v); }
inline float log(float v) { return __builtin_logf(v); }
inline float sqrt(float v) { return __builtin_sqrtf(v); }
inline float rsqrt(float v) { return 1.0f / __builtin_sqrtf(v); }
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float fabs(float v) { return __builtin_fabsf(v); }
inline float floor(float v) { return __builtin_floorf(v); }
inline float sin(float v) { return __builtin_sinf(v); }
inline float cos(float v) { return __builtin_cosf(v); }
inline float pow(float a, float b) { return __builtin_powf(a, b); }
inline int abs(int v) { return v < 0 ? -v : v; }
inline uint popcount(uint v) { return uint(__builtin_popcount(v)); }
inline uint mulhi(uint a, uint b) { return uint((uint64_t(a) * b) >> 32); }
namespace fast {
using metal::exp; using metal::exp2; using metal::log;
// Returns NaN where Metal promises nothing: for divisors that are infinite, above 2^126 or below 2^-126.
inline float divide(float a, float b) { return fabs(b) >= 0x1p-126f && fabs(b) <= 0x1p126f ? a / b : __builtin_nanf(""); }
}
namespace precise {
using metal::cos; using metal::exp; using metal::exp2; using metal::log; using metal::pow;
using metal::rsqrt; using metal::sin; using metal::sqrt;
}

// -- simdgroup_matrix 8x8, in Apple's order of elements ------------------------------------------------------
template <class T, int R, int C> struct simdgroup_matrix {
  T v[2];
  T (&thread_elements())[2] { return v; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
inline short2 port_frag_coord(uint lane) {
  const short q = short(lane) / 4;
  return short2(short((q & 4) + (short(lane) / 2) % 4), short((q & 2) * 2 + (short(lane) % 2) * 2));
}
inline int port_frag_lane(int row, int col) {  // the lane that holds an element
  return ((row & 4) << 2) | ((col & 4) << 1) | ((row & 3) << 1) | ((col & 2) >> 1);
}
template <class T, int R, int C> simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T f) {
  simdgroup_matrix<T, R, C> m;
  m.v[0] = m.v[1] = f;
  return m;
}
template <class T, class P> void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const P* p, ulong ld, ulong2 = ulong2(0, 0), bool transposed = false, PORT_AT) {
  emulator::exchange(0, "simdgroup_load", line);
  const short2 k = port_frag_coord(PORT_LANE);
  for (int e = 0; e < 2; e++) m.v[e] = T(transposed ? p[(k.y + e) * ld + k.x] : p[k.x * ld + k.y + e]);
}
template <class T> void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, T* p, ulong ld, PORT_AT) {
  emulator::exchange(0, "simdgroup_store", line);
  const short2 k = port_frag_coord(PORT_LANE);
  for (int e = 0; e < 2; e++) p[k.x * ld + k.y + e] = m.v[e];
}
template <class A, class B> void simdgroup_multiply_accumulate(simdgroup_float8x8& d, const simdgroup_matrix<A, 8, 8>& a, const simdgroup_matrix<B, 8, 8>& b, const simdgroup_float8x8& c, PORT_AT) {
  auto& s = emulator::exchange(float4(a.v[0], a.v[1], b.v[0], b.v[1]), "simdgroup_multiply_accumulate", line);
  const short2 k = port_frag_coord(PORT_LANE);
  for (int e = 0; e < 2; e++) {
    float sum = c.v[e];
    for (int i = 0; i < 8; i++) sum += s[port_frag_lane(k.x, i)][0][i & 1] * s[port_frag_lane(i, k.y + e)][0][2 + ((k.y + e) & 1)];
    d.v[e] = sum;
  }
}

// -- number formats ------------------------------------------------------------------------------------------
inline uint port_and_or(uint v, uint mask, uint bits) { return (v & mask) | bits; }
inline uint port_pack_bf16(float a, float b) { return uint(bfloat(a).bits) | (uint(bfloat(b).bits) << 16); }
inline uint4 port_dequant8(uint w, float scale, float bias) {
  uint4 r;
  for (int i = 0; i < 4; i++) {
    r[i] = port_pack_bf16(scale * float((w >> (8 * i)) & 15u) + bias, scale * float((w >> (8 * i + 4)) & 15u) + bias);
  }
  return r;
}
inline uint port_fma_pair(uint a, uint b, uint c) {
  return port_pack_bf16(as_type<float>(a << 16) * as_type<float>(b << 16) + as_type<float>(c << 16),
                        as_type<float>(a & 0xffff0000u) * as_type<float>(b & 0xffff0000u) + as_type<float>(c & 0xffff0000u));
}
#define PORT_DEQUANT_UNIT 4294967296.0f  // CUDA's, so that kernels that forget it fail here
typedef float2 port_affine;  // scale and bias, divided by PORT_DEQUANT_UNIT
inline port_affine port_affine_of(uint scale, uint bias) {
  return float2(as_type<float>(scale << 16) / PORT_DEQUANT_UNIT, as_type<float>(bias << 16) / PORT_DEQUANT_UNIT);
}
inline uint4 port_dequant_pairs(uint w, port_affine a) {
  uint4 r;
  for (int i = 0; i < 4; i++) {
    r[i] = port_pack_bf16(a.x * float((w >> (4 * i)) & 15u) + a.y, a.x * float((w >> (4 * i + 16)) & 15u) + a.y);
  }
  return r;
}
inline uint port_twice(uint a, uint b, int i) { return ((i & 2 ? b : a) >> (i % 2 * 16) & 0xffffu) * 0x10001u; }
inline float port_byte_unit(uint w, int i) { return as_type<float>(0x3f000000u | (((w >> (8 * i)) & 0xffu) << 16)); }
inline float port_byte_float(uint w, int i) { return float((w >> (8 * i)) & 0xffu); }

// -- tile16 --------------------------------------------------------------------------------------------------
struct tile_a { float v[4][2]; };
struct tile_b { float v[4][2]; };
struct tile_c { float v[8]; };
inline void tile_zero(tile_c& c) { for (float& v : c.v) v = 0; }
inline void tile_load_a(tile_a& a, const bfloat* p, uint ld, uint, PORT_AT) {
  emulator::exchange(0, "tile_load_a", line);
  const short2 k = port_frag_coord(PORT_LANE);
  for (int i = 0; i < 4; i++) for (int e = 0; e < 2; e++) a.v[i][e] = p[(i / 2 * 8 + k.x) * ld + i % 2 * 8 + k.y + e];
}
inline void tile_load_bt(tile_b& b, const bfloat* p, uint ld, uint, PORT_AT) {
  emulator::exchange(0, "tile_load_bt", line);
  const short2 k = port_frag_coord(PORT_LANE);
  for (int i = 0; i < 4; i++) for (int e = 0; e < 2; e++) b.v[i][e] = p[(i % 2 * 8 + k.y + e) * ld + i / 2 * 8 + k.x];
}
inline void tile_load_b(tile_b& b, const bfloat* p, uint ld, uint, PORT_AT) {
  emulator::exchange(0, "tile_load_b", line);
  const short2 k = port_frag_coord(PORT_LANE);
  for (int i = 0; i < 4; i++) for (int e = 0; e < 2; e++) b.v[i][e] = p[(i / 2 * 8 + k.x) * ld + i % 2 * 8 + k.y + e];
}
inline void tile_mma(tile_c& c, tile_a& a, tile_b& b, PORT_AT) {
  for (int i = 0; i < 2; i++) for (int j = 0; j < 2; j++) for (int k = 0; k < 2; k++) {
    simdgroup_float8x8 d, A, B, C;
    __builtin_memcpy(&A, a.v[i * 2 + k], 8);
    __builtin_memcpy(&B, b.v[k * 2 + j], 8);
    __builtin_memcpy(&C, c.v + (i * 2 + j) * 2, 8);
    simdgroup_multiply_accumulate(d, A, B, C, line);
    __builtin_memcpy(c.v + (i * 2 + j) * 2, &d, 8);
  }
}
inline short2 tile_coord(uint lane, short e) {
  const short2 k = port_frag_coord(lane);
  return short2(short((e / 4) * 8 + k.x), short(((e / 2) % 2) * 8 + k.y + e % 2));
}
inline float tile_get(tile_c& c, short e) { return c.v[e]; }
inline void tile_set(tile_c& c, short e, float v) { c.v[e] = v; }
inline void tile_set_a(tile_a& a, short i, float v0, float v1) {
  a.v[i][0] = float(bfloat(v0));
  a.v[i][1] = float(bfloat(v1));
}
inline short tile_row(short e) { return e / 4; }
inline float tile_row_sum(float v, PORT_AT) {
  v += simd_shuffle_xor(v, 1, line);
  return v + simd_shuffle_xor(v, 8, line);
}
inline float tile_row_max(float v, PORT_AT) {
  v = max(v, simd_shuffle_xor(v, 1, line));
  return max(v, simd_shuffle_xor(v, 8, line));
}

// -- places --------------------------------------------------------------------------------------------------
inline uint3 port_u3(const uint32_t* v) { return uint3(v[0], v[1], v[2]); }
inline uint3 port_local() {
  const emulator::Group* g = emulator_group();
  const uint i = uint(g->current);
  return uint3(i % g->size[0], i / g->size[0] % g->size[1], i / g->size[0] / g->size[1]);
}
inline uint3 port_global() {
  const emulator::Group* g = emulator_group();
  const uint3 l = port_local();
  return uint3(g->at[0] * g->size[0] + l.x, g->at[1] * g->size[1] + l.y, g->at[2] * g->size[2] + l.z);
}

}  // namespace metal
using namespace metal;

#define PORT_threadgroup_position_in_grid() port_u3(emulator_group()->at)
#define PORT_threadgroups_per_grid() port_u3(emulator_group()->grid)
#define PORT_threads_per_threadgroup() port_u3(emulator_group()->size)
#define PORT_thread_position_in_threadgroup() port_local()
#define PORT_thread_position_in_grid() port_global()
#define PORT_thread_index_in_threadgroup() uint(emulator_group()->current)
#define PORT_thread_index_in_simdgroup() uint(emulator_group()->current & 31)
#define PORT_simdgroup_index_in_threadgroup() uint(emulator_group()->current >> 5)
#define PORT_simdgroups_per_threadgroup() uint(emulator_group()->simds)

// Used by the generated entry points: the largest number of threads of a threadgroup, the number of arguments.
#define PORT_ENTRY(name, threads, arguments) \
  extern "C" __attribute__((visibility("default"))) const int name##_entry_info[2] = {threads, arguments};

#define UNROLL
#define NOUNROLL
#define PORT_BOUND(threads, room) (threads)
#define TG_ARRAY(T, name, n)           \
  static const char name##_place = 0;  \
  T(&name)[n] = *(T(*)[n])emulator_threadgroup_memory(&name##_place, sizeof(T) * (n))
// Declares the large threadgroup memory of a kernel, at most one: name points to bytes bytes, aligned to 128.
#define TG_MEMORY(name, bytes) uchar* const name = (uchar*)emulator_large_memory(bytes)
#define device
#define constant const
#define threadgroup
#define thread
#define kernel static inline
