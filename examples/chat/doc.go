// Command chat answers a question with the library, in the fewest lines: the program of README.md.
//
//	go run ./examples/chat qwen.pte "Why is the sky blue?"
package main
