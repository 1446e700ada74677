// Stored weights [N, K], as the defines say:
//   WEIGHT_BITS    4 or 8: affine codes in words of 32 bits, the first code in the lowest bits; 16: bf16; 32: f32
//   WEIGHT_GROUP   columns that share a scale and a bias; w = scale * q + bias
//   WEIGHT_SCALE   bfloat or float, the type of scales and biases
//   WEIGHT_BIASES  0: there are none stored, and bias = -2^(bits-1) * scale
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
#define WEIGHT_QUANTIZED (WEIGHT_BITS < 16)
#define WEIGHT_WORDS(k) ((k) * WEIGHT_BITS / 32)  // 32-bit words that k columns take

// The scale and the bias of a group, by its number: row * K / WEIGHT_GROUP + column / WEIGHT_GROUP.
inline float2 weight_affine(device const WEIGHT_SCALE* scales, device const WEIGHT_SCALE* biases, long group) {
  const float s = float(scales[group]);
#if WEIGHT_BIASES
  return float2(s, float(biases[group]));
#else
  return float2(s, s * -float(1 << (WEIGHT_BITS - 1)));
#endif
}

// Eight columns from column k (a multiple of 8) of a row of K.
inline void weight_read8(device const uint* w, device const WEIGHT_SCALE* scales, device const WEIGHT_SCALE* biases,
                         long row, int k, int K, thread float* out) {
  w += row * WEIGHT_WORDS(K) + WEIGHT_WORDS(k);
#if WEIGHT_QUANTIZED
  const float2 affine = weight_affine(scales, biases, row * (K / WEIGHT_GROUP) + k / WEIGHT_GROUP);
#endif
#if WEIGHT_BITS == 4
  const uint word = w[0];
  UNROLL for (int i = 0; i < 8; i++) out[i] = affine.x * float((word >> (4 * i)) & 15u) + affine.y;
#elif WEIGHT_BITS == 8
  const uint2 words = *(device const uint2*)w;
  UNROLL for (int i = 0; i < 8; i++) out[i] = affine.x * port_byte_float(words[i / 4], i % 4) + affine.y;
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
