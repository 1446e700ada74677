// Command draftmodel writes a checkpoint of random weights and, beside it, a head for multi-token prediction that fits:
// a dense Qwen3.5 of hidden size 2048 and 24 layers, in which the head and lm_head are about as large a part of what a
// token reads as in the model of 27B. docs/notes/measured-drafts.md measures rounds of drafts with it.
//
//	go run ./internal/draftmodel DIR     # DIR/checkpoint and DIR/mtp.safetensors, 2.9 GB
package main
