// Package fusetest has the graphs of language models, of ours and of ExecuTorch's exporter, for tests of what
// fuses and runs them. They are texts with their small constants; the weights are random numbers. So they
// take little room, and compute something.
//
// Package fusetest imports ir; only tests may import it.
package fusetest
