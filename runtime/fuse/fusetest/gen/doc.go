// Command gen writes the graph of a .pte's forward for tests: gen FILE.pte DIR writes DIR/FILE.ir.gz, the
// module's text followed by a line for every small constant: its name and its bytes. Sources of Metal
// kernels, which nothing here reads, are left out.
package main
