package requirements

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the project's folder.
const root = "../.."

// sections are the sections of the requirements with their numbers of lines.
var sections = []struct {
	letter string
	lines  int
}{{"A", 18}, {"B", 27}, {"C", 14}, {"D", 24}, {"E", 14}}

// TestList checks testdata/requirements.txt: in their order, every requirement has one line or more, "A1 package
// TestName" or "A1 n/a: reason", and the tests exist.
func TestList(t *testing.T) {
	file, err := os.Open(filepath.Join(root, "testdata", "requirements.txt"))
	require.NoError(t, err)
	defer file.Close()
	var listed []string
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, rest, _ := strings.Cut(line, " ")
		if len(listed) == 0 || listed[len(listed)-1] != id {
			listed = append(listed, id)
		}
		if reason, none := strings.CutPrefix(rest, "n/a: "); none {
			require.NotEmpty(t, strings.TrimSpace(reason), line)
			continue
		}
		fields := strings.Fields(rest)
		require.Len(t, fields, 2, "%q, want an id, a package and a test, or n/a: and a reason", line)
		require.Contains(t, tests(t, fields[0]), fields[1], line)
	}
	var want []string
	for _, s := range sections {
		for n := range s.lines {
			want = append(want, fmt.Sprintf("%s%d", s.letter, n+1))
		}
	}
	require.Len(t, want, 97)
	require.Equal(t, want, listed)
}

// tests lists the tests of a package, given by its folder.
func tests(t *testing.T, folder string) []string {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*_test.go"))
	require.NoError(t, err)
	var names []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") &&
				len(f.Type.Params.List) == 1 {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}
