// Products of vectors with stored weights, for decoding: code that matvec.h and stream.h share.

#ifndef MATVEC_K        // columns
#define MATVEC_K 256
#endif
#ifndef MATVEC_NORM     // the vectors are normed first: 0 no, 1 with weights bf16, 2 with weights f32, 3 without weights
#define MATVEC_NORM 0
#endif
#ifndef MATVEC_HEAD     // columns of a head, which is normalized on its own and multiplied by activations of a gate; 0: no heads and no gate
#define MATVEC_HEAD 0   // a power of two from 8 to 128 that divides K and, where there is a second chunk, CHUNK; M is 1
#endif
#ifndef MATVEC_GATE     // the gate's activation
#define MATVEC_GATE ACTIVATION_NONE
#endif
#ifndef MATVEC_EPS
#define MATVEC_EPS 1e-6f
#endif
#ifndef MATVEC_SUM      // the vector is computed first: x / rms(x) · before + residual, and, where this is 2, times a scale
#define MATVEC_SUM 0
#endif
#ifndef MATVEC_SUM_EPS
#define MATVEC_SUM_EPS 1e-6f
#endif
#ifndef MATVEC_SUM_KEPT   // and it is written
#define MATVEC_SUM_KEPT 0
#endif
#if MATVEC_NORM == 1
#define MATVEC_NORM_T bfloat
#else
#define MATVEC_NORM_T float
#endif
#ifndef MATVEC_N0         // rows of the weights
#define MATVEC_N0 64
#endif
#ifndef MATVEC_N1
#define MATVEC_N1 0
#endif
#ifndef MATVEC_N2
#define MATVEC_N2 0
#endif
#ifndef MATVEC_N3
#define MATVEC_N3 0
#endif
#ifndef MATVEC_EPILOGUE   // 0 none, 1 adds extra [M, N], 2 adds extra [N], 3 MATVEC_CAP * tanh(y / MATVEC_CAP)
#define MATVEC_EPILOGUE 0
#endif
#ifndef MATVEC_CAP
#define MATVEC_CAP 1.0f
#endif
#ifndef MATVEC_ACTIVATION // of the gated pair, or of the activated rows
#define MATVEC_ACTIVATION ACTIVATION_SILU
#endif
#ifndef MATVEC_CONV       // the first CONV_CHANNELS rows of weight 0 are convolved, of one vector
#define MATVEC_CONV 0
#endif
#ifndef MATVEC_CONV_EARLY // no kernel of the sequence writes state and reset before this one: they are read before port_wait
#define MATVEC_CONV_EARLY 0
#endif
#ifndef MATVEC_ACTIVATED  // rows of weight ACTIVATED_OF, from ACTIVATED_FIRST on, whose activations are written too
#define MATVEC_ACTIVATED 0
#define MATVEC_ACTIVATED_OF 0
#define MATVEC_ACTIVATED_FIRST 0
#endif

// Reads what the epilogue adds to a result of a row; at is the result's index among all.
inline float matvec_extra(device const float* extra, long at, int row) {
#if MATVEC_EPILOGUE == 1
  return extra[at];
#elif MATVEC_EPILOGUE == 2
  return extra[row];
#else
  return 0.0f;
#endif
}

// Applies the epilogue to a result.
inline float matvec_end(float v, float extra) {
#if MATVEC_EPILOGUE == 1 || MATVEC_EPILOGUE == 2
  return v + extra;
#elif MATVEC_EPILOGUE == 3
  return MATVEC_CAP * port_tanh(v / MATVEC_CAP);
#else
  return v;
#endif
}

// Also writes the activation of a result, if it is one of the activated rows.
inline void matvec_activate(device float* activated, int which, int row, int vector, float v) {
#if MATVEC_ACTIVATED
  const int place = row - MATVEC_ACTIVATED_FIRST;
  if (which == MATVEC_ACTIVATED_OF && place >= 0 && place < MATVEC_ACTIVATED) {
    activated[long(vector) * MATVEC_ACTIVATED + place] = port_activate(MATVEC_ACTIVATION, v);
  }
#endif
}
