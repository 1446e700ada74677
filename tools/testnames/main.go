package main

import (
	"bufio"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	against := flag.String("against", "", "a list of tests that must be among those that ran")
	flag.Parse()
	if err := run(os.Stdout, *against, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "testnames:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, against string, files []string) error {
	if len(files) == 0 {
		return fmt.Errorf("no file with the output of go test -json is named")
	}
	tests := results{}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		err = tests.read(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	if against == "" {
		for _, name := range tests.names() {
			fmt.Fprintln(out, name)
		}
		return nil
	}
	list, err := readList(against)
	if err != nil {
		return fmt.Errorf("%s: %w", against, err)
	}
	return check(out, tests, list)
}

// slowPackage is the time in seconds from which on a package is named with its time.
const slowPackage = 20

// check prints what failed and what of the list is missing.
func check(out io.Writer, tests results, list []string) error {
	tests.printSlow(out, slowPackage)
	failed := tests.printFailed(out)
	missing, moved := tests.missing(list)
	for _, name := range missing {
		fmt.Fprintln(out, "did not run:", name)
	}
	fmt.Fprintf(out, "%d tests ran, %d failed; of %d in the list %d did not run, %d have moved\n",
		len(tests.names()), failed, len(list), len(missing), moved)
	if failed > 0 || len(missing) > 0 {
		return fmt.Errorf("%d tests failed, %d did not run", failed, len(missing))
	}
	return nil
}

func readList(file string) (list []string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return nil, err
		}
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		list = append(list, lines.Text())
	}
	return list, lines.Err()
}
