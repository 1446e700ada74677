// Package gemma4 builds the forward of a dense Gemma4 like Gemma4-31B: layers of sliding and of full
// attention with norms before and after every part, and a gated MLP.
//
// What it computes is the forward of transformers' Gemma4ForCausalLM (models/gemma4) for text.
//
// # Invariants
//
//   - Norms multiply by w. Attention is not scaled: queries and keys are normalised.
//   - Full layers project no values: a value is the key's projection, normalised without weights and not
//     rotated.
//   - Proportional RoPE pairs elements i and i+D/2 of the whole head, and leaves the pairs beyond the
//     rotary part as they are.
//   - Logits are float32.
//
// Package gemma4 imports ir, loaders/builder and loaders/huggingface and must never import passes,
// codegen or runtime.
package gemma4
