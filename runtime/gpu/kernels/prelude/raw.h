// Products of 16 rows of weights of 4 bits in groups of 64 with eight vectors, which multiply codes as they are. A code q becomes
// the bf16 number 128 + q, by its bits alone; a group's scale and bias are applied to the sum over its 64 columns, in fp32:
//   sum of (s q + b) x = s * sum of (128 + q) x + (b - 128 s) * sum of x
// So weights are not rounded, and a code takes half of the instructions that a number in bf16 would.
//
// Lane l has rows l / 4 and l / 4 + 8, and of each group columns 16 (l % 4) to 16 (l % 4) + 15, two words of codes. It has the
// same columns of vector l / 4, as eight words: of eight columns four pairs of numbers in bf16, of columns i and i + 4, which
// are those that come out of a word of codes together.
#define RAW_COLUMNS 256                          // of a lane's rows at a time
#define RAW_GROUPS (RAW_COLUMNS / WEIGHT_GROUP)

// A lane's share of RAW_COLUMNS columns of its two rows.
struct raw_rows {
  uint2 codes[2][RAW_GROUPS];
  uint2 scales[2];  // of the groups, four bf16
  uint2 biases[2];
};

// Starts to read a row: RAW_COLUMNS of its columns, from column on. upper is 1 for one of the upper eight rows. A weight has
// fewer than 2^32 words.
inline void raw_read(device const uint* w, device const WEIGHT_SCALE* scales, device const WEIGHT_SCALE* biases, uint row, int columns, int column, int lane, int upper,
                     thread raw_rows& to) {
  device const uint2* from = (device const uint2*)(w + (row * uint(WEIGHT_WORDS(columns)) + uint(WEIGHT_WORDS(column) + lane % 4 * 2)));
  UNROLL for (int g = 0; g < RAW_GROUPS; g++) to.codes[upper][g] = port_read_once(from + g * 4);
  const uint group = row * uint(columns / WEIGHT_GROUP) + uint(column / WEIGHT_GROUP);
  to.scales[upper] = *(device const uint2*)(scales + group);
  if (WEIGHT_BIASES) to.biases[upper] = *(device const uint2*)(biases + group);
}

// The numbers 128 + q of a word of codes, in pairs.
inline void raw_numbers(uint word, thread uint* out) {
  UNROLL for (int i = 0; i < 4; i++) out[i] = port_code_pair(word, i);
}

// The number of a group among four in bf16.
inline float raw_of(uint2 four, int group) { return group % 2 == 0 ? port_bf16_low(four[group / 2]) : port_bf16_high(four[group / 2]); }

// Adds to sums [4] the products of the rows with eight vectors: of the lane's lower row with vectors 2 (lane % 4) and the next
// one, then of its upper row. x [RAW_GROUPS][8] are the lane's columns of its vector, totals those of raw_totals.
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

// totals [RAW_GROUPS][2] are the sums over the columns of each group of vectors 2 (lane % 4) and the next one.
inline void raw_totals(thread const uint* x, thread float* totals) {
  const uint ones = 0x3f803f80u;
  UNROLL for (int g = 0; g < RAW_GROUPS; g++) {
    float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    UNROLL for (int u = 0; u < 8; u += 2) port_mma_bf16(part, ones, ones, ones, ones, x[g * 8 + u], x[g * 8 + u + 1]);
    totals[g * 2] = part[0];
    totals[g * 2 + 1] = part[1];
  }
}

// The place of number i of eight that become a word of a vector (two bf16 to a word of memory).
inline int raw_place(int i) { return i % 4 * 2 + i / 4; }
