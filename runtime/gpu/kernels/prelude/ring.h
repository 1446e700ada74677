// Products of one vector whose weights are copied through a ring of stages while they are multiplied.
//
// One simdgroup only starts copies of strips into the ring. The first copies start before the kernels that this one
// depends on are done. They are few, because the last reads of those kernels, and then the read of the vector, would
// queue behind them. There are more of them where computing the vector takes long.
//
// Instructions too are loaded when they first run on a multiprocessor, behind all copies in flight. So the loop body
// runs once in advance, with zeros and a stage that no copy writes yet, while the kernel has to wait anyway. This warms
// up the instruction cache.

#if !STREAM_RESIDENT
// Advances to the next segment.
inline void ring_step(thread stream_strip& strip, thread int& segment, int most) {
  segment++;
  if (segment < STREAM_SEGMENTS) return;
  segment = 0;
  strip.number++;
  strip.at += strip.count;
  if (strip.at < strip.end) stream_look(strip, most);
}

// Announces how many bytes ring_copy will copy for so many rows.
inline void ring_expect(int rows, int segment, threadgroup port_transfer* arrived) {
  const int affine = segment == 0 ? (1 + WEIGHT_BIASES) * STREAM_AFFINE : 0;
  port_transfer_expect(arrived, uint(rows * (STREAM_ROW + affine)));
}

// Returns the address of a strip's scales.
inline threadgroup uchar* ring_shelf(threadgroup uchar* memory, int number) { return memory + STREAM_SCALES + number % STREAM_SHELVES * STREAM_SHELF; }

// Starts the copies of count rows of a segment to rows of a stage, from slot on. The scales are copied with the first
// segment. All lanes of the simdgroup call it; the lane is number lane of lanes lanes that copy from the same weight.
inline void ring_copy(thread const stream_place& from, int count, int segment, int slot, int lane, int lanes, threadgroup uchar* stage,
                        threadgroup uchar* shelf, threadgroup port_transfer* arrived) {
  threadgroup uchar* to = stage + slot * STREAM_PITCH;
  device const uchar* codes = from.codes + segment * STREAM_ROW;
  threadgroup uchar* affine = shelf + slot * STREAM_AFFINE + (lane == 2 ? STREAM_STRIP * STREAM_AFFINE : 0);
  device const uchar* stored = lane == 2 ? from.biases : from.scales;
#if STREAM_SINGLE
  for (int first = 0; first < count; first += lanes) {
    const int r = first + lane;
    if (r < count) port_transfer_copy(to + r * STREAM_PITCH, codes + long(r) * (MATVEC_K * WEIGHT_BITS / 8), STREAM_ROW, arrived);
    simdgroup_barrier(mem_flags::mem_none);
  }
  if (segment == 0 && lane > 0 && lane < 2 + WEIGHT_BIASES) port_transfer_copy(affine, stored, uint(count * STREAM_AFFINE), arrived);
#else
  if (lane < 2 + WEIGHT_BIASES) port_transfer_copy(lane == 0 ? to : affine, lane == 0 ? codes : stored, uint(count * (lane == 0 ? STREAM_ROW : STREAM_AFFINE)), arrived);
#endif
}

// Reads the codes of a lane's 32 columns of a row, as two operands of port_mma_u8s8 for every 8 columns.
inline void ring_codes(threadgroup const uchar* from, thread uint* out) {
#if WEIGHT_BITS == 4
  const uint4 words = *(threadgroup const uint4*)from;
  UNROLL for (int i = 0; i < 4; i++) {
    out[2 * i] = words[i] & 0x0f0f0f0fu;
    out[2 * i + 1] = (words[i] >> 4) & 0x0f0f0f0fu;
  }
#else
  UNROLL for (int i = 0; i < 2; i++) {
    const uint4 words = ((threadgroup const uint4*)from)[i];
    UNROLL for (int j = 0; j < 4; j++) out[4 * i + j] = words[j];
  }
#endif
}

// Returns the first row of a stage of which lanes take one row of eight, for group number eight of eight rows. In pairs
// of weights, each 16 rows have 8 rows of either weight.
template <int PLANES>
inline int ring_eight(int eight) { return PLANES == 1 ? eight * 8 : eight % 2 * (STREAM_STRIP / 2) + eight / 2 * 8; }

// Adds to sums the products of a simdgroup's columns of a stage with the rows of a lane, which has one of every eight
// rows.
template <int PLANES>
inline void ring_multiply(threadgroup const uchar* stage, threadgroup const uchar* shelf, threadgroup const uchar* memory, int segment, int simd, int lane,
                            thread const stream_columns* kept, thread float* sums) {
  UNROLL for (int own = 0; own < STREAM_OWN; own++) {
    const int chunk = simd * STREAM_OWN + own;
#if STREAM_KEEP
    const stream_columns columns = kept[own];
#else
    stream_columns columns;
    stream_columns_of(segment * STREAM_CHUNKS + chunk, lane, memory, columns);
#endif
    const int at = chunk * 128 + lane % 4 * 32;
    threadgroup const WEIGHT_SCALE* scales = (threadgroup const WEIGHT_SCALE*)shelf + lane / 4 * STREAM_GROUPS + (segment * STREAM_COLUMNS + at) / WEIGHT_GROUP;
    UNROLL for (int first = 0; first < STREAM_EIGHTS; first += 2) {
      uint codes[2][8];
      float scale[2];
      float bias[2];
      UNROLL for (int h = 0; h < 2; h++) {
        const int eight = ring_eight<PLANES>(first + h);
        ring_codes(stage + (lane / 4 + eight) * STREAM_PITCH + at * WEIGHT_BITS / 8, codes[h]);
        scale[h] = float(scales[eight * STREAM_GROUPS]);
#if WEIGHT_BIASES
        bias[h] = float(scales[(STREAM_STRIP + eight) * STREAM_GROUPS]);
#else
        bias[h] = scale[h] * -float(1 << (WEIGHT_BITS - 1));
#endif
      }
      int products[4] = {0, 0, 0, 0};
      UNROLL for (int i = 0; i < 4; i++) {
        port_mma_u8s8(products, codes[0][2 * i], codes[1][2 * i], codes[0][2 * i + 1], codes[1][2 * i + 1], columns.digits[2 * i], columns.digits[2 * i + 1]);
      }
      // A lane has the sums of the two upper digits, or that of the lowest digit alone. Rows past the last one have
      // arbitrary sums.
      UNROLL for (int h = 0; h < 2; h++) {
        sums[first + h] += scale[h] * (columns.factor * float(products[2 * h] * 256 + products[2 * h + 1])) + bias[h] * columns.half_sum;
      }
    }
  }
}

// Starts the copies of a strip's segment to a stage, with one simdgroup.
template <int PLANES, class Product>
inline void ring_start(thread Product& product, thread const stream_strip& strip, int segment, int stage, int lane, threadgroup uchar* memory,
                         threadgroup port_transfer* arrived) {
  if (lane == 0) ring_expect(PLANES * strip.count, segment, arrived + stage);
  simdgroup_barrier(mem_flags::mem_none);
  const int lanes = 32 / PLANES;
  const int plane = lane / lanes;
  stream_place from;
  product.place(strip.at, plane, from);
  ring_copy(from, strip.count, segment, plane * (STREAM_STRIP / 2), lane % lanes, lanes, memory + stage * STREAM_STAGE, ring_shelf(memory, strip.number),
              arrived + stage);
}

// Runs a product with a ring.
template <int PLANES, class Product>
inline void ring_run(thread Product& product, int group, int thread_index, device const float* x, device const MATVEC_NORM_T* norm,
                     device const float* gate, thread const stream_sum& sum, threadgroup uchar* memory, threadgroup port_transfer* arrived,
                     threadgroup float* squares) {
  static_assert(PLANES != STREAM_PLANES || STREAM_MEMORY(PLANES) <= STREAM_BYTES, "STREAM_BYTES");
  static_assert(STREAM_STRIP % 16 == 0, "STREAM_STRIP");
  static_assert(!MATVEC_SUM || STREAM_SEGMENTS == 1, "the vector is made in one segment");
  static_assert(STREAM_OWN * STREAM_SIMDS * 128 == STREAM_COLUMNS && STREAM_SEGMENTS * STREAM_COLUMNS == MATVEC_K, "STREAM_COLUMNS");
  const int lane = thread_index % 32;
  const int simd = simd_broadcast_first(thread_index / 32);  // as a compiler then knows, lanes do not part
  const bool copies = simd == STREAM_SIMDS;
  stream_strip strip;  // that is multiplied
  strip.at = stream_first(group);
  strip.end = min(stream_first(group + 1), STREAM_ALL);
  strip.number = 0;
  stream_look(strip, STREAM_STRIP / PLANES);
  stream_strip next = strip;  // that is copied
  int next_segment = 0;
  int segment = 0;
  int kept_from = strip.at;  // the first row whose sums are stored
  float square = 0.0f;
  float sums[STREAM_EIGHTS];
  UNROLL for (int h = 0; h < STREAM_EIGHTS; h++) sums[h] = 0.0f;
  stream_part part;
  stream_columns columns[STREAM_KEEP ? STREAM_OWN : 1];
  threadgroup float* kept = (threadgroup float*)(memory + STREAM_SUMS);
  if (copies && lane == 0) port_transfer_init(arrived, STREAM_STAGES);
  if (thread_index < 8) ((threadgroup uint*)(memory + STREAM_ZEROS))[thread_index] = 0u;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  UNROLL for (int i = 0; i < STREAM_AHEAD; i++) {
    if (next.at < next.end) {
      if (copies) ring_start<PLANES>(product, next, next_segment, i, lane, memory, arrived);
      ring_step(next, next_segment, STREAM_STRIP / PLANES);
    }
  }
  if (!copies) {
    product.begin(strip.at + thread_index, strip.end);
    stream_read_factors(norm, 0, simd, lane, part);
#if MATVEC_SUM
    stream_read_before(sum, simd, lane, part);
#endif
  }
  int slot = 0;
  int round = 0;
  // Turn -1 is the warm-up. The condition keeps the compiler from knowing that it always happens, so that it does not
  // generate separate code for it.
  int turn = STREAM_STAGES > STREAM_AHEAD && group >= 0 ? -1 : 0;
  NOUNROLL for (; strip.at < strip.end; turn++) {
    const bool rehearsal = turn < 0;
#if !PORT_TRANSFERS
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    if (turn == 0) {
      port_wait();
      if (!copies) stream_read_part(x, gate, 0, simd, lane, part);
#if MATVEC_SUM
      if (!copies) {
        const float before = stream_read_residual(sum, simd, lane, part);
        if (lane == 0) squares[STREAM_SIMDS + simd] = before;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);  // the next copies start when these reads are done
      if (!copies) stream_add(sum, squares + STREAM_SIMDS, group == 0, simd, lane, part);
#endif
      UNROLL for (int i = STREAM_AHEAD; i < STREAM_STAGES; i++) {
        if (next.at < next.end) {
          if (copies) ring_start<PLANES>(product, next, next_segment, i, lane, memory, arrived);
          ring_step(next, next_segment, STREAM_STRIP / PLANES);
        }
      }
    }
    if (!copies) {
      // While the first strip is multiplied, each simdgroup makes digits of its own columns, which it has read one
      // segment in advance.
      if (strip.number == 0) {
        if (rehearsal) stream_nothing(part);
        stream_make(segment, simd, lane, part, memory, square);
        if (!rehearsal && segment < STREAM_SEGMENTS - 1) {
          stream_read_factors(norm, segment + 1, simd, lane, part);
          stream_read_part(x, gate, segment + 1, simd, lane, part);
        } else {
#if MATVEC_NORM && !MATVEC_HEAD
          square = simd_sum(square);
          if (lane == 0) squares[simd] = square;
#endif
        }
#if STREAM_KEEP
        UNROLL for (int own = 0; own < STREAM_OWN; own++) stream_columns_of(simd * STREAM_OWN + own, lane, memory, columns[own]);
#endif
      }
      if (!rehearsal) port_transfer_wait(arrived + slot, uint(round));
      ring_multiply<PLANES>(memory + (rehearsal ? STREAM_STAGES - 1 : slot) * STREAM_STAGE, ring_shelf(memory, rehearsal ? STREAM_SHELVES - 1 : strip.number), memory,
                              segment, simd, lane, columns, sums);
      if (rehearsal || segment == STREAM_SEGMENTS - 1) {
        UNROLL for (int h = 0; h < STREAM_EIGHTS; h++) {
          float v = sums[h];
          v += simd_shuffle_xor(v, 1);
          v += simd_shuffle_xor(v, 2);
          const int row = lane / 4 + (PLANES == 1 ? h : h / 2) * 8;
          const int plane = PLANES == 1 ? 0 : h % 2;
          if (lane % 4 == 0 && row < strip.count) kept[(plane * STREAM_SIMDS + simd) * STREAM_FLUSH + strip.at - kept_from + row] = v;
          sums[h] = 0.0f;
        }
      }
    }
    if (rehearsal) {
      square = 0.0f;
      threadgroup_barrier(mem_flags::mem_threadgroup);  // the stage of the warm-up may be copied to
      continue;
    }
    ring_step(strip, segment, STREAM_STRIP / PLANES);
    bool full = segment == 0 && strip.at >= strip.end;
#if STREAM_FLUSH < STREAM_ROWS
    full = full || (segment == 0 && strip.at - kept_from + STREAM_STRIP / PLANES > STREAM_FLUSH);
#endif
    const bool more = next.at < next.end;
    if (full || more) threadgroup_barrier(mem_flags::mem_threadgroup);
    if (more) {  // to the stage that this turn has read
      if (copies) ring_start<PLANES>(product, next, next_segment, slot, lane, memory, arrived);
      ring_step(next, next_segment, STREAM_STRIP / PLANES);
    }
    slot++;
    if (slot == STREAM_STAGES) {
      slot = 0;
      round++;
    }
    if (!full) continue;
    if (!copies) stream_finish<PLANES>(product, kept_from, strip.at - kept_from, thread_index, kept, squares);
#if STREAM_FLUSH < STREAM_ROWS
    threadgroup_barrier(mem_flags::mem_threadgroup);
#endif
    kept_from = strip.at;
  }
}
#endif
