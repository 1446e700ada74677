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
