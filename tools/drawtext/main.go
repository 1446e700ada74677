package main

import (
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("drawtext: ")
	seed := flag.Uint64("seed", 1, "seed of the draw")
	count := flag.Int("n", 30, "number of texts")
	places := flag.Bool("places", false, "print the file and line of each text")
	flag.Parse()
	texts, err := collect(os.DirFS("."))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of %d texts\n", min(*count, len(texts)), len(texts))
	for i, t := range draw(texts, *seed, *count) {
		fmt.Printf("\n%d. ", i+1)
		if *places {
			fmt.Printf("%s:%d ", t.file, t.line)
		}
		fmt.Printf("(%s)\n%s\n", t.kind, t.words)
	}
}

// draw returns n of the texts, each at most once, as the seed orders them.
func draw(texts []text, seed uint64, n int) []text {
	random := rand.New(rand.NewPCG(seed, 0))
	drawn := make([]text, 0, n)
	for _, i := range random.Perm(len(texts)) {
		if len(drawn) == n {
			break
		}
		drawn = append(drawn, texts[i])
	}
	return drawn
}
