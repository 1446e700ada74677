// Products of 16 rows of weights, 4-bit codes in groups of 64 columns, with eight vectors. Codes are not dequantized before they are
// multiplied. A code q becomes the bf16 number 128 + q, for which only bits are set (port_code_pair). The scale s and the bias b of
// a group are applied in fp32, to the sum over its 64 columns:
//   sum of (s q + b) x = s * sum of (128 + q) x + (b - 128 s) * sum of x
// So weights are not rounded, and a code takes half of the instructions that it takes to dequantize it to bf16.
//
// Lane l has two rows of weights, l / 4 and l / 4 + 8. Of each group it has columns 16 (l % 4) to 16 (l % 4) + 15 of both rows: two
// words of codes for each row. It has the same columns of vector l / 4, in eight words for each group. Such a word has two bf16
// numbers, those of columns i and i + 4 of eight columns, since codes i and i + 4 come out of a word of codes together.
#define RAW_COLUMNS 256                          // columns of a row in one call of raw_multiply; four lanes share them
#define RAW_GROUPS (RAW_COLUMNS / WEIGHT_GROUP)

// A lane's share of RAW_COLUMNS columns of its two rows.
struct raw_rows {
  uint2 codes[2][RAW_GROUPS];
  uint2 scales[2];  // for each row four bf16, one of each group
  uint2 biases[2];
};

// Starts to read RAW_COLUMNS columns of a row, from column on. upper is 0 for one of the lower eight rows, and 1 for one of the upper
// eight. A weight must have fewer than 2^32 words.
inline void raw_read(device const uint* w, device const WEIGHT_SCALE* scales, device const WEIGHT_SCALE* biases, uint row, int columns, int column, int lane, int upper,
                     thread raw_rows& to) {
  device const uint2* from = (device const uint2*)(w + (row * uint(WEIGHT_WORDS(columns)) + uint(WEIGHT_WORDS(column) + lane % 4 * 2)));
  UNROLL for (int g = 0; g < RAW_GROUPS; g++) to.codes[upper][g] = port_read_once(from + g * 4);
  const uint group = row * uint(columns / WEIGHT_GROUP) + uint(column / WEIGHT_GROUP);
  to.scales[upper] = *(device const uint2*)(scales + group);
  if (WEIGHT_BIASES) to.biases[upper] = *(device const uint2*)(biases + group);
}

// Converts the eight codes of a word to bf16 numbers 128 + q, in pairs.
inline void raw_numbers(uint word, thread uint* out) {
  UNROLL for (int i = 0; i < 4; i++) out[i] = port_code_pair(word, i);
}

// Returns the scale or the bias of a group: one of four bf16 numbers.
inline float raw_of(uint2 four, int group) { return group % 2 == 0 ? port_bf16_low(four[group / 2]) : port_bf16_high(four[group / 2]); }

// Adds products of a lane's two rows to sums [4]: to sums 0 and 1 those of its lower row with vectors 2 (lane % 4) and 2 (lane % 4) + 1,
// to sums 2 and 3 those of its upper row with the same vectors. x [RAW_GROUPS][8] has the lane's columns of its vector. totals is
// what raw_totals has written.
inline void raw_multiply(thread const raw_rows& rows, thread const uint* x, thread const float* totals, thread float* sums) {
  UNROLL for (int g = 0; g < RAW_GROUPS; g++) {
    float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    UNROLL for (int word = 0; word < 2; word++) {
      uint low[4];
      uint high[4];
      raw_numbers(rows.codes[0][g][word], low);
      raw_numbers(rows.codes[1][g][word], high);
      UNROLL for (int u = 0; u < 4; u += 2) {
        thread const uint* v = x + g * 8 + word * 4 + u;
        port_mma_bf16(part, low[u], high[u], low[u + 1], high[u + 1], v[0], v[1]);
      }
    }
    UNROLL for (int upper = 0; upper < 2; upper++) {
      const float scale = raw_of(rows.scales[upper], g);
      const float bias = (WEIGHT_BIASES ? raw_of(rows.biases[upper], g) : scale * -8.0f) - 128.0f * scale;
      UNROLL for (int e = 0; e < 2; e++) sums[upper * 2 + e] = fma(scale, part[upper * 2 + e], fma(bias, totals[g * 2 + e], sums[upper * 2 + e]));
    }
  }
}

// Writes to totals [RAW_GROUPS][2] the sums of vectors 2 (lane % 4) and 2 (lane % 4) + 1 over the columns of each group.
inline void raw_totals(thread const uint* x, thread float* totals) {
  const uint ones = 0x3f803f80u;
  UNROLL for (int g = 0; g < RAW_GROUPS; g++) {
    float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    UNROLL for (int u = 0; u < 8; u += 2) port_mma_bf16(part, ones, ones, ones, ones, x[g * 8 + u], x[g * 8 + u + 1]);
    totals[g * 2] = part[0];
    totals[g * 2 + 1] = part[1];
  }
}
