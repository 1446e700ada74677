// Package loaders reads a checkpoint, a directory in the layout of Hugging Face or a GGUF file, and builds the
// module that is its model's forward: names and shapes become an [ir.Module] whose weights are read from the
// checkpoint when somebody asks for their bytes. Loaders quantize nothing. Weights that are quantized already keep
// their values, but for Q5_K, Q6_K and fp8 (docs/export.md).
//
// [Open] reads configuration, tokenizer files and the headers of the weights and checks them against each
// other; [Checkpoint.Build] makes a module. huggingface.Families is the table of model families, and there is a builder
// for each type of configuration: a family whose configuration has a type that is there already is a row of that table
// and a function that reads it; another one needs a builder beside qwen and gemma4, and a row in architecture.go.
//
// # Invariants
//
//   - The architecture is the one that config.json names; an unknown one is refused by name.
//   - Every tensor of the checkpoint is used, or belongs to a module beside the language model and is
//     counted, or is an error; so is one that is missing or has another shape. There are no silent defaults.
//   - Memory does not grow with the weights: a module of a 67 GB checkpoint holds none of them.
//   - A module's text and the provenance of its constants do not depend on where the checkpoint lies.
//
// Package loaders imports ir and its own subpackages and must never import passes, codegen or runtime.
package loaders
