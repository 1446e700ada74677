package requirements_test

import (
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
