// Package calibrate runs a checkpoint over a text, layer by layer, and quantizes its weights by what their inputs are.
//
// A module whose weights are in floating point goes through [Run] operation by operation, every one for all windows of
// the text before the next: so the weights of one linear are in memory at a time, and the values that are alive between
// two linears. When a linear comes up, the moments of its inputs are there; the methods of package quantize that need
// them choose codes, scales and biases; the windows go on with the quantized weight. So each weight is quantized for
// the inputs that it will have, with the errors of the weights before it in them.
//
// A method may also ask what the checkpoint would have there ([Follows]): the windows then go through a second time
// with the checkpoint's weights, and a weight is chosen so that it makes good, as far as its inputs tell, what the
// weights before it have changed.
//
// Windows that are held out go through twice, once with the weights of the checkpoint and once with the quantized ones,
// and give the [Quality] of the result.
//
// # Invariants
//
//   - The result is the same bits on every CPU and OS and for any number of workers: operations are those of ir/eval,
//     products those of ir/numeric/dot, and every sum over windows has the windows' order.
//   - Results go to files in a directory as they come ([Options.Dir]); a later run with the same [Options.Identity]
//     takes them from there.
//   - No model is named: what is quantized are weights of linear, switch_mlp and switch_geglu that the recipe names.
//
// Package calibrate imports ir, its subpackages and passes, and must never import loaders, codegen or runtime: texts
// come as tokens.
package calibrate
