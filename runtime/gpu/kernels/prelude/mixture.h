// A mixture of experts for a few tokens: what experts.metal and stream_experts.metal share.

#ifndef EXPERTS_TOP       // experts of a token
#define EXPERTS_TOP 2
#endif
#ifndef EXPERTS_SHARED    // 1: and one that all tokens share
#define EXPERTS_SHARED 0
#endif
#ifndef EXPERTS_N         // rows of one matrix of the stack
#define EXPERTS_N 64
#endif
#ifndef EXPERTS_RESIDUAL  // experts_down adds extra [T, H]
#define EXPERTS_RESIDUAL 0
#endif
#ifndef EXPERTS_ACTIVATION
#define EXPERTS_ACTIVATION ACTIVATION_SILU
#endif
#ifndef EXPERTS_TOKENS    // that the launch is made for
#define EXPERTS_TOKENS 2
#endif
#define EXPERTS_PARTS (EXPERTS_TOP + EXPERTS_SHARED)

// Whether there is a token of that number. One there always is, so that nothing is read to know it.
inline bool experts_token(int token, device const int* step) { return EXPERTS_TOKENS == 1 || token < step[STEP_TOKENS]; }

// Writes the experts of a token that have been ranked, and their scores, by one simdgroup: with EXPERTS_SHARED, the shared
// expert's before them.
inline void experts_write(threadgroup const uint* keys, threadgroup const int* places, device const float* logits, device const float* gates,
                          int token, int lane, device int* experts, device float* scores) {
  const int rank = min(lane, ROUTER_TOP - 1);
  const float logit = router_number(keys[rank]);
  const float score = router_score(logit, lane, router_total(logits, lane, router_number(keys[0])));
  const long to = long(token) * EXPERTS_PARTS;
  if (lane < ROUTER_TOP) {
    experts[to + EXPERTS_SHARED + lane] = places[rank];
    scores[to + EXPERTS_SHARED + lane] = score;
  }
  if (EXPERTS_SHARED && lane == 0) {
    experts[to] = 0;
    scores[to] = port_sigmoid(gates[token]);
  }
}
