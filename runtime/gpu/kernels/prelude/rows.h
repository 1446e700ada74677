// Rows of many sequences: row t of a call stands at positions[t] of the sequence of number sequences[t]; below 0 it is of none.

// Rows of a run from which on attention goes by tiles.
#define ROWS_MANY 16

// Whether row t > 0 is of one sequence with the row before it, one position behind it.
inline bool rows_follow(device const int* positions, device const int* sequences, int t) {
  return positions[t - 1] >= 0 && positions[t] == positions[t - 1] + 1 && sequences[t] == sequences[t - 1];
}

// Whether row t is one of a run of many, among all rows of the call.
inline bool rows_many(device const int* positions, device const int* sequences, int t, int rows) {
  if (positions[t] < 0) return false;
  int n = 1;
  for (int i = t; n < ROWS_MANY && i > 0 && rows_follow(positions, sequences, i); i--) n++;
  for (int i = t + 1; n < ROWS_MANY && i < rows && rows_follow(positions, sequences, i); i++) n++;
  return n >= ROWS_MANY;
}
