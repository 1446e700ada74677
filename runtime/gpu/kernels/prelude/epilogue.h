// What tiled products do with a result: what matmul.metal, matmul_direct.metal and matmul_packed.metal share.
#ifndef MATMUL_N
#define MATMUL_N 64        // rows of a weight: columns of y
#endif
#ifndef MATMUL_OUT         // float or bfloat
#define MATMUL_OUT float
#endif
#ifndef MATMUL_LANES       // y is bf16 in the order of lanes, N a multiple of 128
#define MATMUL_LANES 0
#endif
#ifndef MATMUL_EPILOGUE    // 0 none, 1 adds extra [T, N], 2 adds extra [N], 3 MATMUL_CAP * tanh(y / MATMUL_CAP)
#define MATMUL_EPILOGUE 0
#endif
#ifndef MATMUL_CAP
#define MATMUL_CAP 1.0f
#endif
#ifndef MATMUL_ACTIVATION
#define MATMUL_ACTIVATION ACTIVATION_SILU
#endif

// Returns element (row, col) of y. v is the product for it.
inline float matmul_result(device const float* extra, int row, int col, float v) {
#if MATMUL_EPILOGUE == 1
  v += extra[long(row) * MATMUL_N + col];
#elif MATMUL_EPILOGUE == 2
  v += extra[col];
#elif MATMUL_EPILOGUE == 3
  v = MATMUL_CAP * port_tanh(v / MATMUL_CAP);
#endif
  return v;
}

// Writes v as element (row, col) of y.
inline void matmul_store(device MATMUL_OUT* y, int row, int col, float v) {
  y[long(row) * MATMUL_N + (MATMUL_LANES ? lanes_place(col) : col)] = MATMUL_OUT(v);
}

// Writes element (row, col) of y. v is the product for it.
inline void matmul_write(device MATMUL_OUT* y, device const float* extra, int row, int col, float v) {
  matmul_store(y, row, col, matmul_result(extra, row, col, v));
}

// Writes element (row, col) of activation(x gate^T) * (x up^T).
inline void matmul_write_glu(device MATMUL_OUT* y, int row, int col, float gate, float up) {
  y[long(row) * MATMUL_N + (MATMUL_LANES ? lanes_place(col) : col)] = MATMUL_OUT(port_activate(MATMUL_ACTIVATION, gate) * up);
}
