// Package compare measures how far a program is from the checkpoint that it was made of: each weight, the
// residual stream at each layer, the routers' choices and the logits. Both sides are IR modules: the
// program's, and that of the checkpoint lowered without quantization; they are matched by the names of
// their constants and run by the reference semantics in float32.
//
// Package compare imports ir and ir/eval and must never import an engine or a loader.
package compare
