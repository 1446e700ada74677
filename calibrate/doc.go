// Package calibrate runs a checkpoint over a text, layer by layer, and quantizes each weight for the inputs that it
// gets.
//
// [Run] executes a module of floating-point weights segment by segment. A segment is an operation with weights, its
// site, and the operations after it up to the next site. All windows of the text go through a segment before the next
// one. When a linear comes up, the inputs of all windows are known. Run sums their moments, a method of package
// quantize chooses codes, scales and biases by them, and the windows continue with the quantized weight. So the
// inputs of each weight contain the errors of the weights before it.
//
// Windows go through a segment some at a time. What later segments read is kept in memory or in files. A plan
// knows how much memory a segment takes. It chooses how many windows, how many workers, and which values go to files,
// so that [Options.MaxRAM] holds; a ledger counts what is held.
//
// Some methods also compare with the inputs that the checkpoint's weights would give ([Follows]). The windows then
// run a second time, with the checkpoint's weights, and a weight is chosen so that it also corrects, as far as its
// inputs allow, for the errors of the weights before it.
//
// Held-out windows run twice, with the checkpoint's weights and with the quantized ones, and give the [Quality] of
// the result.
//
// # Invariants
//
//   - The result has the same bits on every CPU and OS, for any number of workers and any bound of memory: operations
//     are those of ir/eval, products those of ir/numeric/dot, and sums over windows run in the order of the windows.
//   - What takes memory in the order of the text, of a weight or of moments is counted in the ledger, and the plan
//     reckons with no less.
//   - Results go to files in a directory as they come ([Options.Dir]); a later run with the same [Options.Identity]
//     takes them from there.
//   - No model is named: what is quantized are the weights of linear, switch_mlp and switch_geglu that the recipe
//     names.
//
// Package calibrate imports ir, its subpackages and passes, and must never import loaders, codegen or runtime: texts
// come as tokens.
package calibrate
