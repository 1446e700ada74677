// Mixtures of experts for a few tokens: code that experts.metal and stream_experts.metal share.

#ifndef EXPERTS_TOP       // experts of a token
#define EXPERTS_TOP 2
#endif
#ifndef EXPERTS_SHARED    // 1: and one that all tokens share
#define EXPERTS_SHARED 0
#endif
#ifndef EXPERTS_N         // rows of one matrix of the stack
#define EXPERTS_N 64
#endif
#ifndef EXPERTS_RESIDUAL  // the second product adds extra [T, H]
#define EXPERTS_RESIDUAL 0
#endif
#ifndef EXPERTS_ACTIVATION
#define EXPERTS_ACTIVATION ACTIVATION_SILU
#endif
#define EXPERTS_PARTS (EXPERTS_TOP + EXPERTS_SHARED)

// Writes the chosen experts of a token to experts [T, EXPERTS_PARTS], with one simdgroup, and lets the next kernel
// start, which may read them before its wait. The shared expert is written as number 0.
inline void mixture_experts(threadgroup const int* places, int token, int lane, device int* experts) {
  const long to = long(token) * EXPERTS_PARTS;
  if (lane < ROUTER_TOP) experts[to + EXPERTS_SHARED + lane] = places[lane];
  if (EXPERTS_SHARED && lane == 0) experts[to] = 0;
  port_publish();
  simdgroup_barrier(mem_flags::mem_none);
  port_release();
}

// Writes their scores in the same layout. The score of the shared expert is the sigmoid of its gate.
inline void mixture_scores(device const float* logits, device const ROUTER_SCALES_T* scales, device const float* gates, threadgroup const uint* keys,
                           threadgroup const int* places, int token, int lane, device float* scores) {
  const int rank = min(lane, ROUTER_TOP - 1);
  const float score = router_score(router_number(keys[rank]), places[rank], scales, lane, router_total(logits, lane, router_number(keys[0])));
  const long to = long(token) * EXPERTS_PARTS;
  if (lane < ROUTER_TOP) scores[to + EXPERTS_SHARED + lane] = score;
  if (EXPERTS_SHARED && lane == 0) scores[to] = port_sigmoid(gates[token]);
}
