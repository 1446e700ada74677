// Command gen writes the assembly of package kernel and the Go declarations that go with it. Run it by
// go generate in that package; its output is checked in.
//
// Instructions are written by Go functions that hold what changes between kernels (bits of a code, width of
// a register, vectors of a tile) in variables. A file of this command is a family of kernels for one
// instruction set.
package main

import (
	"flag"
	"log"
)

func main() {
	dir := flag.String("dir", ".", "where to write")
	flag.Parse()
	log.SetFlags(0)
	for _, f := range []*file{
		dotAVX512(), tileAVX512(), packAVX512(), prepareAVX512(), vectorAVX512(), tileAMX(),
		dotAVX2(), tileAVX2(), packAVX2(), prepareAVX2(), vectorAVX2(),
		dotNEON(), tileNEON(), packNEON(), prepareNEON(), vectorNEON(),
	} {
		if err := f.write(*dir); err != nil {
			log.Fatalf("gen: %v", err)
		}
	}
}
