// Package qwen builds the forward of Qwen3 and what came after it: layers of gated delta nets and of full
// attention, which may be gated, each followed by a gated MLP, or by routed experts with or without a shared one.
// The configuration says which of these a model has, and nothing here goes by its name.
//
// What it computes is the forward of transformers' classes for text (models/qwen3, qwen3_moe, qwen3_next, qwen3_5 and
// qwen3_5_moe), written with one difference in form: the state of a delta net is kept as [Hv,Dv,Dk], which is the
// transpose of transformers' and what ExecuTorch's Metal kernel uses.
//
// # Invariants
//
//   - Norms but that of the delta net multiply by 1+w, added in float32, or in the older models by w.
//   - A factor that a scaling of RoPE has for rotated heads is part of the norms in front of the rotation.
//   - Conv and recurrent states are ignored at position 0, so that a program can be reused for a new text
//     without being loaded again; caches of attention need no reset, as nothing reads ahead of what was written.
//   - Recurrent states and the delta rule's queries and keys are float32 whatever the checkpoint is.
//
// Package qwen imports ir, loaders/builder and loaders/huggingface and must never import passes,
// codegen or runtime.
package qwen
