// Package museglimmer builds the forward of Muse Glimmer's language model: layers of sliding and of full attention
// whose result is gated, and a gated MLP, with norms before and after both.
//
// What it computes is the forward of transformers' MuseGlimmerForConditionalGeneration (models/muse_glimmer) for text.
//
// # Invariants
//
//   - The norms of layers multiply by 1+w, added in float32; the last norm multiplies by w, and those of embeddings,
//     queries and keys have no weights. The two norms after a part have an eps of their own.
//   - Queries are scaled after their norm, and not rotated in some layers, whatever their kind.
//   - A tied head multiplies by the embedding as it is stored. Logits are float32.
//
// Package museglimmer imports ir, loaders/builder, loaders/gguf and loaders/huggingface and must never import passes,
// codegen or runtime.
package museglimmer
