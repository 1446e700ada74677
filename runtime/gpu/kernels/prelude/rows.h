// Rows of many sequences: row t of a call is at position positions[t] of sequence sequences[t]; a negative number says
// that it belongs to no sequence.

// The number of neighbouring rows of one sequence from which on the tiled attention takes them.
#define ROWS_MANY 16

// Reports whether row t > 0 is the next position of the same sequence as the row before it.
inline bool rows_follow(device const int* positions, device const int* sequences, int t) {
  return positions[t - 1] >= 0 && positions[t] == positions[t - 1] + 1 && sequences[t] == sequences[t - 1];
}

// Reports whether row t is in a run of at least ROWS_MANY neighbouring rows.
inline bool rows_many(device const int* positions, device const int* sequences, int t, int rows) {
  if (positions[t] < 0) return false;
  int n = 1;
  for (int i = t; n < ROWS_MANY && i > 0 && rows_follow(positions, sequences, i); i--) n++;
  for (int i = t + 1; n < ROWS_MANY && i < rows && rows_follow(positions, sequences, i); i++) n++;
  return n >= ROWS_MANY;
}
