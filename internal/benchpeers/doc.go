// Command benchpeers compares etc with llama.cpp on this machine: make bench-peers.
//
// It builds llama.cpp from the sources in the npm package node-llama-cpp, writes a model of the same
// dimensions for each of the two, random weights of 4.5 bits, and runs `etc bench` and `llama-bench` in
// turns, with a plain read of memory beside them. Everything lies in a directory outside of the repository
// (-dir) and is made once; measurements are added to results.jsonl there, so that a table may be measured in
// parts. The table of all of them goes to standard output, in Markdown.
//
// With -streams it runs `etc bench --streams` and `llama-batched-bench` instead: several prompts and then several
// answers at a time, in one process.
//
// With -serve it compares `etc serve` with llama-server instead, as `etc bench --serve` sees them, on files of the same
// model with a vocabulary: with prompts that neither has seen (-prompts new), which both compute, and with the same
// ones again and again (-prompts again), which both have in their caches. Cached tokens are a column of the table.
//
// # Invariants
//
//   - Figures that are compared were taken in turns, in the same minute.
//   - A run during which other processes used more than half a core is repeated and does not count, where the
//     system tells (Linux). With -serve it counts, and the table says how many cores others used at most.
//   - Both programs run with their defaults for the number of threads, prompt and context given; for servers the memory
//     of prefixes is given too, as much as llama-server takes by default.
//   - Nothing of llama.cpp is copied into this repository.
//
// The command imports runtime/cpu/kernel and runtime/cpu/pool, to read memory, runtime/bench and
// runtime/bench/serving; nothing imports it.
package main
