package main

import (
	"bytes"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A kind is what a hand-written file holds.
type kind int

const (
	goCode     kind = iota // Go that is neither a test nor a generator
	generators             // Go of a package in a folder named gen
	msl                    // kernels in the Metal Shading Language
	headers                // headers of kernels, those without a suffix in a folder named include as well
	c                      // C and C++
	assembly
	kinds // the number of kinds that sums count
)

// tests is the Go of tests. No sum counts it.
const tests = kinds

func (k kind) String() string {
	return [...]string{"Go", "generators", "MSL", "headers", "C", "assembly", "tests"}[k]
}

// lines are numbers of lines by kind.
type lines [kinds + 1]int

func (l *lines) add(other lines) {
	for k, n := range other {
		l[k] += n
	}
}

// sum is the number of lines that are not of tests.
func (l lines) sum() int {
	n := 0
	for k := range kinds {
		n += l[k]
	}
	return n
}

// generated is the line by which a generator marks what it wrote, as Go's tools know it; comments of C and assembly
// look the same.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.\r?$`)

// count gives the lines of each folder of a tree that has a hand-written file. It skips folders named testdata and bin,
// those that Go's tools skip too (a leading dot or underscore), and links.
func count(tree fs.FS) (map[string]lines, error) {
	packages := map[string]lines{}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if base := entry.Name(); base == "testdata" || base == "bin" || name != "." && strings.ContainsAny(base[:1], "._") {
				return fs.SkipDir
			}
			return nil
		}
		k, ok := kindOf(name)
		if !ok || !entry.Type().IsRegular() {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil || generated.Match(text) {
			return err
		}
		l := packages[path.Dir(name)]
		l[k] += bytes.Count(text, []byte("\n"))
		packages[path.Dir(name)] = l
		return nil
	})
	return packages, err
}

// kindOf tells a file's kind from its path, and whether it has one.
func kindOf(name string) (kind, bool) {
	folder := path.Base(path.Dir(name))
	switch path.Ext(name) {
	case ".go":
		switch {
		case strings.HasSuffix(name, "_test.go"):
			return tests, true
		case folder == "gen":
			return generators, true
		}
		return goCode, true
	case ".metal":
		return msl, true
	case ".h":
		return headers, true
	case "":
		return headers, folder == "include"
	case ".c", ".cc":
		return c, true
	case ".s":
		return assembly, true
	}
	return 0, false
}

// under sums the packages in a folder and below it.
func under(packages map[string]lines, folder string) (sum lines) {
	for name, l := range packages {
		if folder == "." || name == folder || strings.HasPrefix(name, folder+"/") {
			sum.add(l)
		}
	}
	return sum
}

func sortedKeys(packages map[string]lines) []string { return slices.Sorted(maps.Keys(packages)) }
