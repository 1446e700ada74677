// The order in which lanes read vectors that direct.h multiplies (kernels.InLanes). Of a block of 128 columns, lane q of four has
// columns 32q to 32q + 31, and a word of codes is eight of them, of which four and four apart come out of a word together.
// So columns stand by word, then by lane, then in pairs of such: what the four lanes read at a time is 64 bytes in a row.

// The place of column k of a row whose first column stands at a multiple of 128.
inline int lanes_place(int k) { return k / 128 * 128 + k % 32 / 8 * 32 + k % 128 / 32 * 8 + k % 4 * 2 + k % 8 / 4; }

// Writes an item, 32 columns of a row, in packed order, which matmul_packed.metal describes. These are the columns of one word of
// each of four lanes. item is the number of the item in the row, and a row has columns columns. v has the eight columns of each
// lane, lane after lane. A tile has eights * 8 rows.
inline void lanes_pack(device bfloat* y, int row, int item, int columns, int eights, thread const float* v) {
  const long tile = row / (eights * 8);
  device uint4* to = (device uint4*)y + (tile * (columns / 8) + item * 4) * (eights * 8) + row % (eights * 8);
  UNROLL for (int c = 0; c < 4; c++) {
    uint4 piece;
    UNROLL for (int q = 0; q < 4; q++) piece[q] = port_pack_bf16(v[q * 8 + c], v[q * 8 + c + 4]);
    to[c * (eights * 8)] = piece;
  }
}
// Returns the first of the eight columns that a lane has in an item.
inline int lanes_column(int item, int lane) { return item / 4 * 128 + lane * 32 + item % 4 * 8; }
