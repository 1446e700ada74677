// CUDA: Metal's language for NVRTC, without any CUDA header (see NVRTCOptions).
#pragma once
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long long ulong;
typedef long long port_long;

#define UNROLL _Pragma("unroll")
#define NOUNROLL _Pragma("unroll 1")
// The threads of a threadgroup, and the number of threadgroups for which a multiprocessor must have registers.
#define PORT_BOUND(threads, room) threads, room
#define TG_ARRAY(T, name, n) __shared__ __align__(16) T name[n]
// Declares the large threadgroup memory of a kernel, at most one: name points to bytes bytes, aligned to 128. It is
// dynamic shared memory, since only that may exceed 48 KB; the launch gives its size (kernels.Launch.Memory).
#define TG_MEMORY(name, bytes)                              \
  extern __shared__ __align__(128) uchar port_tg_memory[]; \
  uchar* const name = port_tg_memory
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)

namespace metal {

template <class T, class U> __forceinline__ T as_type(U u) {
  static_assert(sizeof(T) == sizeof(U), "as_type between sizes");
  union P { U u; T t; P() {} } p; p.u = u; return p.t;
}
template <> __forceinline__ float as_type<float, uint>(uint u) { return __uint_as_float(u); }
template <> __forceinline__ uint as_type<uint, float>(float u) { return __float_as_uint(u); }

template <class T, int N> struct vec;
#define PORT_INDEX(N)                                                                              \
  __forceinline__ T& operator[](int i) { return ((T*)this)[i]; }                                        \
  __forceinline__ const T& operator[](int i) const { return ((const T*)this)[i]; }
template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
  T x, y;
  vec() = default;
  __forceinline__ explicit vec(T s) : x(s), y(s) {}
  __forceinline__ vec(T a, T b) : x(a), y(b) {}
  PORT_INDEX(2)
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
  T x, y, z;
  vec() = default;
  __forceinline__ explicit vec(T s) : x(s), y(s), z(s) {}
  __forceinline__ vec(T a, T b, T c) : x(a), y(b), z(c) {}
  PORT_INDEX(3)
};
template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
  T x, y, z, w;
  vec() = default;
  __forceinline__ explicit vec(T s) : x(s), y(s), z(s), w(s) {}
  __forceinline__ vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
  PORT_INDEX(4)
};
#define PORT_BINARY(op)                                                                              \
  template <class T, int N> __forceinline__ vec<T, N> operator op(vec<T, N> a, vec<T, N> b) {     \
    vec<T, N> r; UNROLL for (int i = 0; i < N; i++) r[i] = a[i] op b[i]; return r; }              \
  template <class T, int N> __forceinline__ vec<T, N> operator op(vec<T, N> a, T b) {             \
    vec<T, N> r; UNROLL for (int i = 0; i < N; i++) r[i] = a[i] op b; return r; }                 \
  template <class T, int N> __forceinline__ vec<T, N> operator op(T a, vec<T, N> b) {             \
    vec<T, N> r; UNROLL for (int i = 0; i < N; i++) r[i] = a op b[i]; return r; }
PORT_BINARY(+) PORT_BINARY(-) PORT_BINARY(*) PORT_BINARY(/)

// A bfloat is converted explicitly from float (as in MSL) and freely to float. Arithmetic on two bfloats does not
// compile, since Metal would round it.
struct alignas(2) bfloat {
  ushort bits;
  bfloat() = default;
  __forceinline__ explicit bfloat(float f) {
    ushort b; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(b) : "f"(f)); bits = b;
  }
  __forceinline__ operator float() const { return __uint_as_float(uint(bits) << 16); }
};
bfloat operator+(bfloat, bfloat) = delete;
bfloat operator-(bfloat, bfloat) = delete;
bfloat operator*(bfloat, bfloat) = delete;
bfloat operator/(bfloat, bfloat) = delete;
template <> __forceinline__ ushort as_type<ushort, bfloat>(bfloat b) { return b.bits; }

enum class mem_flags { mem_none, mem_device, mem_threadgroup, mem_texture };
__forceinline__ mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }
__forceinline__ void threadgroup_barrier(mem_flags) { __syncthreads(); }
__forceinline__ void simdgroup_barrier(mem_flags) { __syncwarp(); }

// Says that the kernels that depend on this one may start once every threadgroup has called it or ended; they then wait
// by themselves. Kernels of a source that defines PORT_RELEASES call it. Behind other kernels the next one may start
// from the beginning.
__forceinline__ void port_release() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol." "launch_dependents;" ::: "memory");
#endif
}

// Called between a thread's writes and its port_release, so that the next kernel may read them before its wait, with
// port_published. A threadgroup counts as released when one of its threads has called port_release, so all writers have
// to publish first. (No document promises what the next kernel sees before its wait. This relies on the fence, and on
// reads that bypass a multiprocessor's own cache.)
__forceinline__ void port_publish() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
__forceinline__ int port_published(const int* p) { return __ldcg(p); }

// Waits until the results of the kernels before this one are visible. A device may start a kernel before those are
// done. If the source defines PORT_WAITS, every thread of its kernels calls it before it reads what other kernels
// write, and before it writes; it may read weights earlier. Other sources do not call it.
__forceinline__ void port_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol." "wait;" ::: "memory");
#endif
}

// Reports whether the threadgroup is the last of count threadgroups that call this with the same counter, which is 0
// before and after. The last one sees what the others wrote to device memory before their calls. Metal does not order
// memory between threadgroups, so kernels that use it have another form there.
__forceinline__ bool port_last(uint* arrivals, uint count, uint thread_index, uint* flag) {
  __syncthreads();
  if (thread_index == 0) {
    uint before;
    asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(arrivals), "r"(count - 1) : "memory");
    *flag = before == count - 1;
  }
  __syncthreads();
  return *flag != 0;
}

// Like port_last for simdgroups: reports whether the simdgroup is the last of count simdgroups that call this with the same counter.
__forceinline__ bool port_simd_last(uint* arrivals, uint count, uint lane) {
  __syncwarp();
  uint before = 0;
  if (lane == 0) asm volatile("atom.acq_rel.gpu.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(arrivals), "r"(count - 1) : "memory");
  return __shfl_sync(~0u, before, 0) == count - 1;
}

// Says that a later kernel will read the weights from p on, so that the device may load them into a cache.
__forceinline__ void port_prefetch(const void* p, uint bytes) {
#if __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ >= 12
  const ulong from = ((ulong)p + 15) / 16 * 16, to = ((ulong)p + bytes) / 16 * 16;
  if (from < to) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(from), "r"((uint)(to - from)));
#endif
}

// Reads data that is read only once and need not stay in a multiprocessor's cache. The neighbours, within 128 bytes,
// will be read soon.
__forceinline__ vec<uint, 2> port_read_once(const vec<uint, 2>* p) {
  vec<uint, 2> v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}

__forceinline__ vec<uint, 4> port_read_once(const vec<uint, 4>* p) {
  vec<uint, 4> v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

// -- transfers: see common.h ---------------------------------------------------------------------------------
#define PORT_TRANSFERS (__CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ >= 12)
struct alignas(8) port_transfer { ulong barrier; };  // mbarrier
__forceinline__ uint port_smem(const void* p) { return (uint)__cvta_generic_to_shared(p); }
__forceinline__ void port_transfer_init(port_transfer* t, int count) {
#if PORT_TRANSFERS
  for (int i = 0; i < count; i++) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(port_smem(t + i)) : "memory");
  // One fence for all transfers, for shared memory only: a fence for all memory takes most of a microsecond.
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
__forceinline__ void port_transfer_expect(port_transfer* t, uint bytes) {
#if PORT_TRANSFERS
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(port_smem(t)), "r"(bytes) : "memory");
#endif
}
// Lanes of a simdgroup that start copies at the same time have to do so at one place in the code: the instruction uses
// registers that all lanes share, and diverged lanes would overwrite each other's. Earlier reads by threads need no
// proxy fence, since they are complete at the barrier; only writes would need one. The L2 cache is told to drop the
// copied data first: a token reads these weights once, and they are larger than the cache, so they would evict what
// every layer reads, above all code.
__forceinline__ void port_transfer_copy(void* to, const void* from, uint bytes, port_transfer* t) {
#if PORT_TRANSFERS
  ulong policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
      :: "r"(port_smem(to)), "l"(from), "r"(bytes), "r"(port_smem(t)), "l"(policy) : "memory");
#else
  for (uint i = 0; i < bytes / 16; i++) ((vec<uint, 4>*)to)[i] = ((const vec<uint, 4>*)from)[i];
#endif
}
// A copy of what other threadgroups copy too, so that it should stay in the L2 cache.
__forceinline__ void port_transfer_shared(void* to, const void* from, uint bytes, port_transfer* t) {
#if PORT_TRANSFERS
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :: "r"(port_smem(to)), "l"(from), "r"(bytes), "r"(port_smem(t)) : "memory");
#else
  port_transfer_copy(to, from, bytes, t);
#endif
}
// Waiting for the last byte is also the fence between the copies and the threads' reads.
__forceinline__ void port_transfer_wait(port_transfer* t, uint turn) {
#if PORT_TRANSFERS
  uint done;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
        : "=r"(done) : "r"(port_smem(t)), "r"(turn & 1) : "memory");
  } while (done == 0);
#endif
}

// -- arrivals: see common.h ----------------------------------------------------------------------------------
struct alignas(8) port_arrivals { ulong barrier; };  // mbarrier
__forceinline__ void port_arrivals_init(port_arrivals* a, int count, uint simdgroups) {
#if PORT_TRANSFERS
  for (int i = 0; i < count; i++) asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(port_smem(a + i)), "r"(simdgroups) : "memory");
#endif
}
__forceinline__ void port_arrive(port_arrivals* a, uint lane) {
#if PORT_TRANSFERS
  __syncwarp();
  if (lane == 0) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(port_smem(a)) : "memory");
#endif
}
__forceinline__ void port_arrivals_wait(port_arrivals* a, uint turn) { port_transfer_wait((port_transfer*)a, turn); }

// -- copies by threads: see common.h -------------------------------------------------------------------------
__forceinline__ uchar* port_panels(uchar* memory) { return memory + ((0u - port_smem(memory)) & 1023u); }
__forceinline__ void port_copy(void* to, const void* from, bool present) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
      :: "r"(port_smem(to)), "l"(from), "r"(present ? 16 : 0) : "memory");
}
__forceinline__ void port_copy_half(void* to, const void* from, bool present) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
      :: "r"(port_smem(to)), "l"(from), "r"(present ? 8 : 0) : "memory");
}
__forceinline__ void port_copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// The fence is for instructions of several simdgroups, which read past the threads' own order of memory.
__forceinline__ void port_panels_written() {
#if __CUDA_ARCH__ >= 900 && __CUDACC_VER_MAJOR__ >= 12
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
template <int N> __forceinline__ void port_copies_arrived() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
template <int N> __forceinline__ void port_copies_wait() {
  port_copies_arrived<N>();
  port_panels_written();
}

__forceinline__ void port_mma_u8s8(int* c, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__forceinline__ void port_mma_bf16(float* c, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// -- products of four simdgroups: see common.h ---------------------------------------------------------------
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define PORT_GROUPS 1
__forceinline__ void port_group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__forceinline__ void port_group_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __forceinline__ void port_group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
// Keeps the compiler from reading N sums before the wait in front of it.
template <int N> __forceinline__ void port_group_taken(float* c) {
  UNROLL for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i]) :: "memory");
}
// b for the instruction: 8x8 matrices of 128 bytes, those of other columns one behind the other, those of the other rows
// EIGHTS of them further.
template <int EIGHTS> __forceinline__ ulong port_group_operand(const uchar* memory, uint b) {
  const uint low = (port_smem(memory) >> 4 | EIGHTS * 8u << 16) + b / 16;
  ulong whole;
  asm("mov.b64 %0, {%1, %2};" : "=l"(whole) : "r"(low), "r"(8u));
  return whole;
}
// Panels at a place in memory, stride bytes apart: eights of rows are 1024 bytes apart, and their pieces in the order of
// 128-byte swizzling. Only the lower half differs between instructions, so that it is computed in 32 bits.
__forceinline__ ulong port_panel_operand(const uchar* memory, uint place, uint stride) {
  const uint low = (port_smem(memory) >> 4 | stride >> 4 << 16) + place / 16;
  ulong whole;
  asm("mov.b64 %0, {%1, %2};" : "=l"(whole) : "r"(low), "r"(64u | 1u << 30));
  return whole;
}
#define PORT_SUMS4(i) "+f"(c[i]), "+f"(c[(i) + 1]), "+f"(c[(i) + 2]), "+f"(c[(i) + 3])
#define PORT_SUMS16(i) PORT_SUMS4(i), PORT_SUMS4((i) + 4), PORT_SUMS4((i) + 8), PORT_SUMS4((i) + 12)
#define PORT_SUMS32(i) PORT_SUMS16(i), PORT_SUMS16((i) + 16)
#define PORT_SUMS64(i) PORT_SUMS32(i), PORT_SUMS32((i) + 32)
#define PORT_SUMS128(i) PORT_SUMS64(i), PORT_SUMS64((i) + 64)
// The registers of sums in an instruction's text.
#define PORT_NAMES16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define PORT_NAMES32 PORT_NAMES16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define PORT_NAMES64                                                               \
  PORT_NAMES32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47" \
               ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define PORT_NAMES128                                                                          \
  PORT_NAMES64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"             \
               ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"             \
               ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111" \
               ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define PORT_WGMMA(columns) "wgmma.mma_async.sync.aligned.m64n" #columns "k16.f32.bf16.bf16 "
// The instruction for a number of eights of columns, with n registers of sums: a in registers or a panel. With FRESH the
// sums start with zeros; with TURNED rows of b's panels are k instead of columns.
template <int EIGHTS> struct port_group;
#define PORT_GROUP(eights, columns, n, r0, r1, r2, r3, r4, r5, r6)                                                   \
  template <> struct port_group<eights> {                                                                           \
    template <int FRESH, int TURNED>                                                                                \
    static __forceinline__ void multiply(float* c, uint a0, uint a1, uint a2, uint a3, ulong b) {                   \
      asm volatile(PORT_WGMMA(columns) "{" PORT_NAMES##n "}, {" r0 "," r1 "," r2 "," r3 "}, " r4 ", " r5 ", 1, 1, " r6 ";" \
          : PORT_SUMS##n(0) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "n"(1 - FRESH), "n"(TURNED));              \
    }                                                                                                               \
    template <int FRESH>                                                                                            \
    static __forceinline__ void multiply(float* c, ulong a, ulong b) {                                              \
      asm volatile(PORT_WGMMA(columns) "{" PORT_NAMES##n "}, " r0 ", " r1 ", " r2 ", 1, 1, 0, 0;"                   \
          : PORT_SUMS##n(0) : "l"(a), "l"(b), "n"(1 - FRESH));                                                       \
    }                                                                                                               \
  };
PORT_GROUP(4, 32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
PORT_GROUP(8, 64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
PORT_GROUP(16, 128, 64, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
PORT_GROUP(32, 256, 128, "%128", "%129", "%130", "%131", "%132", "%133", "%134")
template <int EIGHTS>
__forceinline__ void port_group_multiply(float* c, uint a0, uint a1, uint a2, uint a3, const uchar* memory, uint b, int lane) {
  port_group<EIGHTS>::template multiply<0, 0>(c, a0, a1, a2, a3, port_group_operand<EIGHTS>(memory, b));
}
template <int EIGHTS, int FRESH>
__forceinline__ void port_group_panels(float* c, const uchar* memory, uint a, uint a_stride, uint b, uint b_stride, uint step, int thread_index) {
  port_group<EIGHTS>::template multiply<FRESH>(c, port_panel_operand(memory, a + step / 4 * a_stride + step % 4 * 32, 16),
      port_panel_operand(memory, b + step / 4 * b_stride + step % 4 * 32, 16));
}
template <int EIGHTS>
__forceinline__ void port_group_columns(float* c, const uint* a, const uchar* memory, uint b, uint b_stride, uint step, int thread_index) {
  port_group<EIGHTS>::template multiply<0, 1>(c, a[0], a[1], a[2], a[3], port_panel_operand(memory, b + 2048 * step, b_stride));
}
#else
#define PORT_GROUPS 0
#endif

template <class T> __forceinline__ T simd_shuffle_xor(T v, ushort m) { return __shfl_xor_sync(~0u, v, m); }
template <class T> __forceinline__ T simd_shuffle_down(T v, ushort d) { return __shfl_down_sync(~0u, v, d); }
template <class T> __forceinline__ T simd_shuffle_up(T v, ushort d) { return __shfl_up_sync(~0u, v, d); }
template <class T> __forceinline__ T simd_shuffle(T v, ushort l) { return __shfl_sync(~0u, v, l); }
template <class T> __forceinline__ T simd_broadcast(T v, ushort l) { return __shfl_sync(~0u, v, l); }
template <class T> __forceinline__ T simd_broadcast_first(T v) { return __shfl_sync(~0u, v, 0); }
template <class T> __forceinline__ T simd_sum(T v) {
  UNROLL for (int m = 16; m; m >>= 1) v += __shfl_xor_sync(~0u, v, m); return v; }
template <class T> __forceinline__ T simd_max(T v) {
  UNROLL for (int m = 16; m; m >>= 1) { T o = __shfl_xor_sync(~0u, v, m); v = o > v ? o : v; } return v; }
template <class T> __forceinline__ T simd_min(T v) {
  UNROLL for (int m = 16; m; m >>= 1) { T o = __shfl_xor_sync(~0u, v, m); v = o < v ? o : v; } return v; }
__forceinline__ bool simd_any(bool b) { return __any_sync(~0u, b); }
__forceinline__ bool simd_all(bool b) { return __all_sync(~0u, b); }
// Returns the lanes where b is true, lane 0 in the lowest bit.
__forceinline__ uint port_ballot(bool b) { return __ballot_sync(~0u, b); }
#if __CUDA_ARCH__ >= 800
template <> __forceinline__ uint simd_min<uint>(uint v) {
  uint r; asm volatile("redux.sync.min.u32 %0, %1, 0xffffffff;" : "=r"(r) : "r"(v)); return r; }
#endif

// The same functions as the global ones, so that `using namespace metal` is not ambiguous.
using ::min; using ::max; using ::exp; using ::exp2; using ::log; using ::sqrt; using ::rsqrt;
using ::fma; using ::fabs; using ::floor; using ::abs; using ::pow; using ::sin; using ::cos;
template <class T> __forceinline__ T clamp(T v, T lo, T hi) { return v < lo ? lo : (v > hi ? hi : v); }
template <class T> __forceinline__ T select(T a, T b, bool c) { return c ? b : a; }
__forceinline__ uint popcount(uint v) { return __popc(v); }
__forceinline__ uint mulhi(uint a, uint b) { return __umulhi(a, b); }
namespace fast {
__forceinline__ float exp(float v) { return __expf(v); }
__forceinline__ float log(float v) { return __logf(v); }
__forceinline__ float exp2(float v) { float r; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v)); return r; }
// The error is at most 2 units in the last place for b below 2^126. For larger b the result is 0.
__forceinline__ float divide(float a, float b) { float r; asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
}
namespace precise {
__forceinline__ float rsqrt(float v) { return ::rsqrtf(v); }
__forceinline__ float exp(float v) { return ::expf(v); }
__forceinline__ float log(float v) { return ::logf(v); }
__forceinline__ float sqrt(float v) { return ::sqrtf(v); }
__forceinline__ float exp2(float v) { return ::exp2f(v); }
__forceinline__ float sin(float v) { return ::sinf(v); }
__forceinline__ float cos(float v) { return ::cosf(v); }
__forceinline__ float pow(float a, float b) { return ::powf(a, b); }
}

// -- simdgroup_matrix 8x8 ------------------------------------------------------
// Fragment order on NVIDIA: lane l holds row l/4, columns 2*(l%4) and +1. A
// transposed load keeps the untransposed fragment and a flag; the flag is a
// constant after inlining, so the transposition costs nothing for W^T operands.
template <class T, int R, int C> struct simdgroup_matrix;
template <> struct simdgroup_matrix<float, 8, 8> { float v[2]; };
template <> struct simdgroup_matrix<bfloat, 8, 8> { uint v; bool t; };
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
__forceinline__ uint port_lane() { uint l; asm("mov.u32 %0, %%laneid;" : "=r"(l)); return l; }
template <class T, int R, int C> __forceinline__ simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T f) {
  simdgroup_matrix<T, R, C> m; m.v[0] = m.v[1] = f; return m; }
__forceinline__ void simdgroup_load(simdgroup_bfloat8x8& m, const bfloat* p, ulong ld, vec<ulong, 2> = {}, bool tr = false) {
  uint l = port_lane();
  m.v = *(const uint*)(p + (l >> 2) * ld + (l & 3) * 2);
  m.t = tr;
}
__forceinline__ uint port_movmatrix(uint a) {
  uint d; asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a)); return d; }
__forceinline__ void simdgroup_multiply_accumulate(simdgroup_float8x8& d, const simdgroup_bfloat8x8& a,
                                                   const simdgroup_bfloat8x8& b, const simdgroup_float8x8& c) {
  uint av = a.t ? port_movmatrix(a.v) : a.v;
  uint bv = b.t ? b.v : port_movmatrix(b.v);
  float d2, d3;
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%9};"
      : "=f"(d.v[0]), "=f"(d.v[1]), "=f"(d2), "=f"(d3)
      : "r"(av), "r"(0), "r"(bv), "f"(c.v[0]), "f"(c.v[1]), "f"(0.0f));
}
__forceinline__ void simdgroup_store(const simdgroup_float8x8& m, float* p, ulong ld) {
  uint l = port_lane();
  p[(l >> 2) * ld + (l & 3) * 2] = m.v[0];
  p[(l >> 2) * ld + (l & 3) * 2 + 1] = m.v[1];
}

// Returns number i of the four 16-bit numbers in a and b, twice.
__forceinline__ uint port_twice(uint a, uint b, int i) { return __byte_perm(a, b, 0x1010u + uint(i) * 0x2222u); }

// Returns v & mask | bits in one instruction. The compiler makes two where mask and bits are constants.
__forceinline__ uint port_and_or(uint v, uint mask, uint bits) {
  uint r; asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(v), "r"(mask), "r"(bits)); return r; }

__forceinline__ uint port_fma_pair(uint a, uint b, uint c) {
  uint r; asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c)); return r; }

// A code q of 4 bits with nothing else in its 16 bits is a number in bf16: q * 2^-133 in the lowest four bits, and q * 2^-129 in the next
// four (a subnormal number, but for codes from 8 on there, whose top bit is the lowest of the exponent). fma.rn.bf16x2 does not flush
// subnormals to zero, so one instruction makes two weights, if the scale is multiplied by 2^133 or 2^129. Most scales would be
// infinite then. So scales are multiplied by 2^101 or 2^97 and biases by 2^-32, and weights come out divided by 2^32.
#define PORT_DEQUANT_UNIT 4294967296.0f
typedef vec<uint, 3> port_affine;  // 2^101 scale, 2^97 scale and 2^-32 bias, twice each
__forceinline__ port_affine port_affine_of(uint scale, uint bias) {
  const uint nothing = 0x80008000u;  // -0, which changes no product
  return port_affine(port_fma_pair(scale, 0x72007200u, nothing), port_fma_pair(scale, 0x70007000u, nothing),
                     port_fma_pair(bias, 0x2f802f80u, nothing));
}
__forceinline__ vec<uint, 4> port_dequant_pairs(uint w, port_affine a) {
  const uint v = w >> 8;
  return vec<uint, 4>(port_fma_pair(w & 0x000f000fu, a.x, a.z), port_fma_pair(w & 0x00f000f0u, a.y, a.z),
                      port_fma_pair(v & 0x000f000fu, a.x, a.z), port_fma_pair(v & 0x00f000f0u, a.y, a.z));
}
// Converts eight 4-bit codes to bf16(scale * q + bias), in the order of columns.
__forceinline__ vec<uint, 4> port_dequant8(uint w, bfloat scale, bfloat bias) {
  vec<uint, 4> d = port_dequant_pairs(w, port_affine_of(uint(scale.bits) * 0x10001u, uint(bias.bits) * 0x10001u));
  UNROLL for (int i = 0; i < 4; i++) d[i] = port_fma_pair(d[i], 0x4f804f80u, 0x80008000u);  // times PORT_DEQUANT_UNIT
  return vec<uint, 4>(__byte_perm(d[0], d[1], 0x5410), __byte_perm(d[2], d[3], 0x5410),
                      __byte_perm(d[0], d[1], 0x7632), __byte_perm(d[2], d[3], 0x7632));
}
// Two numbers rounded to bf16, the first in the lower half.
__forceinline__ uint port_pack_bf16(float a, float b) {
  uint r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a)); return r; }
__forceinline__ vec<uint, 4> port_dequant8(uint w, float scale, float bias) {
  vec<uint, 4> r;
  UNROLL for (int i = 0; i < 4; i++)
    r[i] = port_pack_bf16(scale * float((w >> (8 * i)) & 15u) + bias, scale * float((w >> (8 * i + 4)) & 15u) + bias);
  return r;
}
// Returns 1 + (byte i of w without its top bit) / 128, for a byte whose top bit is set: one PRMT instruction.
__forceinline__ float port_byte_unit(uint w, int i) { return __uint_as_float(__byte_perm(w, 0x3f000000u, 0x7044u | (i << 8))); }

// Returns byte i of w: one PRMT instruction makes 2^23 + byte.
__forceinline__ float port_byte_float(uint w, int i) { return __uint_as_float(__byte_perm(w, 0x4b000000u, 0x7440u | i)) - 8388608.0f; }

// -- tile16 ----------------------------------------------------------------------
struct tile_a { uint r[4]; };
struct tile_b { uint r[4]; };
struct tile_c { float r[8]; };
__forceinline__ void tile_zero(tile_c& c) { UNROLL for (int i = 0; i < 8; i++) c.r[i] = 0; }
__forceinline__ void tile_load_a(tile_a& a, const bfloat* p, uint ld, uint lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(a.r[0]), "=r"(a.r[1]), "=r"(a.r[2]), "=r"(a.r[3])
      : "r"(port_smem(p + (lane & 15) * ld + (lane >> 4) * 8)) : "memory");
}
__forceinline__ void tile_load_bt(tile_b& b, const bfloat* p, uint ld, uint lane) {
  // matrices: n 0-7 k 0-7 | n 0-7 k 8-15 | n 8-15 k 0-7 | n 8-15 k 8-15
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(b.r[0]), "=r"(b.r[1]), "=r"(b.r[2]), "=r"(b.r[3])
      : "r"(port_smem(p + ((lane & 7) + (lane >> 4) * 8) * ld + ((lane >> 3) & 1) * 8)) : "memory");
}
// p has B not transposed: 16 rows of k, 16 columns of n.
__forceinline__ void tile_load_b(tile_b& b, const bfloat* p, uint ld, uint lane) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
      : "=r"(b.r[0]), "=r"(b.r[1]), "=r"(b.r[2]), "=r"(b.r[3])
      : "r"(port_smem(p + (lane & 15) * ld + (lane >> 4) * 8)) : "memory");
}
__forceinline__ void tile_mma(tile_c& c, tile_a& a, tile_b& b) {
  UNROLL for (int j = 0; j < 2; j++)
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c.r[j * 4]), "+f"(c.r[j * 4 + 1]), "+f"(c.r[j * 4 + 2]), "+f"(c.r[j * 4 + 3])
        : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[j * 2]), "r"(b.r[j * 2 + 1]));
}
typedef vec<short, 2> port_short2;
__forceinline__ port_short2 tile_coord(uint lane, short e) {
  return port_short2(short((lane >> 2) + ((e >> 1) & 1) * 8), short((e >> 2) * 8 + (lane & 3) * 2 + (e & 1)));
}
__forceinline__ float tile_get(tile_c& c, short e) { return c.r[e]; }
__forceinline__ void tile_set(tile_c& c, short e, float v) { c.r[e] = v; }
__forceinline__ void tile_set_a(tile_a& a, short i, float v0, float v1) { a.r[i] = port_pack_bf16(v0, v1); }
__forceinline__ short tile_row(short e) { return (e >> 1) & 1; }
__forceinline__ float tile_row_sum(float v) {
  v += __shfl_xor_sync(~0u, v, 1);
  return v + __shfl_xor_sync(~0u, v, 2);
}
__forceinline__ float tile_row_max(float v) {
  v = max(v, __shfl_xor_sync(~0u, v, 1));
  return max(v, __shfl_xor_sync(~0u, v, 2));
}

// -- where am I ------------------------------------------------------------------
__forceinline__ uint port_tidx() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }
}  // namespace metal
using namespace metal;

#define PORT_threadgroup_position_in_grid() vec<uint, 3>(blockIdx.x, blockIdx.y, blockIdx.z)
#define PORT_threadgroups_per_grid() vec<uint, 3>(gridDim.x, gridDim.y, gridDim.z)
#define PORT_threads_per_threadgroup() vec<uint, 3>(blockDim.x, blockDim.y, blockDim.z)
#define PORT_thread_position_in_threadgroup() vec<uint, 3>(threadIdx.x, threadIdx.y, threadIdx.z)
#define PORT_thread_position_in_grid()                                                           \
  vec<uint, 3>(blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,     \
               blockIdx.z * blockDim.z + threadIdx.z)
#define PORT_thread_index_in_threadgroup() port_tidx()
#define PORT_thread_index_in_simdgroup() (port_tidx() & 31u)
#define PORT_simdgroup_index_in_threadgroup() (port_tidx() >> 5)
#define PORT_simdgroups_per_threadgroup() ((blockDim.x * blockDim.y * blockDim.z + 31u) >> 5)

// Metal's vector names; CUDA has built-in types of the same names.
#define float2 vec<float, 2>
#define float3 vec<float, 3>
#define float4 vec<float, 4>
#define uint2 vec<uint, 2>
#define uint3 vec<uint, 3>
#define uint4 vec<uint, 4>
#define int2 vec<int, 2>
#define int4 vec<int, 4>
#define short2 vec<short, 2>
#define ushort2 vec<ushort, 2>
#define ulong2 vec<ulong, 2>

// On Windows long has 32 bits.
#define long port_long
#define device
#define constant const
#define threadgroup
#define thread
#define kernel static __forceinline__
