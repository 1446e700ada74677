package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(patterns []string) error {
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		if len(paths) == 0 {
			return fmt.Errorf("no file matches %s", pattern)
		}
		for _, path := range paths {
			source, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text, err := entries(string(source))
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := os.WriteFile(strings.TrimSuffix(path, ".metal")+".entry.h", []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
