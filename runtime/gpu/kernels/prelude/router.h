// The choice of a token's experts by the router's logits: code that router.metal and experts.metal share.

#ifndef ROUTER_EXPERTS
#define ROUTER_EXPERTS 32
#endif
#ifndef ROUTER_TOP
#define ROUTER_TOP 2
#endif
#ifndef ROUTER_SOFTMAX    // 0: the scores are the logits
#define ROUTER_SOFTMAX 1
#endif
#ifndef ROUTER_NORMALIZE  // scores are divided by their sum
#define ROUTER_NORMALIZE 1
#endif
#ifndef ROUTER_SCALE      // and multiplied by this
#define ROUTER_SCALE 1.0f
#endif
#ifndef ROUTER_SCALED     // 1: and by a number of each expert
#define ROUTER_SCALED 0
#define ROUTER_SCALES_T float
#endif

// Returns a key whose order as an integer is the order of floats, with NaN above all; key 0 is below all.
inline uint router_key(float v) {
  const uint u = as_type<uint>(v == 0.0f ? 0.0f : v);
  const uint key = u ^ (uint(as_type<int>(u) >> 31) | 0x80000000u);
  return port_isnan(v) ? 0xffffffffu : key;
}
// Returns the number of a key.
inline float router_number(uint key) { return as_type<float>((key & 0x80000000u) != 0u ? key ^ 0x80000000u : ~key); }

// Returns the score of the expert that a lane of a simdgroup has, from its logit. Lane 0 has the largest logit; lanes
// from ROUTER_TOP on have none. place is the expert's number, scales are the factors of all experts. total is the sum
// of exp(logit - largest) over all experts; it is used where scores are a softmax that is not normalized over the
// chosen.
inline float router_score(float logit, int place, device const ROUTER_SCALES_T* scales, int lane, float total) {
  const bool is = lane < ROUTER_TOP;
#if ROUTER_SCALED
  const float scale = ROUTER_SCALE * float(scales[place]);
#else
  const float scale = ROUTER_SCALE;
#endif
#if ROUTER_SOFTMAX
  const float largest = simd_broadcast(logit, 0);
  const float v = is ? precise::exp(logit - largest) : 0.0f;
#else
  const float v = is ? logit : 0.0f;
#endif
#if ROUTER_NORMALIZE
  return v / simd_sum(v) * scale;
#elif ROUTER_SOFTMAX
  return v / total * scale;
#else
  return v * scale;
#endif
}

// The size of a group of lanes, such that there are at least ROUTER_TOP groups.
#define ROUTER_GROUP (ROUTER_TOP <= 1 ? 32 : ROUTER_TOP <= 2 ? 16 : ROUTER_TOP <= 4 ? 8 : ROUTER_TOP <= 8 ? 4 : ROUTER_TOP <= 16 ? 2 : 1)
#define ROUTER_LOGITS ((ROUTER_EXPERTS + 31) / 32)  // of a lane
#define ROUTER_LIST (ROUTER_EXPERTS / 4 * 4 + 36)   // the last 32 places are for what is not in the list, one of each lane

// Shortens the list of candidates, with one simdgroup: keeps those logits of a token that may be among the ROUTER_TOP
// largest. Returns their number and, in order, their keys in list and their indices in at, both of size ROUTER_LIST.
// The bound is the smallest of the groups' largest logits: there are at least ROUTER_TOP groups, so at least ROUTER_TOP
// logits are no smaller. Of 256 logits some twenty remain.
template <class PLACE> inline int router_shorten(device const float* logits, int lane, threadgroup uint* list, threadgroup PLACE* at) {
  float v[ROUTER_LOGITS];
  UNROLL for (int i = 0; i < ROUTER_LOGITS; i++) {
    v[i] = logits[i * 32 + (ROUTER_EXPERTS % 32 == 0 ? lane : min(lane, ROUTER_EXPERTS - 1 - i * 32))];
  }
  uint own[ROUTER_LOGITS];
  uint largest = 0u;
  UNROLL for (int i = 0; i < ROUTER_LOGITS; i++) {
    own[i] = i * 32 + lane < ROUTER_EXPERTS ? router_key(v[i]) : 0u;
    largest = max(largest, own[i]);
  }
  UNROLL for (ushort distance = 1; distance < ROUTER_GROUP; distance *= 2) largest = max(largest, simd_shuffle_xor(largest, distance));
  const uint least = max(simd_min(largest), 1u);
  int count = 0;
  UNROLL for (int i = 0; i < ROUTER_LOGITS; i++) {
    const uint stay = port_ballot(own[i] >= least);
    // Dropped logits are written to places that nothing reads: a branch would take longer.
    const int to = own[i] >= least ? count + int(popcount(stay & ((1u << lane) - 1u))) : ROUTER_LIST - 32 + lane;
    list[to] = own[i];
    at[to] = PLACE(i * 32 + lane);
    count += int(popcount(stay));
  }
  return count;
}

// Sorts what router_shorten has left, with simds simdgroups: the keys of the ROUTER_TOP largest and their indices, the
// largest first. Of equal logits the later ones come first. The caller puts a barrier before and after it.
template <class PLACE> inline void router_rank(threadgroup const uint* list, threadgroup const PLACE* at, int count, int lane, int simd, int simds,
                        threadgroup uint* keys, threadgroup int* places) {
  const uint near = lane < count ? list[lane] : 0u;
  NOUNROLL for (int j = 4 * simd; j < count; j += 4 * simds) {
    const uint4 key = *(threadgroup const uint4*)(list + j);
    int before[4];
    UNROLL for (int e = 0; e < 4; e++) before[e] = int(popcount(port_ballot(near > key[e] || (near == key[e] && lane > j + e))));
    NOUNROLL for (int i = 32; i < count; i += 32) {
      const uint other = i + lane < count ? list[i + lane] : 0u;
      UNROLL for (int e = 0; e < 4; e++) before[e] += int(popcount(port_ballot(other > key[e] || (other == key[e] && i + lane > j + e))));
    }
    // Lane e writes the rank of element j + e.
    const int rank = lane == 0 ? before[0] : lane == 1 ? before[1] : lane == 2 ? before[2] : before[3];
    if (lane < 4 && j + lane < count && rank < ROUTER_TOP) {
      keys[rank] = list[j + lane];
      places[rank] = int(at[j + lane]);
    }
  }
}

// Chooses with all simdgroups of a threadgroup: keys and places get what router_rank gives, and a barrier follows.
// count is one int.
template <class PLACE>
inline void router_choose(device const float* logits, int lane, int simd, int simds, threadgroup uint* list, threadgroup PLACE* at, threadgroup int* count,
                          threadgroup uint* keys, threadgroup int* places) {
  if (simd == 0) {
    const int n = router_shorten(logits, lane, list, at);
    if (lane == 0) count[0] = n;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  router_rank(list, at, count[0], lane, simd, simds, keys, places);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Returns the parameter total of router_score, with one simdgroup; 1 where it is not used.
inline float router_total(device const float* logits, int lane, float largest) {
  float total = 1.0f;
#if ROUTER_SOFTMAX && !ROUTER_NORMALIZE
  total = 0.0f;
  UNROLL for (int i = 0; i < ROUTER_LOGITS; i++) {
    if (i * 32 + lane < ROUTER_EXPERTS) total += precise::exp(logits[i * 32 + lane] - largest);
  }
  total = simd_sum(total);
#endif
  return total;
}
