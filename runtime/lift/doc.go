// Package lift turns the graph of an MLX delegate back into the IR.
//
// On the wire a program is chains of nodes over numbered slots that are used again and again. Lifting
// executes the chains symbolically, in order: it renames every write of a slot to a new SSA value,
// turns reads and writes of mutable buffer slots into loads, stores and in-place updates, and derives
// the type of every value, since temporary slots have none on the wire. The arms of an If and the body
// of a Scan become regions; a liveness analysis over the slots finds what flows out of them.
//
// Slots are cells, not names: the init chain may give a constant's slot another shape (ExecuTorch
// writes the biases of symmetric quantization so), and an integer slot may be overwritten between two
// uses that a reader would take for one (ExecuTorch's own exporter does that).
//
// Lifting what package codegen has written gives the module that was written.
//
// Package lift imports ir and schema; it must never import codegen, an engine or the container.
package lift
