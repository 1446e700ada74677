// Command bench measures the kernels on a GPU at the dims of Qwen3.5-35B-A3B and Gemma4-31B, with the tunings
// worth trying of each: what to make the defaults of package kernels.
//
//	go run ./runtime/gpu/kernels/bench [-device cuda] [-run REGEXP] [-all [-tunings REGEXP]] [-top 3]
//
// A measurement is a recorded sequence of dispatches, each behind a barrier, whose weights rotate through more memory
// than the second-level cache holds; the figure is the median time of a dispatch. bytes count what must be read and
// written once. diff is the largest difference to the results of the default tuning, relative to the largest result.
// Where there is cuBLAS, the products of prefill are measured with it too.
package main
