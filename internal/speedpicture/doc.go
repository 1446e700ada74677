// Command speedpicture draws the first table of BENCHMARKS.md: how many times as fast as llama.cpp etc is, a bar for
// each row; and, of the rows with so many streams, tokens a second against the number of streams.
//
//	go run ./internal/speedpicture            # writes docs/speed.svg and docs/streams.svg
package main
