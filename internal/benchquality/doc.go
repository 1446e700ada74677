// Command benchquality measures what forms and methods of quantization cost a model: make bench-quality.
//
// For each checkpoint and each setting of the table (method, bits, group) it runs `etc export` and `etc eval --against`
// on a text, and keeps divergence, perplexity, size, processor time and peak memory of the export in a file of JSON
// lines, so that a table may be measured in parts. The table in Markdown goes to standard output; -picture writes one
// of divergence against bits a weight, -from draws one of tables that were printed before.
//
// # Invariants
//
//   - Divergence and perplexity are those of `etc eval --against`, whose figures have the same bits on every machine;
//     time and memory are the export's own, as the system counts them for the process, so a busy machine changes
//     times little.
//   - A setting that is measured for the same commit is not measured again.
//
// The command imports nothing of etc; nothing imports it.
package main
