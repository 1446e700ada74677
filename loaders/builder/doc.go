// Package builder holds what the builders of all architectures share: the tensors of a checkpoint by
// their names in the language model ([Tensors]), and the parts of a forward that do not differ between
// decoders ([Graph]): inputs, positions, projections, norms, key-value caches and the sampler.
//
// # Invariants
//
//   - A tensor that is asked for is there with the right shape, or one error names it beside all others
//     ([Tensors.Err]). A tensor of the checkpoint that no builder asks for and that is no part of a
//     vision, audio or multi-token-prediction module is such an error too.
//   - Weights stay lazy and keep the checkpoint's dtype. Constants that arithmetic makes of them (1+w) are
//     float32, so that no precision is lost.
//   - Activations have one dtype ([Graph.DType]): what a float32 constant has promoted is converted back.
//   - Graphs compute for one batch row, any number of tokens up to the prefill chunk and any start position.
//
// Package builder imports ir and loaders/huggingface and must never import passes, codegen or runtime.
package builder
