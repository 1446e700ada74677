// Code that all targets share. It follows the prelude of the target.

// Transfers are asynchronous copies from device memory to threadgroup memory. A port_transfer, in a TG_ARRAY, counts
// copies that are under way, in rounds numbered from 0 (the parameter turn). One thread initializes it, and before each
// round says how many bytes will come (port_transfer_expect); then any threads start copies. A threadgroup_barrier is
// needed between the initialization and the use by other threads, and between reading what has arrived and starting the
// copies of the next round. Whole simdgroups wait. Where PORT_TRANSFERS is not 0, they may wait before the round is
// announced; elsewhere a threadgroup_barrier has to stand between. Addresses and sizes are multiples of 16.
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
// last N that have ended. PORT_GROUPS says that the device has an instruction for it.

// The buffer step has the numbers that change from call to call, so that a recorded sequence can be replayed:
// step[STEP_TOKENS] is the number of rows of x, step[STEP_POSITION] the position of the first one in its sequence.
// Grids may have more rows than that; those do nothing.
#define STEP_TOKENS 0
#define STEP_POSITION 1

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

#if !PORT_GROUPS
inline void port_group_begin() {}
inline void port_group_end() {}
template <int N> inline void port_group_wait() {}
template <int EIGHTS>
inline void port_group_multiply(thread float* c, uint a0, uint a1, uint a2, uint a3, threadgroup const uchar* b, int lane) {
  threadgroup const uint* words = (threadgroup const uint*)b + lane;
  UNROLL for (int n = 0; n < EIGHTS; n++) port_mma_bf16(c + n * 4, a0, a1, a2, a3, words[n * 32], words[(EIGHTS + n) * 32]);
}
#endif
