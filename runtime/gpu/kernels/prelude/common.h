// Code that all targets share. It follows the prelude of the target.

// Transfers are asynchronous copies from device memory to threadgroup memory. A port_transfer, in a TG_ARRAY, counts
// copies that are under way, in rounds numbered from 0 (the parameter turn). One thread initializes it, and before each
// round says how many bytes will come (port_transfer_expect); then any threads start copies. A threadgroup_barrier is
// needed between the initialization and the use by other threads, and between reading what has arrived and starting the
// copies of the next round. Whole simdgroups wait. Where PORT_TRANSFERS is not 0, they may wait before the round is
// announced; elsewhere a threadgroup_barrier has to stand between. Addresses and sizes are multiples of 16.
//
// A port_arrivals, in a TG_ARRAY, counts simdgroups that arrive, in rounds numbered from 0 (the parameter turn). One thread says how
// many simdgroups arrive in a round (port_arrivals_init); a threadgroup_barrier follows. A whole simdgroup arrives (port_arrive). A
// whole simdgroup waits until all have arrived in a round (port_arrivals_wait); it may not wait for a round any more when the round
// after it is complete. Arrivals exist only where PORT_TRANSFERS is not 0.
//
// port_mma_u8s8, called by a simdgroup, computes c += a·b: a is 16x32 u8, b is 32x8 s8, c is 16x8. With g = lane / 4
// and j = lane % 4, a0 to a3 are bytes 4j to 4j + 3 of rows g and g + 8 of a's left half, then of its right half; b0
// and b1 are the same bytes of column g of b's upper and lower half; c is columns 2j and 2j + 1 of row g, then of row g
// + 8 (PTX, mma.m16n8k32). port_mma_bf16 is the same for bf16, two to a word, with sums in fp32: a is 16x16, b is 16x8
// (PTX, mma.m16n8k16).
//
// port_group_multiply<EIGHTS> is port_mma_bf16 with EIGHTS times eight columns of b, which stand in threadgroup memory:
// first rows 0 to 7 of b, then rows 8 to 15, each as EIGHTS times eight columns of eight numbers in bf16. Four
// simdgroups in a row, of which the first has a number that divides by 4, call it together, each with its own a and c
// (PTX, wgmma.m64nNk16). It may run on while they go on: they call port_group_begin before the first of several,
// port_group_end behind the last, and port_group_wait<N> before they write to a's registers or read c's of all but the
// last N that have ended, and say so of the N sums that they read then (port_group_taken<N>). PORT_GROUPS says that the device has an instruction for it.
//
// A panel is a matrix in threadgroup memory with rows of 64 numbers in bf16, at a multiple of 1024 bytes. The eight
// pieces of 16 bytes of a row are permuted (port_panel_piece), so that a piece of eight rows lies in all banks.
// port_panels aligns the memory of panels; the launch gives PORT_PANELS_ROOM bytes for that. Two products, by four
// simdgroups as port_group_multiply's, read panels at a place in aligned memory, a stride apart, both in bytes. Numbers in
// registers are those of port_group_multiply:
//   port_group_panels  c += A B^T of columns 16 step to 16 step + 15 of panels A, 64 rows, and B, EIGHTS times eight rows;
//                      with FRESH c is set, not added to
//   port_group_columns c += a B of a in registers and rows 16 step to 16 step + 15 of EIGHTS / 8 panels B
//
// port_copy starts a copy of 16 bytes to threadgroup memory, of zeros where they are not present. Every thread waits for
// its own: port_copies_end ends a group of copies, port_copies_wait<N> waits for all but the last N groups. What threads
// write to panels by themselves they follow by port_panels_written. Both stand before the barrier. port_copy_half is a
// copy of 8 bytes. port_copies_arrived<N> is port_copies_wait<N> for copies that only threads read.
//
// A pair is two numbers in bf16 in a word. port_fma_pair is a * b + c of pairs. port_twice(a, b, i) is the pair of twice number i
// of the four in a and b.
//
// port_dequant_pairs makes weights of eight 4-bit codes: pair i has columns i and i + 4, each bf16(scale * q + bias) divided by
// PORT_DEQUANT_UNIT, a power of two. Who adds up products with them multiplies the sum by it. port_affine_of makes the
// port_affine of a group of weights of its scale and its bias, twice each.

// The buffer step has the numbers that change from call to call, so that a recorded sequence can be replayed:
// step[STEP_TOKENS] is the number of rows of x, step[STEP_POSITION] the position of the first one in its sequence.
// Grids may have more rows than that; those do nothing.
#define STEP_TOKENS 0
#define STEP_POSITION 1

// Returns codes i and i + 4 of a word of 4-bit codes, plus 128 each, in bf16: the bits of 128 + q are 0x4300 | q.
inline uint port_code_pair(uint w, int i) { return port_and_or(w >> (4 * i), 0x000f000fu, 0x43004300u); }
// Returns the codes of a word less 8, in bf16, in pairs of columns i and i + 4.
inline uint4 port_codes_less_8(uint w) {
  uint4 r;
  UNROLL for (int i = 0; i < 4; i++) r[i] = port_fma_pair(port_code_pair(w, i), 0x3f803f80u, 0xc308c308u);  // 1 and -136
  return r;
}
// Returns the bias, twice, of a group of weights of 4 bits that stores none: -8 times its scale, given twice.
inline uint port_bias_of(uint scale) { return port_fma_pair(scale, 0xc100c100u, 0x80008000u); }

// The two bf16 of a word: the lower half is the first.
inline float port_bf16_low(uint word) { return as_type<float>(word << 16); }
inline float port_bf16_high(uint word) { return as_type<float>(word & 0xffff0000u); }
// Reads four numbers at an address that is a multiple of their size.
inline float4 port_four(device const float* p) { return *(device const float4*)p; }
inline float4 port_four(device const bfloat* p) {
  const uint2 words = *(device const uint2*)p;
  return float4(port_bf16_low(words.x), port_bf16_high(words.x), port_bf16_low(words.y), port_bf16_high(words.y));
}

// log(1 + e) for 0 <= e <= 2^100, accurate for small e: the error of 1 + e is divided out (Goldberg, What Every Computer
// Scientist Should Know About Floating-Point Arithmetic, 1991, theorem 4).
inline float port_log1p(float e) {
  const float u = 1.0f + e;
  const float d = u - 1.0f;
  return d == 0.0f ? e : precise::log(u) * fast::divide(e, d);
}
// Tests the bits. A compiler could optimize a comparison with itself away.
inline bool port_isnan(float x) { return (as_type<uint>(x) & 0x7fffffffu) > 0x7f800000u; }

// The divisor is from 1 to 2. 1 + e^-x would be infinite below -88, and for divisors that are infinite or above 2^126
// Metal promises nothing about fast::divide. A correctly rounded division has branches for small divisors on NVIDIA,
// and code behind a branch is not overlapped with it.
inline float port_sigmoid(float x) {
  const float e = precise::exp(-fabs(x));
  return fast::divide(x < 0.0f ? e : 1.0f, 1.0f + e);
}
inline float port_silu(float x) { return x * port_sigmoid(x); }
// Computes tanh from exp(-2|x|), which cannot overflow; for small arguments, where 1 - exp cancels, from the series.
inline float port_tanh(float x) {
  const float a = fabs(x);
  if (a < 0.03125f) {
    const float s = x * x;
    return x * (1.0f + s * (-0.33333334f + s * (0.13333334f - s * 0.053968254f)));
  }
  const float e = precise::exp(-2.0f * a);
  const float t = fast::divide(1.0f - e, 1.0f + e);
  return x < 0.0f ? -t : t;
}
// Hendrycks and Gimpel, arXiv:1606.08415, with the tanh approximation.
inline float port_gelu_tanh(float x) {
  return 0.5f * x * (1.0f + port_tanh(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}
// Abramowitz and Stegun 7.1.5 and 7.1.14: the series near 0, elsewhere the continued fraction of erfc.
inline float port_erf(float x) {
  const float a = fabs(x);
  const float s = a * a;
  float r = 1.0f;
  if (a < 1.75f) {
    float term = a;
    float sum = a;
    for (int n = 1; n < 24; n++) {
      term *= -s / float(n);
      sum += term / float(2 * n + 1);
    }
    r = 1.1283791671f * sum;
  } else if (a < 4.0f) {
    float f = a;
    for (int n = 40; n > 0; n--) f = a + 0.5f * float(n) / f;
    r = 1.0f - precise::exp(-s) * 0.5641895835f / f;
  }
  return x < 0.0f ? -r : r;
}
inline float port_gelu(float x) { return 0.5f * x * (1.0f + port_erf(x * 0.70710678f)); }

// The activations' numbers, as in the Go code.
#define ACTIVATION_NONE 0
#define ACTIVATION_SILU 1
#define ACTIVATION_SIGMOID 2
#define ACTIVATION_GELU 3
#define ACTIVATION_GELU_TANH 4
inline float port_activate(int activation, float x) {
  switch (activation) {
    case ACTIVATION_SILU: return port_silu(x);
    case ACTIVATION_SIGMOID: return port_sigmoid(x);
    case ACTIVATION_GELU: return port_gelu(x);
    case ACTIVATION_GELU_TANH: return port_gelu_tanh(x);
  }
  return x;
}

// The place of a piece of a panel's row, in bytes.
#define PORT_PANELS_ROOM 1024
inline int port_panel_piece(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) * 16); }

#if !PORT_GROUPS
inline void port_group_begin() {}
inline void port_group_end() {}
template <int N> inline void port_group_wait() {}
template <int N> inline void port_group_taken(thread float* c) {}
template <int EIGHTS>
inline void port_group_multiply(thread float* c, uint a0, uint a1, uint a2, uint a3, threadgroup const uchar* memory, uint b, int lane) {
  threadgroup const uint* words = (threadgroup const uint*)(memory + b) + lane;
  UNROLL for (int n = 0; n < EIGHTS; n++) port_mma_bf16(c + n * 4, a0, a1, a2, a3, words[n * 32], words[(EIGHTS + n) * 32]);
}
// The word with columns column and column + 1 of a panel's row.
inline uint port_panel_word(threadgroup const uchar* panel, int row, int column) {
  return *(threadgroup const uint*)(panel + port_panel_piece(row, column / 8) + column % 8 * 2);
}
template <int EIGHTS, int FRESH>
inline void port_group_panels(thread float* c, threadgroup const uchar* memory, uint a, uint a_stride, uint b, uint b_stride, uint step, int thread_index) {
  const int row = thread_index % 32 / 4, column = int(step) % 4 * 16 + thread_index % 4 * 2;
  threadgroup const uchar* panel = memory + a + step / 4 * a_stride;
  threadgroup const uchar* other = memory + b + step / 4 * b_stride;
  uint words[4];
  UNROLL for (int i = 0; i < 4; i++) words[i] = port_panel_word(panel, thread_index / 32 % 4 * 16 + row + i % 2 * 8, column + i / 2 * 8);
  UNROLL for (int n = 0; n < EIGHTS; n++) {
    UNROLL for (int i = 0; FRESH && i < 4; i++) c[n * 4 + i] = 0.0f;
    port_mma_bf16(c + n * 4, words[0], words[1], words[2], words[3], port_panel_word(other, n * 8 + row, column), port_panel_word(other, n * 8 + row, column + 8));
  }
}
template <int EIGHTS>
inline void port_group_columns(thread float* c, thread const uint* a, threadgroup const uchar* memory, uint b, uint b_stride, uint step, int thread_index) {
  const int lane = thread_index % 32, row = 16 * int(step) + lane % 4 * 2;
  UNROLL for (int n = 0; n < EIGHTS; n++) {
    threadgroup const uchar* panel = memory + b + n / 8 * b_stride;
    const int column = n % 8 * 8 + lane / 4 / 2 * 2, shift = lane / 4 % 2 * 16;
    uint words[2];
    UNROLL for (int i = 0; i < 2; i++) {
      const uint low = port_panel_word(panel, row + 8 * i, column) >> shift & 0xffffu;
      words[i] = low | (port_panel_word(panel, row + 8 * i + 1, column) >> shift & 0xffffu) << 16;
    }
    port_mma_bf16(c + n * 4, a[0], a[1], a[2], a[3], words[0], words[1]);
  }
}
#endif
