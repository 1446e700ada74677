// Stored weights [N, K], as the defines say:
//   WEIGHT_BITS    4 or 8: affine codes in words of 32 bits, the first code in the lowest bits; 16: bf16; 32: f32
//   WEIGHT_GROUP   columns that share a scale and a bias; w = scale * q + bias
//   WEIGHT_SCALE   bfloat or float, the type of scales and biases
//   WEIGHT_BIASES  0: there are none stored, and bias = -2^(bits-1) * scale
//   WEIGHT_FLOATS  1: codes are floats, e2m1 of 4 bits and e4m3 of 8 (OCP Microscaling Formats 1.0), and scales are bytes,
//                  e8m0: w = 2^(s - 127) * q, or in groups of 16 e4m3; WEIGHT_SCALE is uchar, WEIGHT_BIASES 0
#ifndef WEIGHT_BITS
#define WEIGHT_BITS 4
#endif
#ifndef WEIGHT_GROUP
#define WEIGHT_GROUP 64
#endif
#ifndef WEIGHT_SCALE
#define WEIGHT_SCALE bfloat
#endif
#ifndef WEIGHT_BIASES
#define WEIGHT_BIASES 1
#endif
#ifndef WEIGHT_FLOATS
#define WEIGHT_FLOATS 0
#endif
#define WEIGHT_QUANTIZED (WEIGHT_BITS < 16)
#define WEIGHT_WORDS(k) ((k) * WEIGHT_BITS / 32)  // 32-bit words that k columns take

// Returns the number of an e4m3 code. NaN does not occur.
inline float weight_e4m3(uint q) {
  const uint m = q & 127u;
  const float normal = as_type<float>((m << 20) + (120u << 23));
  const float v = m < 8u ? float(m) * 0.001953125f : normal;
  return as_type<float>(as_type<uint>(v) | (q & 128u) << 24);
}

// Returns the scale and the bias of a group, whose number is row * K / WEIGHT_GROUP + column / WEIGHT_GROUP. For float
// codes of 4 bits the scale is halved, see weight_code4.
inline float2 weight_affine(device const WEIGHT_SCALE* scales, device const WEIGHT_SCALE* biases, long group) {
#if WEIGHT_FLOATS
  const uint e = uint(scales[group]);
#if WEIGHT_GROUP == 16
  const float s = weight_e4m3(e);
#else
  const float s = as_type<float>(e == 0u ? 0x00400000u : e << 23);
#endif
  return float2(WEIGHT_BITS == 4 ? 0.5f * s : s, 0.0f);
#elif WEIGHT_BIASES
  const float s = float(scales[group]);
  return float2(s, float(biases[group]));
#else
  const float s = float(scales[group]);
  return float2(s, s * -float(1 << (WEIGHT_BITS - 1)));
#endif
}

// Returns code i of a word of eight: q or, for float codes, twice their number, which is 0, 1, 2, 3, 4, 6, 8 or 12.
inline float weight_code4(uint word, int i) {
#if WEIGHT_FLOATS
  const uint q = word >> (4 * i);
  const float twice = float((0xc8643210u >> (4u * (q & 7u))) & 15u);
  return as_type<float>(as_type<uint>(twice) | (q & 8u) << 28);
#else
  return float((word >> (4 * i)) & 15u);
#endif
}
// Returns code i of a word of four.
inline float weight_code8(uint word, int i) {
#if WEIGHT_FLOATS
  return weight_e4m3(word >> (8 * i));
#else
  return port_byte_float(word, i);
#endif
}

// Reads eight columns of a row of K, from column k (a multiple of 8) on.
inline void weight_read8(device const uint* w, device const WEIGHT_SCALE* scales, device const WEIGHT_SCALE* biases,
                         long row, int k, int K, thread float* out) {
  w += row * WEIGHT_WORDS(K) + WEIGHT_WORDS(k);
#if WEIGHT_QUANTIZED
  const float2 affine = weight_affine(scales, biases, row * (K / WEIGHT_GROUP) + k / WEIGHT_GROUP);
#endif
#if WEIGHT_BITS == 4
  const uint word = w[0];
  UNROLL for (int i = 0; i < 8; i++) out[i] = affine.x * weight_code4(word, i) + affine.y;
#elif WEIGHT_BITS == 8
  const uint2 words = *(device const uint2*)w;
  UNROLL for (int i = 0; i < 8; i++) out[i] = affine.x * weight_code8(words[i / 4], i % 4) + affine.y;
#elif WEIGHT_BITS == 16
  const uint4 words = *(device const uint4*)w;
  UNROLL for (int i = 0; i < 4; i++) {
    out[2 * i] = port_bf16_low(words[i]);
    out[2 * i + 1] = port_bf16_high(words[i]);
  }
#else
  device const float4* f = (device const float4*)w;
  UNROLL for (int i = 0; i < 2; i++) {
    const float4 v = f[i];
    UNROLL for (int j = 0; j < 4; j++) out[4 * i + j] = v[j];
  }
#endif
}
