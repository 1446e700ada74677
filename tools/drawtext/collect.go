package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// fewest is the number of words that a text has at least. Shorter ones name a thing, and there is nothing to explain.
const fewest = 8

// A text is what a reader is asked about.
type text struct {
	file  string
	line  int
	kind  string // comment, with the names of what it stands at; message or paragraph
	words string
}

// collect returns the texts of a tree, in the order of its files. They are:
//
//   - the comments of hand-written Go without tests that stand before a declaration or a field, and others of two lines
//     or more;
//   - the runs of comment lines of kernels (.metal, .h), two lines or more;
//   - the string literals of that Go, but for generators of code: errors, help and what commands print;
//   - the paragraphs and the items of lists of Markdown files. Tables are left out: a row says little without its head.
//
// Every text has at least eight words.
func collect(tree fs.FS) ([]text, error) {
	var texts []text
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := entry.Name()
		if entry.IsDir() {
			if base == "testdata" || base == "bin" || base == "node_modules" ||
				name != "." && strings.ContainsAny(base[:1], "._") {
				return fs.SkipDir
			}
			return nil
		}
		var read func(string, []byte) ([]text, error)
		switch path.Ext(name) {
		case ".go":
			if strings.HasSuffix(name, "_test.go") {
				return nil
			}
			read = ofGo
		case ".metal", ".h":
			read = ofKernel
		case ".md":
			read = ofMarkdown
		default:
			return nil
		}
		source, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		found, err := read(name, source)
		for _, t := range found {
			if len(strings.Fields(t.words)) >= fewest {
				texts = append(texts, t)
			}
		}
		return err
	})
	return texts, err
}

// ofGo returns the comments and the string literals of a Go file; nil for a generated one.
func ofGo(name string, source []byte) ([]text, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments)
	if err != nil || ast.IsGenerated(file) {
		return nil, err
	}
	line := func(p token.Pos) int { return files.Position(p).Line }
	names := map[*ast.CommentGroup]string{}
	var texts []text
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.File:
			names[n.Doc] = "package " + n.Name.Name
		case *ast.FuncDecl:
			names[n.Doc] = n.Name.Name
		case *ast.GenDecl:
			names[n.Doc] = n.Tok.String()
			if t, ok := n.Specs[0].(*ast.TypeSpec); ok {
				names[n.Doc] = t.Name.Name
			} else if v, ok := n.Specs[0].(*ast.ValueSpec); ok {
				names[n.Doc] = listed(v.Names)
			}
		case *ast.TypeSpec:
			names[n.Doc] = n.Name.Name
		case *ast.ValueSpec:
			names[n.Doc], names[n.Comment] = listed(n.Names), listed(n.Names)
		case *ast.Field:
			names[n.Doc], names[n.Comment] = listed(n.Names), listed(n.Names)
		case *ast.BasicLit:
			if s, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && path.Base(path.Dir(name)) != "gen" {
				texts = append(texts, text{name, line(n.Pos()), "message", s})
			}
		}
		return true
	})
	for _, c := range file.Comments {
		kind := "comment"
		at, declared := names[c]
		if declared {
			kind += " on " + at
		}
		if declared || line(c.End()) > line(c.Pos()) {
			texts = append(texts, text{name, line(c.Pos()), kind, strings.TrimSpace(c.Text())})
		}
	}
	return texts, nil
}

// listed returns the names of a declaration, separated by commas.
func listed(names []*ast.Ident) string {
	var list []string
	for _, n := range names {
		list = append(list, n.Name)
	}
	return strings.Join(list, ", ")
}

// ofKernel returns the runs of two or more comment lines of a kernel or of a header.
func ofKernel(name string, source []byte) ([]text, error) {
	var texts []text
	var run []string
	for i, line := range strings.Split(string(source)+"\n", "\n") {
		if comment, ok := strings.CutPrefix(strings.TrimSpace(line), "//"); ok {
			run = append(run, strings.TrimSpace(comment))
			continue
		}
		if len(run) > 1 {
			texts = append(texts, text{name, i + 1 - len(run), "comment", strings.Join(run, "\n")})
		}
		run = nil
	}
	return texts, nil
}

// ofMarkdown returns the paragraphs of a document and the items of its lists, without headings, tables and code.
func ofMarkdown(name string, source []byte) ([]text, error) {
	var texts []text
	var run []string
	code := false
	end := func(next int) {
		if len(run) > 0 {
			texts = append(texts, text{name, next - len(run), "paragraph", strings.Join(run, "\n")})
		}
		run = nil
	}
	for i, line := range strings.Split(string(source)+"\n", "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			code = !code
			end(i + 1)
		case code:
		case trimmed == "", trimmed[0] == '#', trimmed[0] == '|':
			end(i + 1)
		default:
			if strings.HasPrefix(trimmed, "* ") || strings.HasPrefix(trimmed, "- ") {
				end(i + 1)
			}
			run = append(run, trimmed)
		}
	}
	return texts, nil
}
