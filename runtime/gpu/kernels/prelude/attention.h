// Attention over a cache of keys and values in fp32: code that attention.metal, attention_step.metal and
// block_attention.metal share.
//
// A simdgroup serves ATT_H query heads of one key-value head for ATT_Q tokens. It takes ATT_TOKENS keys at a time, so
// that each lane has one score. Token t of the call is at position p = step[POSITION] + t, whose key lies in slot p mod
// SLOTS. It attends to the positions up to p that the cache has a slot for; with WINDOW, to the last WINDOW of them.

#ifndef ATT_D
#define ATT_D 64             // width of a head, a multiple of 32
#define ATT_HEADS 1
#define ATT_KV_HEADS 1
#define ATT_H 1
#define ATT_Q 1
#define ATT_TOKENS 32        // H · Q · TOKENS is 2, 4, 8, 16 or 32
#define ATT_SIMDGROUPS 4
#define ATT_BLOCKS 1         // that a query's positions may be divided into
#define ATT_LEAST 64         // positions of a block, so that short contexts use fewer blocks
#define ATT_SLICES 1
#define ATT_SLOTS 1
#define ATT_WINDOW 0
#define ATT_SCALE 1.0f       // of the scores, times log2(e)
#define ATT_BF16 0           // dtype of the cache: bf16 or f32
#define ATT_GATED 0          // the output times sigmoid(gate)
#define ATT_GATE_TOKEN 64
#define ATT_GATE_HEAD 64
#endif
#define ATT_GROUP (ATT_HEADS / ATT_KV_HEADS)
#define ATT_QUERIES (ATT_H * ATT_Q)
#define ATT_SCORES (ATT_QUERIES * ATT_TOKENS)
#define ATT_EACH (ATT_D / 32)

// A lane has ATT_PARTS runs of ATT_VEC neighbouring elements of a row, as raw words.
#if ATT_BF16
#define ATT_T bfloat
#if ATT_D % 256 == 0
#define ATT_VEC 8
#define ATT_RAW uint4
#elif ATT_D % 128 == 0
#define ATT_VEC 4
#define ATT_RAW uint2
#elif ATT_D % 64 == 0
#define ATT_VEC 2
#define ATT_RAW uint
#else
#define ATT_VEC 1
#define ATT_RAW ushort
#endif
#else
#define ATT_T float
#if ATT_D % 128 == 0
#define ATT_VEC 4
#define ATT_RAW uint4
#elif ATT_D % 64 == 0
#define ATT_VEC 2
#define ATT_RAW uint2
#else
#define ATT_VEC 1
#define ATT_RAW uint
#endif
#endif
#define ATT_PARTS (ATT_EACH / ATT_VEC)

inline uint att_word(uint4 v, int i) { return v[i]; }
inline uint att_word(uint2 v, int i) { return v[i]; }
inline uint att_word(uint v, int i) { return v; }
inline uint att_word(ushort v, int i) { return uint(v) << 16; }
// Returns element i of what a lane has read.
inline float att_element(ATT_RAW v, int i) {
#if !ATT_BF16
  return as_type<float>(att_word(v, i));
#elif ATT_VEC == 1
  return as_type<float>(att_word(v, 0));
#else
  return i % 2 == 0 ? port_bf16_low(att_word(v, i / 2)) : port_bf16_high(att_word(v, i / 2));
#endif
}

// One step of adding 2W columns over pairs of lanes that are W apart: each lane keeps W columns.
template <int W> inline void att_fold(thread float* s, uint lane) {
  const bool up = (lane & uint(W)) != 0;
  UNROLL for (int i = 0; i < W; i++) {
    const float send = up ? s[i] : s[i + W];
    const float keep = up ? s[i + W] : s[i];
    s[i] = keep + simd_shuffle_xor(send, ushort(W));
  }
}

// Adds s over 32 lanes. Each lane then has sum number lane mod N in s[0].
template <int N> inline void att_gather(thread float* s, uint lane) {
  UNROLL for (int w = 16; w >= N; w /= 2) {
    UNROLL for (int i = 0; i < N; i++) s[i] += simd_shuffle_xor(s[i], ushort(w));
  }
  if (N >= 32) att_fold<16>(s, lane);
  if (N >= 16) att_fold<8>(s, lane);
  if (N >= 8) att_fold<4>(s, lane);
  if (N >= 4) att_fold<2>(s, lane);
  if (N >= 2) att_fold<1>(s, lane);
}

// Computes a lane's share of the scores s [QUERIES][TOKENS] of the queries q [QUERIES][EACH] and TOKENS keys k
// [TOKENS][PARTS].
template <int QUERIES> inline void att_scores(thread const float* q, thread const ATT_RAW* k, thread float* s) {
  UNROLL for (int j = 0; j < ATT_TOKENS; j++) {
    UNROLL for (int r = 0; r < QUERIES; r++) {
      float a = 0.0f;
      UNROLL for (int i = 0; i < ATT_EACH; i++) a += q[r * ATT_EACH + i] * att_element(k[j * ATT_PARTS + i / ATT_VEC], i % ATT_VEC);
      s[r * ATT_TOKENS + j] = a;
    }
  }
}

// Adds the scores s over lanes and returns the attention weight of the lane's query and key. The lane's number mod
// QUERIES · TOKENS selects both. m is the query's largest score so far, l the sum of the weights of the lane's query
// and key number. l and the sums o [QUERIES][EACH] are rescaled to the new m. visible says whether the query attends to
// that key.
template <int QUERIES> inline float att_weigh(thread float* s, bool visible, uint lane, thread float& m, thread float& l, thread float* o) {
  att_gather<QUERIES * ATT_TOKENS>(s, lane);
  const float score = visible ? s[0] : -1e30f;
  float top = score;
  UNROLL for (int w = 1; w < ATT_TOKENS; w *= 2) top = max(top, simd_shuffle_xor(top, ushort(w)));
  if (simd_any(top > m)) {
    const float grown = max(m, top);
    const float f = fast::exp2(m - grown);
    m = grown;
    l *= f;
    UNROLL for (int r = 0; r < QUERIES; r++) {
      const float fr = simd_shuffle(f, ushort(r * ATT_TOKENS));
      UNROLL for (int i = 0; i < ATT_EACH; i++) o[r * ATT_EACH + i] *= fr;
    }
  }
  const float e = visible ? fast::exp2(score - m) : 0.0f;
  l += e;
  return e;
}

// Adds TOKENS values v [TOKENS][PARTS] to o, with the weights that att_weigh returned to the lanes.
template <int QUERIES> inline void att_add(float weight, thread const ATT_RAW* v, thread float* o) {
  UNROLL for (int r = 0; r < QUERIES; r++) {
    UNROLL for (int j = 0; j < ATT_TOKENS; j++) {
      const float p = simd_shuffle(weight, ushort(r * ATT_TOKENS + j));
      UNROLL for (int i = 0; i < ATT_EACH; i++) o[r * ATT_EACH + i] += p * att_element(v[j * ATT_PARTS + i / ATT_VEC], i % ATT_VEC);
    }
  }
}

// Returns the positions [x, y) that a query at a position attends to. last is the last position that was written.
inline int2 att_visible(int at, int last) {
  int low = max(0, last - ATT_SLOTS + 1);
  if (ATT_WINDOW > 0) low = max(low, at - ATT_WINDOW + 1);
  return int2(low, at + 1);
}
// Returns the number of blocks that n positions are divided into.
inline int att_blocks(int n) { return clamp((n + ATT_LEAST - 1) / ATT_LEAST, 1, ATT_BLOCKS); }
