package loaders

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/loaders/huggingface"
)

// TestReadmeModels: the table of models in README.md is that of the code.
func TestReadmeModels(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	table := "| Models | sizes | `model_type` |\n| --- | --- | --- |\n"
	for _, f := range huggingface.Families {
		table += fmt.Sprintf("| %s | %s | `%s` |\n", f.Title, f.Sizes, strings.Join(f.Types, "`, `"))
	}
	require.Contains(t, string(readme), "\n"+table+"\n")
}
