package command

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/loaders/hub"
)

// TestReadmeCommands: the commands of the README's first example work when they are pasted: their flags exist, and the
// checkpoint is an id that the hub can have.
func TestReadmeCommands(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "README.md"))
	require.NoError(t, err)
	_, use, ok := strings.Cut(string(text), "\n## Use\n")
	require.True(t, ok)
	_, block, ok := strings.Cut(use, "```sh\n")
	require.True(t, ok)
	block, _, ok = strings.Cut(block, "```")
	require.True(t, ok)
	exported := ""
	for _, line := range strings.Split(strings.TrimSpace(block), "\n") {
		if strings.HasPrefix(line, "make build") {
			continue
		}
		before, quoted, _ := strings.Cut(line, ` "`)
		prompt, after, _ := strings.Cut(quoted, `"`)
		args := strings.Fields(before)[1:]
		if prompt != "" {
			args = append(append(args, prompt), strings.Fields(after)...)
		}
		cmd, rest, err := newRoot().Find(args)
		require.NoError(t, err, line)
		require.NoError(t, cmd.ParseFlags(rest), line)
		require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), line)
		switch cmd.Name() {
		case "export":
			_, err := hub.ParseRepo(cmd.Flags().Arg(0))
			require.NoError(t, err, line)
			exported, err = cmd.Flags().GetString("output")
			require.NoError(t, err)
		case "run":
			require.Equal(t, exported, cmd.Flags().Arg(0), line)
		}
	}
	require.NotEmpty(t, exported)
}

// TestMakefile: make test and make test-all do not end by Go's limit of ten minutes a package on a machine that does
// other things, and make test leaves out what takes long.
func TestMakefile(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "..", "Makefile"))
	require.NoError(t, err)
	for target, least := range map[string]time.Duration{"test": 30 * time.Minute, "test-all": 2 * time.Hour} {
		_, recipe, ok := strings.Cut(string(makefile), "\n"+target+":\n\t")
		require.True(t, ok, target)
		recipe, _, _ = strings.Cut(recipe, "\n")
		timeout := regexp.MustCompile(` -timeout (\S+) `).FindStringSubmatch(recipe)
		require.Len(t, timeout, 2, recipe)
		limit, err := time.ParseDuration(timeout[1])
		require.NoError(t, err)
		require.GreaterOrEqual(t, limit, least, recipe)
		require.Equal(t, target == "test", strings.Contains(recipe, " -short "), recipe)
	}
}

// TestTables: the rows of every table of the documentation have as many cells as its head.
func TestTables(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	bar := regexp.MustCompile(`(^|[^\\])\|`)
	tables := 0
	check := func(path string) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		cells, code := 0, false
		for i, line := range strings.Split(string(text), "\n") {
			code = code != strings.HasPrefix(line, "```")
			if code || !strings.HasPrefix(line, "|") {
				cells = 0
				continue
			}
			n := len(bar.FindAllString(strings.ReplaceAll(line, "||", "| |"), -1)) - 1
			if cells == 0 {
				cells, tables = n, tables+1
			}
			require.Equal(t, cells, n, fmt.Sprintf("%s:%d: cells", path, i+1))
		}
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/notes/*.md"} {
		names, err := fs.Glob(os.DirFS(root), pattern)
		require.NoError(t, err)
		for _, name := range names {
			check(filepath.Join(root, name))
		}
	}
	require.Greater(t, tables, 20)
}

// TestAuditNotes: the tests that docs/notes/audit.md names exist, and no line of it is without one, or a document.
func TestAuditNotes(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	there := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		switch {
		case strings.HasSuffix(path, "_test.go"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range function.FindAllSubmatch(text, -1) {
				there[string(m[1])] = true
			}
		case filepath.Ext(path) == ".txtar", filepath.Ext(path) == ".md":
			there[d.Name()] = true
		}
		return nil
	}))
	notes, err := os.ReadFile(filepath.Join(root, "docs", "notes", "audit.md"))
	require.NoError(t, err)
	name := regexp.MustCompile(`\b(?:Test|Fuzz)\w+|[\w-]+\.(?:txtar|md)\b`)
	lines := 0
	for _, line := range strings.Split(string(notes), "\n") {
		for _, n := range name.FindAllString(line, -1) {
			require.True(t, there[n], "%s, in %q", n, line)
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| --- ") || strings.HasPrefix(line, "| line ") {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		require.Regexp(t, name, cells[len(cells)-1], line)
		lines++
	}
	require.Greater(t, lines, 30)
}
