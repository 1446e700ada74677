// Package tokenizer turns text into token ids and back, as a Hugging Face tokenizer.json says.
package tokenizer
