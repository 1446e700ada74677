// Package dot multiplies matrices of float32 so that every product has the same bits on every CPU, and in whatever
// blocks it is computed: each element is one [Product], whose order of sums is fixed and in which no product is fused
// with a sum. A kernel in assembly has a reference implementation in Go that it equals bit by bit.
//
// Package dot imports nothing of etc.
package dot
