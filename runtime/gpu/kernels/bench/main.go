package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/etc-ml/etc/runtime/gpu/cuda"
	"github.com/etc-ml/etc/runtime/gpu/device"
)

func main() {
	var o options
	name := flag.String("device", "cuda", "the device: cuda")
	flag.StringVar(&o.run, "run", ".", "cases whose name matches this expression")
	flag.BoolVar(&o.all, "all", false, "all tunings, not the default alone")
	flag.StringVar(&o.tunings, "tunings", ".", "with -all, those whose text matches this expression")
	flag.IntVar(&o.top, "top", 4, "print this many of the best tunings")
	flag.IntVar(&o.dispatches, "dispatches", 100, "dispatches of a sequence")
	flag.IntVar(&o.repeat, "repeat", 7, "sequences whose median counts")
	flag.IntVar(&o.rotate, "rotate", 192<<20, "bytes of weights to rotate through")
	flag.Parse()
	err := fmt.Errorf("there is no device %q", *name)
	var d device.Device
	if *name == "cuda" {
		d, err = cuda.Open(cuda.Options{})
	}
	if err == nil {
		err = bench(os.Stdout, d, cases(1), o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	run, tunings                    string
	all                             bool
	top, dispatches, repeat, rotate int
}

// bench measures cases and prints a table for each.
func bench(w io.Writer, d device.Device, cases []testCase, o options) error {
	match, err := regexp.Compile(o.run)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n", d.Info().Description)
	for _, c := range cases {
		if match.MatchString(c.name) {
			if err := c.measure(w, d, o); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return d.Close()
}
