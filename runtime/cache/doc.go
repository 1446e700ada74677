// Package cache keeps the books of what many sequences hold on a device: blocks of attention caches,
// rings of sliding windows, and slots of recurrent state. It hands out numbers of blocks and slots and
// counts who holds them. The bytes themselves belong to an engine, which finds the numbers in the table of
// a call.
//
//   - Memory is the budget: pools of blocks and slots with reference counts.
//   - Table is what one sequence holds. It grows before a call, can be rolled back after it, and is forked
//     without a copy.
//   - Prefix is a radix tree over token ids that keeps blocks and checkpoints of ended or running sequences,
//     so that a later prompt with the same beginning starts after it.
//
// # Invariants
//
//   - The bytes of all blocks and slots in use are never above the budget.
//   - Nobody writes a block or a slot that somebody else holds: a table that would gets one of its own, and
//     a copy where old rows are still read.
//   - The count of a block equals the number of tables and tree entries that hold it (Check).
//   - A checkpoint is usable alone with the blocks above it: it holds all that does not grow with position.
//
// Everything here is deterministic, and nothing is safe for concurrent use: one goroutine, that of the
// scheduler, owns it all.
//
// Package cache imports nothing of ours and must never import an engine.
package cache
