// Command gen writes the assembly of package kernel and the Go declarations that go with it. Run it by
// go generate in that package; its output is checked in.
//
// Instructions are written by Go functions that hold what changes between kernels (bits of a code, width of
// a register, vectors of a tile) in variables. A file of this command is a family of kernels for one
// instruction set.
package main
