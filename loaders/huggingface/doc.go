// Package huggingface reads the text files of a Hugging Face checkpoint directory: config.json,
// generation_config.json and tokenizer_config.json, and the tokenizer and chat template as bytes.
// The weights are package safetensors' part.
//
// [Load] reads a directory; [ParseConfig] reads a config.json alone. A configuration becomes one plain
// struct, a [Qwen], a [Gemma4] or a [MuseGlimmer], that holds every number a graph is built from.
//
// # Invariants
//
//   - No size has a default. A key that decides a shape is in the file, or the file is refused: the defaults
//     of a configuration class in Python differ from release to release, and those of ExecuTorch's loaders
//     from both.
//   - A configuration that is returned is consistent: heads divide, rotary dims are even, every layer has a
//     known kind. What etc has no graph for is refused by the key's name, never read as something near it.
//   - All that is wrong with a file is reported at once: the error joins one [*ConfigError] per key.
//   - JSON with a key twice is refused, and files larger than the limits here are not read.
//
// Package huggingface imports the standard library only, and nothing else of etc.
package huggingface
