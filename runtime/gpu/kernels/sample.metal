#include "port.h"
// Chooses a token by its logits with the Gumbel-max trick: the first of the largest logits/temperature + noise among
// those that top-k and top-p keep; without a temperature, of the largest logits. The noise comes from MLX's random
// words: Threefry (Salmon et al., SC 2011) with counters as in numeric.Word.
//
// There are three dispatches, and none sorts the vocabulary. sample_part finds the largest number of each of up to 1024
// parts of the vocabulary. sample_collect gathers candidates: the k-th largest of those maxima is a lower bound for the
// k-th largest logit. sample_choose filters the candidates, usually a few dozen, and chooses. If there are too many of
// them, or if their probabilities do not reach top-p, it goes over all logits and searches the thresholds two bits at a
// time.
//
// A sampling head has one row of logits. The runtime's own sampler has SAMPLE_ROWS rows, the second dim of every grid,
// each with its own settings, key and min-p.
//
// Probabilities are added as 64-bit fixed-point numbers. These sums are exact, so that their order does not matter.
#ifndef SAMPLE_VOCAB
#define SAMPLE_VOCAB 1024
#define SAMPLE_PARTS 32       // at most 1024
#define SAMPLE_EACH 32        // logits of a part
#define SAMPLE_GREEDY 0       // there is no temperature
#define SAMPLE_FILTERS 1      // there are top_k and top_p
#define SAMPLE_SHIFT 0.0f     // keeps the logarithms of the noise finite; then the temperature is at least 1e-6
#endif
#ifndef SAMPLE_ROWS
#define SAMPLE_ROWS 0         // 0: the one row of a head
#define SAMPLE_MIN_P 0        // there is min_p
#endif
#define SAMPLE_SIMDGROUPS 8   // of a threadgroup that takes parts
#define SAMPLE_CANDIDATES 2048
#define SAMPLE_NUCLEUS 256    // maxima that bound the candidates where only top-p is on
#define SAMPLE_LOWEST -3.4028234663852886e38f

struct Sampling {
  bool greedy;
  bool k_on;
  bool p_on;
  bool m_on;
  float temperature;
  long k;
  float p;
  float m;  // logits further than this below the largest are dropped by min-p
};

inline void sample_read(thread Sampling& s, device const float* temperature, device const long* top_k, device const float* top_p,
                        device const float* min_p, uint row) {
  s.greedy = true;
  s.k_on = false;
  s.p_on = false;
  s.m_on = false;
  s.m = 0.0f;
  s.temperature = 1.0f;
  s.k = 0;
  s.p = 1.0f;
#if !SAMPLE_GREEDY
  s.temperature = temperature[row];
  if (SAMPLE_SHIFT > 0.0f) s.temperature = max(s.temperature, 1e-6f);
  s.greedy = !(s.temperature > 0.0f);
#if SAMPLE_FILTERS
  s.k = top_k[row];
  s.p = top_p[row];
  s.k_on = !s.greedy && s.k > 0 && s.k < SAMPLE_VOCAB;
  s.p_on = !s.greedy && s.p < 1.0f;
#endif
#if SAMPLE_MIN_P
  s.m_on = !s.greedy && min_p[row] > 0.0f;
  if (s.m_on) s.m = precise::log(min(min_p[row], 1.0f));
#endif
#endif
}

inline uint sample_rotate(uint v, int by) { return (v << by) | (v >> (32 - by)); }
inline uint2 sample_round(uint2 v, int by) {
  const uint x = v.x + v.y;
  return uint2(x, sample_rotate(v.y, by) ^ x);
}
// 20 rounds of Threefry-2x32.
inline uint2 sample_threefry(uint2 key, uint2 counter) {
  const uint k2 = key.x ^ key.y ^ 0x1bd11bdau;
  uint2 v = uint2(counter.x + key.x, counter.y + key.y);
  v = sample_round(sample_round(sample_round(sample_round(v, 13), 15), 26), 6);
  v = uint2(v.x + key.y, v.y + k2 + 1u);
  v = sample_round(sample_round(sample_round(sample_round(v, 17), 29), 16), 24);
  v = uint2(v.x + k2, v.y + key.x + 2u);
  v = sample_round(sample_round(sample_round(sample_round(v, 13), 15), 26), 6);
  v = uint2(v.x + key.x, v.y + key.y + 3u);
  v = sample_round(sample_round(sample_round(sample_round(v, 17), 29), 16), 24);
  v = uint2(v.x + key.y, v.y + k2 + 4u);
  v = sample_round(sample_round(sample_round(sample_round(v, 13), 15), 26), 6);
  return uint2(v.x + k2, v.y + key.x + 5u);
}
// Word i of a draw of SAMPLE_VOCAB words.
inline uint sample_word(uint2 key, uint i) {
  const uint upper = (SAMPLE_VOCAB + 1) / 2;
  if (i >= upper) return sample_threefry(key, uint2(i - upper, i)).y;
  return sample_threefry(key, uint2(i, i < SAMPLE_VOCAB / 2 ? upper + i : 0u)).x;
}
// Returns v with noise; -inf stays -inf.
inline float sample_noisy(float v, uint2 key, int i) {
  if (!(v > -INFINITY)) return v;
  const float u = min(float(sample_word(key, uint(i))) * 2.3283064365386963e-10f, 0.99999994f);
  return v - precise::log(-precise::log(u + SAMPLE_SHIFT) + SAMPLE_SHIFT);
}
// sample_key gives the key of a row's random numbers: 64 bits, the upper word first. With SAMPLE_ROWS every row has
// a key of its own in seed. A head with filters has a seed instead: its lower 32 bits, sign-extended, are the key.
// A head without filters has a key in seed, already in this order.
inline uint2 sample_key(device const uint* seed, uint row) {
#if SAMPLE_ROWS
  return uint2(seed[2 * row + 1], seed[2 * row]);
#elif SAMPLE_FILTERS
  return uint2((seed[0] & 0x80000000u) != 0 ? 0xffffffffu : 0u, seed[0]);
#else
  return uint2(seed[0], seed[1]);
#endif
}

// Converts a number to an unsigned integer with the same order; NaN is the smallest.
inline uint sample_ordered(float v) {
  if (v != v) return 0;
  const uint u = as_type<uint>(v + 0.0f);
  return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}
inline bool sample_better(float v, int at, float than, int than_at) { return v > than || (v == than && at < than_at); }

inline ulong sample_sum(ulong v) {
  UNROLL for (int w = 16; w > 0; w /= 2) {
    const uint low = simd_shuffle_xor(uint(v), ushort(w));
    const uint high = simd_shuffle_xor(uint(v >> 32), ushort(w));
    v += (ulong(high) << 32) | ulong(low);
  }
  return v;
}
// Fixed-point numbers: e^x in units of 2^-44, so that sums over 2^19 logits fit; probabilities in units of 2^-60.
inline ulong sample_power(float e) { return ulong(e * 17592186044416.0f); }
inline ulong sample_mass(float p) { return ulong(p * 1152921504606846976.0f); }
inline float sample_of_powers(ulong s) { return float(s) * 5.684341886080802e-14f; }
inline float sample_of_masses(ulong s) { return float(s) * 8.673617379884035e-19f; }

// Returns the sum over a threadgroup of up to 32 simdgroups. The next call has to use another part: its barrier ends
// the reads of this one.
inline ulong sample_total(ulong v, threadgroup ulong* part, uint sg, uint lane, uint simdgroups) {
  v = sample_sum(v);
  if (lane == 0) part[sg] = v;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  v = lane < simdgroups ? part[lane] : 0;
  return sample_sum(v);
}

// logits [VOCAB]; temperature, top_p f32 [1]; top_k i64 [1]; seed i64 [1], or a key of two words where there are no
// filters; tops, places [PARTS]. Those that are not there may be any buffer. Of rows, all of them for each, with min_p f32
// and the key, i64, in the place of the seed.
// grid: PARTS / SIMDGROUPS
[[max_total_threads_per_threadgroup(SAMPLE_SIMDGROUPS * 32)]]
kernel void sample_part(device const float* logits [[buffer(0)]],
                        device const float* temperature [[buffer(1)]],
                        device const long* top_k [[buffer(2)]],  // absent: temperature
                        device const float* top_p [[buffer(3)]],  // absent: temperature
                        device const float* min_p [[buffer(4)]],  // absent: temperature
                        device const uint* seed [[buffer(5)]],
                        device float* tops [[buffer(6)]],
                        device int* places [[buffer(7)]],
                        uint3 tg [[threadgroup_position_in_grid]],
                        uint sg [[simdgroup_index_in_threadgroup]],
                        uint lane [[thread_index_in_simdgroup]]) {
  const int part = int(tg.x) * SAMPLE_SIMDGROUPS + int(sg);
  if (part >= SAMPLE_PARTS) return;
  Sampling s;
  sample_read(s, temperature, top_k, top_p, min_p, tg.y);
#if SAMPLE_ROWS
  logits += long(tg.y) * SAMPLE_VOCAB;
  tops += tg.y * SAMPLE_PARTS;
  places += tg.y * SAMPLE_PARTS;
#endif
  const int end = min((part + 1) * SAMPLE_EACH, SAMPLE_VOCAB);
  float best = -INFINITY;
  int at = part * SAMPLE_EACH;
  for (int i = at + int(lane); i < end; i += 32) {
    float v = logits[i];
#if !SAMPLE_GREEDY
    if (!s.greedy) {
      v /= s.temperature;
      if (!s.k_on && !s.p_on && !s.m_on) v = sample_noisy(v, sample_key(seed, tg.y), i);
    }
#endif
    if (v > best) {
      best = v;
      at = i;
    }
  }
  UNROLL for (int w = 16; w > 0; w /= 2) {
    const float v = simd_shuffle_xor(best, ushort(w));
    const int i = simd_shuffle_xor(at, ushort(w));
    if (sample_better(v, i, best, at)) {
      best = v;
      at = i;
    }
  }
  if (lane == 0) {
    tops[part] = best;
    places[part] = at;
  }
}

// sample_collect reads the results of sample_part. It writes the candidates [PARTS · EACH] with their indices, those of
// each part at the part's first element, their numbers [PARTS] (negative where there is no bound), and the sums [PARTS]
// of e^(v - max) over all logits of a part. grid: PARTS / SIMDGROUPS
[[max_total_threads_per_threadgroup(SAMPLE_SIMDGROUPS * 32)]]
kernel void sample_collect(device const float* logits [[buffer(0)]],
                           device const float* temperature [[buffer(1)]],
                           device const long* top_k [[buffer(2)]],
                           device const float* top_p [[buffer(3)]],
                           device const float* min_p [[buffer(4)]],  // absent: temperature
                           device const float* tops [[buffer(5)]],
                           device float* values [[buffer(6)]],
                           device int* places [[buffer(7)]],
                           device int* counts [[buffer(8)]],
                           device ulong* sums [[buffer(9)]],
                           uint3 tg [[threadgroup_position_in_grid]],
                           uint tid [[thread_index_in_threadgroup]],
                           uint sg [[simdgroup_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(int, part_counts, 2 * SAMPLE_SIMDGROUPS);
  TG_ARRAY(float, part_tops, SAMPLE_SIMDGROUPS);
  const int part = int(tg.x) * SAMPLE_SIMDGROUPS + int(sg);
  Sampling s;
  sample_read(s, temperature, top_k, top_p, min_p, tg.y);
  if (!s.k_on && !s.p_on && !s.m_on) return;
#if SAMPLE_ROWS
  logits += long(tg.y) * SAMPLE_VOCAB;
  tops += tg.y * SAMPLE_PARTS;
  values += long(tg.y) * SAMPLE_PARTS * SAMPLE_EACH;
  places += long(tg.y) * SAMPLE_PARTS * SAMPLE_EACH;
  counts += tg.y * SAMPLE_PARTS;
  sums += tg.y * SAMPLE_PARTS;
#endif
  const long wanted = s.k_on ? s.k : long(min(SAMPLE_NUCLEUS, SAMPLE_PARTS));
  if (wanted > SAMPLE_PARTS) {
    if (lane == 0 && part < SAMPLE_PARTS) counts[part] = -1;
    return;
  }
  // the largest of the maxima, and the wanted-th largest, determined bit by bit
  const int held = (SAMPLE_PARTS + SAMPLE_SIMDGROUPS * 32 - 1) / (SAMPLE_SIMDGROUPS * 32);
  uint keys[held];
  float top = -INFINITY;
  UNROLL for (int i = 0; i < held; i++) {
    const int at = int(tid) + i * SAMPLE_SIMDGROUPS * 32;
    keys[i] = 0;
    if (at < SAMPLE_PARTS) {
      keys[i] = sample_ordered(tops[at]);
      top = max(top, tops[at]);
    }
  }
  top = simd_max(top);
  if (lane == 0) part_tops[sg] = top;
  uint bound = 0;
  // min-p alone bounds what it keeps by the largest maximum
  for (int bit = s.k_on || s.p_on ? 31 : -1; bit >= 0; bit--) {
    const uint trial = bound | (1u << bit);
    int count = 0;
    UNROLL for (int i = 0; i < held; i++) count += keys[i] >= trial ? 1 : 0;
    count = simd_sum(count);
    threadgroup int* shared = part_counts + (bit % 2) * SAMPLE_SIMDGROUPS;
    if (lane == 0) shared[sg] = count;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    count = 0;
    UNROLL for (int i = 0; i < SAMPLE_SIMDGROUPS; i++) count += shared[i];
    if (long(count) >= wanted) bound = trial;
  }
  if (!s.k_on && !s.p_on) threadgroup_barrier(mem_flags::mem_threadgroup);  // the loop above has had barriers otherwise
  UNROLL for (int i = 0; i < SAMPLE_SIMDGROUPS; i++) top = max(top, part_tops[i]);
  if (!s.k_on && !s.p_on) bound = sample_ordered(top + s.m);
  if (part >= SAMPLE_PARTS) return;

  const int first = part * SAMPLE_EACH;
  const int end = min(first + SAMPLE_EACH, SAMPLE_VOCAB);
  int mine = 0;
  ulong sum = 0;
  for (int i = first + int(lane); i < end; i += 32) {
    const float v = logits[i] / s.temperature;
    if (sample_ordered(v) >= bound) mine++;
    if (!s.k_on && s.p_on) sum += sample_power(precise::exp(v - top));
  }
  int before = mine;
  UNROLL for (int w = 1; w < 32; w *= 2) {
    const int other = simd_shuffle_up(before, ushort(w));
    if (int(lane) >= w) before += other;
  }
  const int all = simd_shuffle(before, 31);
  int to = first + before - mine;
  for (int i = first + int(lane); i < end; i += 32) {
    const float v = logits[i] / s.temperature;
    if (sample_ordered(v) >= bound) {
      values[to] = v;
      places[to] = i;
      to++;
    }
  }
  sum = sample_sum(sum);
  if (lane == 0) {
    counts[part] = all;
    sums[part] = sum;
  }
}

// sample_choose writes the token to token [1], and to next [1] for the call that follows; for rows, one each. values is
// overwritten where the candidates do not suffice. grid: 1
[[max_total_threads_per_threadgroup(1024)]]
kernel void sample_choose(device const float* logits [[buffer(0)]],
                          device const float* temperature [[buffer(1)]],
                          device const long* top_k [[buffer(2)]],  // absent: temperature
                          device const float* top_p [[buffer(3)]],  // absent: temperature
                          device const float* min_p [[buffer(4)]],  // absent: temperature
                          device const uint* seed [[buffer(5)]],
                          device const float* tops [[buffer(6)]],
                          device const int* tops_at [[buffer(7)]],
                          device float* values [[buffer(8)]],  // absent: tops
                          device const int* places [[buffer(9)]],  // absent: tops
                          device const int* counts [[buffer(10)]],  // absent: tops
                          device const ulong* sums [[buffer(11)]],  // absent: tops
                          device int* token [[buffer(12)]],
                          device int* next [[buffer(13)]],
                          uint3 tg [[threadgroup_position_in_grid]],
                          uint tid [[thread_index_in_threadgroup]],
                          uint sg [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
  TG_ARRAY(float, found, SAMPLE_CANDIDATES);
  TG_ARRAY(int, found_at, SAMPLE_CANDIDATES);
  TG_ARRAY(ulong, shared, 4 * 32);
  TG_ARRAY(float, shared_top, 2 * 32);
  TG_ARRAY(int, shared_at, 32);
  Sampling s;
  const uint row = tg.y;
  sample_read(s, temperature, top_k, top_p, min_p, row);
#if SAMPLE_ROWS
  logits += long(row) * SAMPLE_VOCAB;
  tops += row * SAMPLE_PARTS;
  tops_at += row * SAMPLE_PARTS;
  values += long(row) * SAMPLE_PARTS * SAMPLE_EACH;
  places += long(row) * SAMPLE_PARTS * SAMPLE_EACH;
  counts += row * SAMPLE_PARTS;
  sums += row * SAMPLE_PARTS;
#endif
  float best = SAMPLE_LOWEST;  // the thread's best number; its index follows
  int at = 0;
  float top = tid < SAMPLE_PARTS ? tops[tid] : -INFINITY;
  if (!s.k_on && !s.p_on && !s.m_on) {
    if (tid < SAMPLE_PARTS && top > best) {
      best = top;
      at = tops_at[tid];
    }
  } else {
    top = simd_max(top);
    if (lane == 0) shared_top[sg] = top;
    // the candidates of all parts are numbered one after the other
    const int count = tid < SAMPLE_PARTS ? counts[tid] : 0;
    const bool bounded = counts[0] >= 0;
    int before = count;
    UNROLL for (int w = 1; w < 32; w *= 2) {
      const int other = simd_shuffle_up(before, ushort(w));
      if (int(lane) >= w) before += other;
    }
    if (lane == 31) shared_at[sg] = before;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    top = simd_max(shared_top[lane]);
    int total = 0;
    for (int i = 0; i < 32; i++) {
      if (i < int(sg)) before += shared_at[i];
      total += shared_at[i];
    }
    bool fits = bounded && total <= SAMPLE_CANDIDATES;
    if (fits) {
      for (int i = 0; i < count; i++) {
        found[before - count + i] = values[int(tid) * SAMPLE_EACH + i];
        found_at[before - count + i] = places[int(tid) * SAMPLE_EACH + i];
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (fits) {
      // the two candidates of the thread: first v, then, after top-k, e^(v - max)
      float v[2];
      float p[2];
      bool keep[2];
      ulong sum = 0;
      UNROLL for (int j = 0; j < 2; j++) {
        const int mine = int(tid) + j * 1024;
        keep[j] = mine < total;
        v[j] = keep[j] ? found[mine] : -INFINITY;
        if (s.k_on && keep[j]) {
          int greater = 0;
          for (int i = 0; i < total; i++) greater += found[i] > v[j] ? 1 : 0;
          keep[j] = long(greater) < s.k;
        }
        p[j] = keep[j] ? precise::exp(v[j] - top) : 0.0f;
        sum += sample_power(p[j]);
      }
      if (s.p_on) {
        if (!s.k_on) sum = tid < SAMPLE_PARTS ? sums[tid] : 0;
        const float z = sample_of_powers(sample_total(sum, shared, sg, lane, 32));
        ulong mass = 0;
        UNROLL for (int j = 0; j < 2; j++) {
          const int mine = int(tid) + j * 1024;
          p[j] = p[j] / z;
          mass += sample_mass(p[j]);
          if (mine < total) found[mine] = p[j];  // every thread has read mine before the barrier in sample_total
        }
        mass = sample_total(mass, shared + 32, sg, lane, 32);
        // If the candidates are not all that top-k keeps, they must be all that top-p keeps, or all that min-p keeps.
        if (!s.k_on && !(sample_of_masses(mass) > s.p + 1e-5f)) fits = false;
#if SAMPLE_MIN_P
        const bool below = s.m_on && (v[0] > -INFINITY && v[0] < top + s.m || v[1] > -INFINITY && v[1] < top + s.m);
        if (sample_total(below ? 1 : 0, shared + 64, sg, lane, 32) > 0) fits = true;
#endif
        float least = INFINITY;
        UNROLL for (int j = 0; j < 2; j++) {
          if (keep[j]) {
            ulong above = sample_mass(p[j]);
            for (int i = 0; i < total; i++) above += found[i] > p[j] ? sample_mass(found[i]) : 0;
            if (!(sample_of_masses(above) - p[j] > s.p)) least = min(least, p[j]);
          }
        }
        least = simd_min(least);
        if (lane == 0) shared_top[32 + sg] = least;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        least = simd_min(shared_top[32 + lane]);
        UNROLL for (int j = 0; j < 2; j++) keep[j] = keep[j] && !(p[j] < least);
      }
#if SAMPLE_MIN_P
      UNROLL for (int j = 0; j < 2; j++) keep[j] = keep[j] && !(s.m_on && v[j] < top + s.m);
#endif
      if (fits) {
        UNROLL for (int j = 0; j < 2; j++) {
          const int mine = int(tid) + j * 1024;
          if (keep[j] && mine < total) {
            const float noisy = sample_noisy(v[j], sample_key(seed, row), found_at[mine]);
            if (sample_better(noisy, found_at[mine], best, at)) {
              best = noisy;
              at = found_at[mine];
            }
          }
        }
      }
    }
    if (!fits) {
      // over all logits: the k-th largest, then the smallest probability that top-p keeps, two bits at a time
      uint bound = 0;
      for (int i = int(tid); i < SAMPLE_VOCAB; i += 1024) values[i] = logits[i] / s.temperature;
      if (s.k_on) {
        for (int shift = 30; shift >= 0; shift -= 2) {
          ulong enough[3] = {0, 0, 0};
          for (int i = int(tid); i < SAMPLE_VOCAB; i += 1024) {
            const uint key = sample_ordered(values[i]);
            UNROLL for (int d = 0; d < 3; d++) enough[d] += key >= (bound | (uint(d + 1) << shift)) ? 1 : 0;
          }
          uint digit = 0;
          UNROLL for (int d = 0; d < 3; d++) {
            const ulong n = sample_total(enough[d], shared + d * 32, sg, lane, 32);
            if (n >= ulong(s.k)) digit = uint(d + 1);
          }
          bound |= digit << shift;
        }
      }
      uint least = 0;
      float z = 1.0f;
      if (s.p_on) {
        ulong sum = 0;
        for (int i = int(tid); i < SAMPLE_VOCAB; i += 1024) {
          const bool keep = sample_ordered(values[i]) >= bound;
          const float e = keep ? precise::exp(values[i] - top) : 0.0f;
          values[i] = e;
          sum += sample_power(e);
        }
        z = sample_of_powers(sample_total(sum, shared, sg, lane, 32));
        threadgroup_barrier(mem_flags::mem_threadgroup);
        // searches the smallest number above which at most top-p of the mass lies: where the mass above a trial value
        // is too large, the number is above the trial value
        const ulong limit = sample_mass(s.p);
        for (int shift = 30; shift >= 0; shift -= 2) {
          ulong above[3] = {0, 0, 0};
          for (int i = int(tid); i < SAMPLE_VOCAB; i += 1024) {
            const float p = values[i] / z;
            const uint key = as_type<uint>(p);
            const ulong mass = sample_mass(p);
            UNROLL for (int d = 0; d < 3; d++) above[d] += key > ((least | (uint(d + 1) << shift)) - 1u) ? mass : 0;
          }
          uint digit = 0;
          UNROLL for (int d = 0; d < 3; d++) {
            if (sample_total(above[d], shared + d * 32, sg, lane, 32) > limit) digit = uint(d + 1);
          }
          least |= digit << shift;
        }
      }
      for (int i = int(tid); i < SAMPLE_VOCAB; i += 1024) {
        const float v = logits[i] / s.temperature;
        bool keep = sample_ordered(v) >= bound;
        if (s.p_on) keep = keep && as_type<uint>(values[i] / z) >= least;
#if SAMPLE_MIN_P
        keep = keep && !(s.m_on && v < top + s.m);
#endif
        if (keep) {
          const float noisy = sample_noisy(v, sample_key(seed, row), i);
          if (sample_better(noisy, i, best, at)) {
            best = noisy;
            at = i;
          }
        }
      }
    }
  }
  UNROLL for (int w = 16; w > 0; w /= 2) {
    const float v = simd_shuffle_xor(best, ushort(w));
    const int i = simd_shuffle_xor(at, ushort(w));
    if (sample_better(v, i, best, at)) {
      best = v;
      at = i;
    }
  }
  if (lane == 0) {
    shared_top[sg] = best;
    shared_at[sg] = at;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid == 0) {
    for (int i = 1; i < 32; i++) {
      if (sample_better(shared_top[i], shared_at[i], best, at)) {
        best = shared_top[i];
        at = shared_at[i];
      }
    }
    if (s.p_on && s.p < 0.0f) best = SAMPLE_LOWEST;  // a negative top-p keeps no token
    token[row] = next[row] = best > SAMPLE_LOWEST ? at : 0;
  }
}
