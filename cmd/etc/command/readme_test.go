package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
