package main

import (
	"context"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
)

// output is one generated file: what flatc is asked for, what flatc calls the result, and where it belongs.
type output struct {
	flags  []string
	source string // .fbs
	made   string // below flatc's -o folder
	target string // below schema/
}

// outputs lists every generated file. flatc leaves included files out, so scalar_type.fbs has its own row;
// holding an enum only, it must not be generated with --gen-onefile, which would import an unused package.
func outputs(schemaDir, moduleDir string) []output {
	in := func(name string) string { return filepath.Join(schemaDir, name) }
	reflection := filepath.Join(moduleDir, "reflection", "reflection.fbs")
	golang := func(pkg string, more ...string) []string {
		return append([]string{"--go", "--go-namespace", pkg}, more...)
	}
	// The builtins are the attributes of the language; force_align is one of them.
	binary := []string{"--binary", "--schema", "--bfbs-builtins"}
	return []output{
		{golang("program", "--gen-object-api", "--gen-onefile"), in("program.fbs"), "program_generated.go", "program/program_generated.go"},
		{golang("program"), in("scalar_type.fbs"), "program/ScalarType.go", "program/scalar_type_generated.go"},
		{golang("mlxgraph", "--gen-object-api", "--gen-onefile"), in("mlxgraph.fbs"), "mlxgraph_generated.go", "mlxgraph/mlxgraph_generated.go"},
		{golang("reflection", "--gen-onefile"), reflection, "reflection_generated.go", "reflection/reflection_generated.go"},
		{binary, in("program.fbs"), "program.bfbs", "program.bfbs"},
		{binary, in("mlxgraph.fbs"), "mlxgraph.bfbs", "mlxgraph.bfbs"},
	}
}

// docMark is flatc's mark of a documentation comment, which Go writes with two slashes.
var docMark = regexp.MustCompile(`(?m)^(\s*)///`)

// generate writes every output below dir.
func generate(ctx context.Context, flatc string, files []output, dir string) error {
	work, err := os.MkdirTemp("", "flatc-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, file := range files {
		args := append(file.flags, "-o", work+string(filepath.Separator), file.source)
		if err := run(ctx, work, flatc, args...); err != nil {
			return err
		}
		content, err := os.ReadFile(filepath.Join(work, file.made))
		if err != nil {
			return err
		}
		if filepath.Ext(file.target) == ".go" {
			if content, err = format.Source(docMark.ReplaceAll(content, []byte("$1//"))); err != nil {
				return fmt.Errorf("%s: %w", file.made, err)
			}
		}
		target := filepath.Join(dir, file.target)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(target, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
