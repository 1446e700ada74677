// Package synthetic writes checkpoints of random weights: of the real layer shapes, for measuring export and
// inference at full size without a download, or of any other dims, for tests.
//
// A checkpoint has the form of the published ones of its family: of multimodal ones config.json with text_config and
// tensors named model.language_model.*, experts stacked or one by one, sharded safetensors with an index. It has no
// tokenizer and no vision part.
//
// # Invariants
//
//   - A tensor's bytes are a function of the seed, its name and its shape: neither the number of workers, the size
//     of the shards nor the machine matters.
//   - Weights are streamed: memory is a few MiB a worker, whatever the size of the checkpoint.
//   - config.json reads back, through package huggingface, as the configuration that was asked for.
//
// Package synthetic imports loaders/huggingface and loaders/safetensors, and nothing else of etc.
package synthetic
