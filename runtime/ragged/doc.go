// Package ragged makes the program of one sequence, forward(tokens, input_pos), one for calls of many: R rows, each
// of some sequence and at some position. It is a pass of the run table (runtime/fuse) and goes by what operations
// compute, not by who wrote the file.
//
// Operations whose rows are independent ([ir.RowsOf]) see R rows and nothing else. Those with state become the
// operations of ir/ragged.go: caches are pools of blocks and recurrent state is a pool of slots, and tables, inputs
// of the call, say where the state of each row lies. The last row that a file takes before lm_head becomes the rows
// that the call wants.
//
// # Invariants
//
//   - The result computes for every row what the given program computes for it in a call of that row alone.
//   - No state of one sequence reaches a row of another.
//   - What is not understood is an error that names the operation: then the program stays one of one sequence.
//
// Package ragged imports ir, ir/eval and runtime/cache. It must never import an engine.
package ragged
