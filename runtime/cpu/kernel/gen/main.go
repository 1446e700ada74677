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
		dotAVX512(), fewAVX512(), tileAVX512(), packAVX512(), prepareAVX512(), vectorAVX512(), tileAMX(),
		dotAVX2(), tileAVX2(), packAVX2(), prepareAVX2(), vectorAVX2(), expandAVX2(),
		dotNEON(), tileNEON(), packNEON(), prepareNEON(), vectorNEON(), expandNEON(),
	} {
		if err := f.write(*dir); err != nil {
			log.Fatalf("gen: %v", err)
		}
	}
}
