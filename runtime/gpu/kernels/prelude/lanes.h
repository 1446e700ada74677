// The order in which lanes read vectors that direct.h multiplies (kernels.InLanes). Of a block of 128 columns, lane q of four has
// columns 32q to 32q + 31, and a word of codes is eight of them, of which four and four apart come out of a word together.
// So columns stand by word, then by lane, then in pairs of such: what the four lanes read at a time is 64 bytes in a row.

// The place of column k of a row whose first column stands at a multiple of 128.
inline int lanes_place(int k) { return k / 128 * 128 + k % 32 / 8 * 32 + k % 128 / 32 * 8 + k % 4 * 2 + k % 8 / 4; }
