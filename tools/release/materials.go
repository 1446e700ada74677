package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// billOfMaterials has cyclonedx-gomod, whose version is pinned in tools/release.mod, list the modules in a binary
// with their hashes. It reads what the Go toolchain recorded there and needs no network once the tool is fetched.
func billOfMaterials(ctx context.Context, repository, binary string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", "tool", "-modfile=tools/release.mod", "cyclonedx-gomod", "bin",
		"-json", "-std", "-noserial", "-notimestamp", "-output", "-", binary)
	cmd.Dir = repository
	var text, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &problems
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("cyclonedx-gomod: %w\n%s", err, problems.String())
	}
	return withoutToolHashes(text.Bytes())
}

// withoutToolHashes leaves the hashes of cyclonedx-gomod's own binary out of a bill of materials: they depend on the
// machine that built it, and the same release must give the same bytes on all. Keys come out sorted.
func withoutToolHashes(text []byte) ([]byte, error) {
	var bill map[string]any
	if err := json.Unmarshal(text, &bill); err != nil {
		return nil, err
	}
	metadata, ok := bill["metadata"].(map[string]any)
	if !ok {
		return nil, errors.New("a bill of materials has metadata, this one has none")
	}
	tools, _ := metadata["tools"].([]any)
	for _, t := range tools {
		if tool, ok := t.(map[string]any); ok {
			delete(tool, "hashes")
		}
	}
	out, err := json.MarshalIndent(bill, "", "  ")
	return append(out, '\n'), err
}

// notices returns the licences of the modules that any of the binaries has code of, and of Go itself, as their authors
// ask for with copies in binary form.
func (r release) notices(ctx context.Context, s source, work string) ([]byte, error) {
	modules := map[string]bool{}
	for _, p := range r.platforms {
		info, err := buildinfo.ReadFile(r.binary(work, p))
		if err != nil {
			return nil, err
		}
		for _, d := range info.Deps {
			modules[d.Path] = true
		}
	}
	root, err := goCommand(ctx, s.dir, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	// Packages of Go for distributions keep the licence elsewhere: golang.org/x modules have the same text.
	var out bytes.Buffer
	if text, err := os.ReadFile(filepath.Join(root, "LICENSE")); err == nil {
		notice(&out, "Go", "LICENSE", text)
	}
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		dir, err := goCommand(ctx, s.dir, "list", "-m", "-f", "{{.Dir}}", path)
		if err != nil {
			return nil, err
		}
		if err := moduleNotices(&out, path, dir); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// moduleNotices writes the files of a module's folder that a licence asks to keep.
func moduleNotices(out *bytes.Buffer, path, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("the licence of %s: %w", path, err)
	}
	found := false
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		licence := strings.HasPrefix(name, "LICENSE") || strings.HasPrefix(name, "LICENCE") ||
			strings.HasPrefix(name, "COPYING")
		if e.IsDir() || !licence && !strings.HasPrefix(name, "NOTICE") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		notice(out, path, e.Name(), text)
		found = found || licence
	}
	if !found {
		return fmt.Errorf("the module %s has no licence in %s: find out whether it may be distributed", path, dir)
	}
	return nil
}

func notice(out *bytes.Buffer, path, name string, text []byte) {
	fmt.Fprintf(out, "%s\n%s, %s\n\n%s\n\n", strings.Repeat("=", 72), path, name, bytes.TrimSpace(text))
}

// goCommand runs the go command in a folder, and gives what it prints.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var problems bytes.Buffer
	cmd.Stderr = &problems
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, problems.String())
	}
	return strings.TrimSpace(string(text)), nil
}
