// Package inputtest writes small checkpoints in the forms of other programs, for tests: of a directory in the layout of
// Hugging Face it makes what mlx-lm, llama.cpp's converter or ExecuTorch's exporter would make of it. Each writer does
// what those programs document or do, independently of the packages that read their files.
//
// Package inputtest is imported by tests only. It imports ir, loaders/huggingface and loaders/safetensors and must
// never import the packages that it tests.
package inputtest
