package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "benchquality:", err)
		os.Exit(1)
	}
}

func run() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	b := &bench{log: os.Stderr}
	flag.StringVar(&b.dir, "dir", filepath.Join(cache, "etc-quality"),
		"where results and one exported file at a time are kept")
	flag.StringVar(&b.etc, "etc", filepath.Join("bin", "etc"), "the program etc")
	flag.StringVar(&b.text, "text", "", "the text that divergence and perplexity are measured on")
	flag.StringVar(&b.calibrate, "calibrate", "default", "the text of methods that need one")
	only := flag.String("only", "", "a part of the names of the settings that are measured")
	table := flag.Bool("table", false, "only print the table of the results of this commit")
	picture := flag.String("picture", "", "the SVG file to write")
	from := flag.String("from", "", "a file with tables as this program prints them: only draw -picture of their rows")
	commit := flag.String("commit", "", "what the results are of (default: git's HEAD)")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: benchquality [flags] NAME=CHECKPOINT...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *from != "" {
		return drawTables(*from, *picture)
	}
	if *commit == "" {
		head, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
		if err != nil {
			return fmt.Errorf("git rev-parse: %w; -commit names what is measured", err)
		}
		*commit = strings.TrimSpace(string(head))
	}
	b.commit = *commit
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	if !*table {
		if err := b.measureAll(flag.Args(), *only); err != nil {
			return err
		}
	}
	results, err := b.kept()
	if err != nil {
		return err
	}
	fmt.Printf("commit %s\n\n", b.commit)
	writeTable(os.Stdout, results)
	if *picture == "" {
		return nil
	}
	return os.WriteFile(*picture, drawPicture(results), 0o644)
}

// drawTables draws the rows of the tables in a file.
func drawTables(from, picture string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	results, err := readTable(f)
	if err != nil {
		return fmt.Errorf("%s, %w", from, err)
	}
	if len(results) == 0 || picture == "" {
		return fmt.Errorf("%s: %d rows of tables; -picture names the file to draw them in", from, len(results))
	}
	return os.WriteFile(picture, drawPicture(results), 0o644)
}
