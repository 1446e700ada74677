// Package qwen35moe builds the forward of Qwen3.5-MoE: layers of gated delta nets and of gated full
// attention, each followed by routed experts and one shared expert.
//
// What it computes is the forward of transformers' Qwen3_5MoeForCausalLM (models/qwen3_5_moe) for text,
// written with one difference in form: the state of a delta net is kept as [Hv,Dv,Dk], which is the
// transpose of transformers' and what ExecuTorch's Metal kernel uses.
//
// # Invariants
//
//   - Norms but that of the delta net multiply by 1+w, added in float32.
//   - Conv and recurrent states are ignored at position 0, so that a program can be reused for a new text
//     without being loaded again; caches of attention need no reset, as nothing reads ahead of what was written.
//   - Recurrent states and the delta rule's queries and keys are float32 whatever the checkpoint is.
//
// Package qwen35moe imports ir, loaders/builder and loaders/huggingface and must never import passes,
// codegen or runtime.
package qwen35moe
