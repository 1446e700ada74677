// Package gemma4 builds the forward of a Gemma 4: layers of sliding and of full attention with norms before and after
// every part, and a gated MLP. Some models have experts beside every MLP; some give every layer an embedding of its
// own, and let the last layers attend to the keys and values of earlier ones. The configuration says which.
//
// What it computes is the forward of transformers' Gemma4ForCausalLM (models/gemma4) and of the language model of
// Gemma4UnifiedForConditionalGeneration (models/gemma4_unified) for text.
//
// # Invariants
//
//   - Norms multiply by w. Attention is not scaled: queries and keys are normalised.
//   - Where full layers project no values, a value is the key's projection, normalised without weights and not
//     rotated.
//   - Keys and values that several layers share are cached once, by the layer that projects them.
//   - Routers read the residual stream, not a norm of the layer; their scores are float32.
//   - Proportional RoPE pairs elements i and i+D/2 of the whole head, and leaves the pairs beyond the
//     rotary part as they are.
//   - Logits are float32.
//
// Package gemma4 imports ir, loaders/builder and loaders/huggingface and must never import passes,
// codegen or runtime.
package gemma4
