// The tables of calls of several sequences: what the kernels of states in slots share. ir/ragged.go says what they hold.
#ifndef SLOT_ENTRIES
#define SLOT_ENTRIES 4  // sequences that the table has room for
#endif

// The first row of the sequence of each of rows [first, end) goes to begins, -1 for a row of none, by all of a threadgroup's
// threads.
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
