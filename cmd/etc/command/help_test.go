package command

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// Every help reads at 80 columns, without spaces at the ends of lines, and has examples whose flags exist.
func TestHelp(t *testing.T) {
	root := newRoot()
	for _, c := range append(root.Commands(), root) {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		t.Run(c.Name(), func(t *testing.T) {
			var b strings.Builder
			require.NoError(t, writeHelp(&b, c))
			for i, line := range strings.Split(b.String(), "\n") {
				require.LessOrEqual(t, utf8.RuneCountInString(line), helpWidth, "line %d: %s", i+1, line)
				require.Equal(t, strings.TrimRight(line, " "), line, "line %d", i+1)
			}
			require.NotEmpty(t, c.Example)
			require.Contains(t, b.String(), "\nExamples:\n"+c.Example)
			c.Flags().VisitAll(func(f *pflag.Flag) {
				if !f.Hidden {
					require.Contains(t, b.String(), "--"+f.Name)
				}
			})
			for _, line := range strings.Split(c.Example, "\n") {
				line, _, _ = strings.Cut(line, "#")
				words := strings.Fields(line[strings.Index(line, "etc "):])
				of, _, err := root.Find(words[1:2])
				require.NoError(t, err)
				for _, w := range words {
					if name, ok := strings.CutPrefix(w, "--"); ok {
						require.NotNil(t, of.Flags().Lookup(name), "%s: %s", line, w)
					}
				}
			}
		})
	}
}

func TestMan(t *testing.T) {
	var b strings.Builder
	require.NoError(t, writeMan(&b, newRoot()))
	text := b.String()
	require.True(t, strings.HasPrefix(text, ".TH ETC 1"))
	require.NotContains(t, text, "--d --depth")
	require.Contains(t, text, ".B \\-d, \\-\\-depth ints\n")
	require.Contains(t, text, ".SS etc run MODEL.pte [PROMPT]\n")
	require.Contains(t, text, ".B 5\ninternal: ")
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, ".") {
			name, _, _ := strings.Cut(line, " ")
			require.Contains(t, []string{".TH", ".SH", ".SS", ".B", ".PP", ".TP", ".nf", ".fi"}, name, fmt.Sprint(i+1))
		}
	}
}
