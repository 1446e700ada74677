// The tables of calls of several sequences, for kernels whose states lie in slots. ir/ragged.go describes them.
#ifndef SLOT_ENTRIES
#define SLOT_ENTRIES 4  // sequences that the table has room for
#endif

// Writes to begins, for each of the rows [first, end), the first row of its sequence, or -1 for a row of none; with all
// threads of a threadgroup.
inline void slot_begins(device const int* entries, int first, int end, int tid, int threads, threadgroup int* begins) {
  for (int r = first + tid; r < end; r += threads) begins[r - first] = -1;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int n = tid; n < SLOT_ENTRIES; n += threads) {
    const int begin = entries[3 * n];
    const int behind = min(begin + entries[3 * n + 1], end);
    for (int r = max(begin, first); r < behind; r++) begins[r - first] = begin;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
