// Products of one vector whose weights are all copied to threadgroup memory before they are multiplied (resident
// weights). A threadgroup has so few rows that a multiprocessor also has room for one of the next kernel.
//
// Some simdgroups start the copies. There are several of them, since starting a copy takes some fifty cycles. Few
// strips are in flight at a time, because all other reads queue behind them, those of the next kernel's instructions
// too. The other simdgroups convert the vector to digits and multiply. So a kernel waits for nothing but the vector,
// unless the kernel before it decides which rows are needed (STREAM_LATE). Then the Product's find determines the rows
// after the wait, with all simdgroups; number 0 has the most to do. The Product's copy then has the copying simdgroups
// copy a threadgroup's rows.
//
// The registers and the memory of a threadgroup leave room for one of the next kernel, but not for a second one of the
// same kernel, which would leave another multiprocessor idle.

#ifndef STREAM_LATE  // 1: which rows are copied is known only after the wait
#define STREAM_LATE 0
#endif

#if STREAM_RESIDENT
#define RESIDENT_SIMDS ((STREAM_SIMDS + 4) / 4 * 4)                                                             // rounded up to a multiple of four, as registers are allotted
#define RESIDENT_COPIERS (RESIDENT_SIMDS - STREAM_SIMDS)
#define RESIDENT_STRIPS STREAM_STAGES
#define RESIDENT_ROW (STREAM_PIECE * WEIGHT_BITS / 8)                                                           // bytes of a row of a piece
#define RESIDENT_PITCH (RESIDENT_ROW + (STREAM_PIECE < MATVEC_K ? 0 : STREAM_BETWEEN))                              // padded, so that rows are in different banks
#define RESIDENT_CODES (STREAM_PIECE < MATVEC_K ? 16 * MATVEC_K * WEIGHT_BITS / 8 : 16 * RESIDENT_PITCH)            // bytes of a strip: [pieces][16][PITCH]
#define RESIDENT_SCALES (STREAM_PIECE / WEIGHT_GROUP * int(sizeof(WEIGHT_SCALE)))                               // bytes of a row of a piece
#define RESIDENT_AFFINE (16 * (1 + WEIGHT_BIASES) * STREAM_AFFINE)                                              // of a strip: [pieces][scales, biases][16][SCALES]
#define RESIDENT_BEGIN ((STREAM_MEMORY(STREAM_PLANES) + 127) / 128 * 128)                                       // where the strips' codes begin; their scales follow
#define RESIDENT_MEMORY (RESIDENT_BEGIN + RESIDENT_STRIPS * (RESIDENT_CODES + RESIDENT_AFFINE))
#define RESIDENT_PACE 2                                                                                         // strips under way

// Work that is interleaved, to hide latencies: RESIDENT_TURN strips, and RESIDENT_SIDE units of 128 columns each.
#define RESIDENT_TURN (RESIDENT_STRIPS > 1 ? 2 : 1)
#define RESIDENT_UNITS (STREAM_OWN * RESIDENT_TURN)
#define RESIDENT_SIDE (RESIDENT_UNITS % 2 == 0 ? 2 : 1)

// Return the addresses of a slot (row) of a strip, and of its scales. In pairs of weights, slots 8 to 15 belong to the
// second weight.
inline threadgroup uchar* resident_codes(threadgroup uchar* memory, int strip, int slot) { return memory + RESIDENT_BEGIN + strip * RESIDENT_CODES + slot * RESIDENT_PITCH; }
inline threadgroup uchar* resident_affine(threadgroup uchar* memory, int strip, int slot) {
  return memory + RESIDENT_BEGIN + RESIDENT_STRIPS * RESIDENT_CODES + strip * RESIDENT_AFFINE + slot * RESIDENT_SCALES;
}

// Starts the copies of count rows of each plane, from row first on. Copier r % COPIERS copies row r of a strip.
template <int PLANES, class Product>
inline void resident_rows(thread Product& product, int first, int count, int copier, int lane, threadgroup uchar* memory, threadgroup port_transfer* arrived) {
  for (int strip = 0; strip * (16 / PLANES) < count; strip++) {
    if (strip >= RESIDENT_PACE) port_transfer_wait(arrived + (strip - RESIDENT_PACE), 0);
    const int r = lane * RESIDENT_COPIERS + copier;
    const int row = strip * (16 / PLANES) + r / PLANES;
    const int slot = PLANES == 1 ? r : r / 2 + r % 2 * 8;
    const bool is = r < 16 && row < count;
    stream_place from;
    product.place(first + min(row, count - 1), PLANES == 1 ? 0 : r % 2, from);
    threadgroup uchar* affine = resident_affine(memory, strip, slot);
    if (is) port_transfer_copy(affine, from.scales, RESIDENT_SCALES, arrived + strip);
    simdgroup_barrier(mem_flags::mem_none);
#if WEIGHT_BIASES
    if (is) port_transfer_copy(affine + 16 * RESIDENT_SCALES, from.biases, RESIDENT_SCALES, arrived + strip);
    simdgroup_barrier(mem_flags::mem_none);
#endif
    if (is) port_transfer_copy(resident_codes(memory, strip, slot), from.codes, RESIDENT_ROW, arrived + strip);
    simdgroup_barrier(mem_flags::mem_none);
  }
}

// Adds to sums the products of a simdgroup's columns of RESIDENT_TURN strips with the rows of a lane, which has one of
// every eight rows.
inline void resident_multiply(threadgroup const uchar* const thread* codes, threadgroup const uchar* const thread* affine, threadgroup const uchar* memory, int simd, int lane,
                          thread const stream_columns* kept, thread float* sums) {
  const int row = lane / 4;
  const int quarter = lane % 4;
  const uint mask = 0x0f0f0f0fu;
  UNROLL for (int first = 0; first < RESIDENT_UNITS; first += RESIDENT_SIDE) {
    uint4 words[RESIDENT_SIDE][2][WEIGHT_BITS / 4];
    float scale[RESIDENT_SIDE][2];
    float bias[RESIDENT_SIDE][2];
    stream_columns columns[RESIDENT_SIDE];
    int low[RESIDENT_SIDE][4];   // 4-bit codes: sums of even columns' codes
    int high[RESIDENT_SIDE][4];  // and of odd columns' codes, which count 16 times as much, as they stand in the upper half of a byte
    UNROLL for (int u = 0; u < RESIDENT_SIDE; u++) {
      const int own = (first + u) / RESIDENT_TURN;
      const int t = (first + u) % RESIDENT_TURN;
#if STREAM_KEEP
      columns[u] = kept[own];
#else
      stream_columns_of(simd * STREAM_OWN + own, lane, memory, columns[u]);
#endif
      const int at = (simd * STREAM_OWN + own) * 128;
      const int piece = at / STREAM_PIECE;
      const int column = at % STREAM_PIECE + quarter * 32;
      UNROLL for (int h = 0; h < 2; h++) {
        const int slot = row + 8 * h;
        threadgroup const uint4* from = (threadgroup const uint4*)(codes[t] + (piece * 16 + slot) * RESIDENT_PITCH + column * WEIGHT_BITS / 8);
        UNROLL for (int i = 0; i < WEIGHT_BITS / 4; i++) words[u][h][i] = from[i];
        threadgroup const uchar* scales = affine[t] + (piece * (1 + WEIGHT_BIASES) * 16 + slot) * RESIDENT_SCALES + column / WEIGHT_GROUP * int(sizeof(WEIGHT_SCALE));
        scale[u][h] = float(*(threadgroup const WEIGHT_SCALE*)scales);
#if WEIGHT_BIASES
        bias[u][h] = float(*(threadgroup const WEIGHT_SCALE*)(scales + 16 * RESIDENT_SCALES));
#else
        bias[u][h] = scale[u][h] * -float(1 << (WEIGHT_BITS - 1));
#endif
      }
      UNROLL for (int i = 0; i < 4; i++) {
        low[u][i] = 0;
        high[u][i] = 0;
      }
    }
    UNROLL for (int i = 0; i < 2; i++) {
      UNROLL for (int u = 0; u < RESIDENT_SIDE; u++) {
        thread const uint* d = columns[u].digits + 4 * i;
#if WEIGHT_BITS == 4
        const uint a0 = words[u][0][0][2 * i];
        const uint a1 = words[u][1][0][2 * i];
        const uint a2 = words[u][0][0][2 * i + 1];
        const uint a3 = words[u][1][0][2 * i + 1];
        port_mma_u8s8(low[u], a0 & mask, a1 & mask, a2 & mask, a3 & mask, d[0], d[2]);
        port_mma_u8s8(high[u], a0 & ~mask, a1 & ~mask, a2 & ~mask, a3 & ~mask, d[1], d[3]);
#else
        port_mma_u8s8(low[u], words[u][0][i][0], words[u][1][i][0], words[u][0][i][1], words[u][1][i][1], d[0], d[1]);
        port_mma_u8s8(high[u], words[u][0][i][2], words[u][1][i][2], words[u][0][i][3], words[u][1][i][3], d[2], d[3]);
#endif
      }
    }
    const int worth = WEIGHT_BITS == 4 ? 16 : 1;
    UNROLL for (int u = 0; u < RESIDENT_SIDE; u++) {
      const int t = (first + u) % RESIDENT_TURN;
      const float factor = columns[u].factor * (1.0f / worth);
      UNROLL for (int h = 0; h < 2; h++) {
        const int upper = low[u][2 * h] * worth + high[u][2 * h];
        const int lower = low[u][2 * h + 1] * worth + high[u][2 * h + 1];
        sums[2 * t + h] += scale[u][h] * (factor * float(upper * 256 + lower)) + bias[u][h] * columns[u].half_sum;
      }
    }
  }
}

// Runs a product with resident weights.
template <int PLANES, class Product>
inline void resident_run(thread Product& product, int group, int thread_index, device const float* x, device const MATVEC_NORM_T* norm,
                     device const float* gate, threadgroup uchar* memory, threadgroup port_transfer* arrived, threadgroup float* squares) {
  static_assert(PLANES != STREAM_PLANES || RESIDENT_MEMORY <= STREAM_BYTES, "STREAM_BYTES");
  static_assert(STREAM_SEGMENTS == 1 && STREAM_STRIP == 16, "STREAM_STRIP");
  static_assert(!MATVEC_SUM, "a vector that is a sum");
  static_assert(STREAM_FLUSH == RESIDENT_STRIPS * 16 / STREAM_PLANES, "STREAM_FLUSH");
  const int lane = thread_index % 32;
  const int simd = simd_broadcast_first(thread_index / 32);  // so the compiler knows that lanes do not diverge
  const bool multiplies = simd < STREAM_SIMDS;
  const int each = 16 / PLANES;  // rows of a strip
  const int first = stream_first(group);
  const int count = min(stream_first(group + 1), STREAM_ALL) - first;
  const int strips = (count + each - 1) / each;
  if (thread_index < 8) ((threadgroup uint*)(memory + STREAM_ZEROS))[thread_index] = 0u;
  if (thread_index == 0) {
    port_transfer_init(arrived, RESIDENT_STRIPS);
    for (int s = 0; s < strips; s++) {
      const int rows = product.rows(min(each, count - s * each));
      port_transfer_expect(arrived + s, uint(PLANES * rows * (STREAM_ROW + (1 + WEIGHT_BIASES) * STREAM_AFFINE)));
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  stream_part part;
  stream_columns columns[STREAM_KEEP ? STREAM_OWN : 1];
  float square = 0.0f;
  if (multiplies) {
    product.begin(first + thread_index, first + count);
    stream_read_factors(norm, 0, simd, lane, part);
  } else if (!STREAM_LATE) {
    product.copy(first, count, simd - STREAM_SIMDS, lane, memory, arrived);
  }
  port_wait();
  if (multiplies) {
    stream_read_part(x, gate, 0, simd, lane, part);
    product.meet(first + thread_index, first + count);
    stream_make(0, simd, lane, part, memory, square);
#if STREAM_KEEP
    UNROLL for (int own = 0; own < STREAM_OWN; own++) stream_columns_of(simd * STREAM_OWN + own, lane, memory, columns[own]);
#endif
  }
  if (STREAM_LATE) {
    product.find((simd + RESIDENT_COPIERS) % RESIDENT_SIMDS, lane);
    if (!multiplies) product.copy(first, count, simd - STREAM_SIMDS, lane, memory, arrived);
  }
#if !PORT_TRANSFERS
  threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
  threadgroup float* kept = (threadgroup float*)(memory + STREAM_SUMS);
  NOUNROLL for (int s = 0; multiplies && s < strips; s += RESIDENT_TURN) {
    float sums[2 * RESIDENT_TURN];
    threadgroup const uchar* codes[RESIDENT_TURN];
    threadgroup const uchar* affine[RESIDENT_TURN];
    UNROLL for (int t = 0; t < RESIDENT_TURN; t++) {
      const int strip = min(s + t, strips - 1);
      codes[t] = resident_codes(memory, strip, 0);
      affine[t] = resident_affine(memory, strip, 0);
      sums[2 * t] = 0.0f;
      sums[2 * t + 1] = 0.0f;
      port_transfer_wait(arrived + strip, 0);
    }
    resident_multiply(codes, affine, memory, simd, lane, columns, sums);
    UNROLL for (int i = 0; i < 2 * RESIDENT_TURN; i++) sums[i] += simd_shuffle_xor(sums[i], 1);
    UNROLL for (int i = 0; i < 2 * RESIDENT_TURN; i++) sums[i] += simd_shuffle_xor(sums[i], 2);
    // Slots without a row have arbitrary sums, which nothing reads.
    UNROLL for (int i = 0; i < 2 * RESIDENT_TURN; i++) {
      const int at = min(s + i / 2, strips - 1) * each + lane / 4 + (PLANES == 1 ? i % 2 * 8 : 0);
      if (lane % 4 == 0) kept[((PLANES == 1 ? 0 : i % 2) * STREAM_SIMDS + simd) * STREAM_FLUSH + at] = sums[i];
    }
  }
#if MATVEC_NORM && !MATVEC_HEAD
  square = simd_sum(square);
  if (multiplies && lane == 0) squares[simd] = square;
#endif
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (multiplies) stream_finish<PLANES>(product, first, count, thread_index, kept, squares);
}
#endif
