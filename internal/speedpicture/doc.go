// Command speedpicture draws the first table of BENCHMARKS.md: how many times as fast as llama.cpp etc is, a bar for
// each row.
//
//	go run ./internal/speedpicture            # writes docs/speed.svg
package main
