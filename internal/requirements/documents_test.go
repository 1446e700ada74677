package requirements_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// paths are the texts in backticks that name a file or a folder; NAME stands for any name.
var paths = regexp.MustCompile("`([A-Za-z0-9_]+(?:/[A-Za-z0-9_.*]+)+)`")

// TestDocumentsNameWhatIsThere: the files and folders that documents send their readers to are in the repository.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	for _, name := range []string{"docs/architecture.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", name))
		require.NoError(t, err)
		found := paths.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, found, name)
		for _, m := range found {
			if strings.Contains(m[1], "cumsum") { // the example of a kernel that is not there
				continue
			}
			pattern := filepath.Join("..", "..", strings.ReplaceAll(m[1], "NAME", "*"))
			there, err := filepath.Glob(pattern)
			require.NoError(t, err, "%s: %s", name, m[1])
			require.NotEmpty(t, there, "%s names %s, which is not in the repository", name, m[1])
		}
	}
}

// groupRows are the rows of a table whose first cell is a package; groupFiles the files that a row names without a
// folder.
var (
	groupRows  = regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\| (.*) \\|$")
	groupFiles = regexp.MustCompile("`([A-Za-z0-9_*]+\\.[a-z]+)`")
)

// TestGroupsNameFilesOfTheirPackage: the files that a row of the table of groups names are in the package of the row.
func TestGroupsNameFilesOfTheirPackage(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	require.NoError(t, err)
	_, groups, found := strings.Cut(string(text), "## Files of the large packages")
	require.True(t, found)
	groups, _, found = strings.Cut(groups, "## Index")
	require.True(t, found)
	checked := 0
	for _, row := range groupRows.FindAllStringSubmatch(groups, -1) {
		for _, m := range groupFiles.FindAllStringSubmatch(row[2], -1) {
			there, err := filepath.Glob(filepath.Join(root, row[1], strings.ReplaceAll(m[1], "NAME", "*")))
			require.NoError(t, err, "%s: %s", row[1], m[1])
			require.NotEmpty(t, there, "docs/architecture.md names %s, which is not in %s", m[1], row[1])
			checked++
		}
	}
	require.Greater(t, checked, 80, "files in groups")
}

// TestArchitectureNamesEveryPackage: whoever looks for a behaviour finds its package in the index. A package counts as
// named by a path in it, or by a folder above it that the index names as a whole. Generated code, helpers of tests and
// programs that write code or make releases are left out.
func TestArchitectureNamesEveryPackage(t *testing.T) {
	root := filepath.Join("..", "..")
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	require.NoError(t, err)
	_, index, found := strings.Cut(string(text), "## Index")
	require.True(t, found)
	named := map[string]bool{}
	for _, m := range paths.FindAllStringSubmatch(index, -1) {
		named[m[1]], named[filepath.ToSlash(filepath.Dir(m[1]))] = true, true
	}
	leftOut := regexp.MustCompile(`(^|/)(testdata|gen|\w+test|standin|ucd|reflection)(/|$)|^(schema/|tools/|examples/)|` +
		`^(cmd/etc|internal/(version|requirements|draftmodel)|runtime/gpu/(artifact|metal|kernels/bench))$`)
	checked := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		relative, err := filepath.Rel(root, filepath.Dir(path))
		require.NoError(t, err)
		folder := filepath.ToSlash(relative)
		if folder == "." || strings.HasPrefix(folder, ".") || leftOut.MatchString(folder) {
			return nil
		}
		require.True(t, named[folder], "docs/architecture.md: the index names no file of %s", folder)
		checked++
		return nil
	}))
	require.Greater(t, checked, 300, "files in named packages")
}

// links are the targets of Markdown's links.
var links = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinks: what documents link to is in the repository.
func TestLinks(t *testing.T) {
	root := filepath.Join("..", "..")
	checked := 0
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/notes/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			for _, m := range links.FindAllStringSubmatch(string(text), -1) {
				target, _, _ := strings.Cut(m[1], "#")
				if target == "" || strings.Contains(target, "://") {
					continue
				}
				_, err := os.Stat(filepath.Join(filepath.Dir(name), target))
				require.NoError(t, err, "%s links to %s", name, m[1])
				checked++
			}
		}
	}
	require.Greater(t, checked, 20)
}

// TestReadmeIsShort: what somebody reads first is read to the end.
func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	require.Less(t, len(strings.Fields(string(text))), 1200, "words in README.md; details go to docs")
}
