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
	var all []declared
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
			kernels, err := parse(string(source))
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			to := strings.TrimSuffix(path, ".metal") + ".entry.h"
			if err := os.WriteFile(to, []byte(entriesOf(kernels)), 0o644); err != nil {
				return err
			}
			all = append(all, kernels...)
		}
	}
	list, err := signatures(all)
	if err != nil {
		return err
	}
	text, err := argumentsFile(list)
	if err != nil {
		return err
	}
	return os.WriteFile("arguments_generated.go", text, 0o644)
}
