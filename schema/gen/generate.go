package main

import (
	"bytes"
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
		{golang("program", "--gen-object-api", "--gen-onefile"), in("program.fbs"), "program_generated.go",
			"program/program_generated.go"},
		{golang("program"), in("scalar_type.fbs"), "program/ScalarType.go", "program/scalar_type_generated.go"},
		{golang("mlxgraph", "--gen-object-api", "--gen-onefile"), in("mlxgraph.fbs"), "mlxgraph_generated.go",
			"mlxgraph/mlxgraph_generated.go"},
		{golang("reflection", "--gen-onefile"), reflection, "reflection_generated.go",
			"reflection/reflection_generated.go"},
		{binary, in("program.fbs"), "program.bfbs", "program.bfbs"},
		{binary, in("mlxgraph.fbs"), "mlxgraph.bfbs", "mlxgraph.bfbs"},
	}
}

// docMark is flatc's mark of a documentation comment, which Go writes with two slashes.
var docMark = regexp.MustCompile(`(?m)^(\s*)///`)

// zeroSlot is a float field whose default is 0. FlatBuffers leaves out what equals the default, so -0 too, whose sign
// would be lost; compared by its bits, only 0 itself is left out. The bytes of all other values are the same.
var zeroSlot = regexp.MustCompile(`\.PrependFloat(32|64)Slot\((\d+), (\w+), 0\.0\)`)

// edit turns flatc's Go code into the code that is checked in.
func edit(source []byte) ([]byte, error) {
	source = docMark.ReplaceAll(source, []byte("$1//"))
	if bits := zeroSlot.ReplaceAll(source,
		[]byte(".PrependUint${1}Slot($2, math.Float${1}bits($3), 0)")); !bytes.Equal(bits, source) {
		source = bytes.Replace(bits, []byte("import (\n"), []byte("import (\n\t\"math\"\n"), 1)
	}
	return format.Source(source)
}

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
			if content, err = edit(content); err != nil {
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
