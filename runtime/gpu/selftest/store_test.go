package selftest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzParse(f *testing.F) {
	f.Add(entry{"a GPU", "00ff", "norm/norm N=4", "", false}.String())
	f.Add(entry{"a GPU", "00ff", "norm/norm N=4", "norm/norm is off", false}.String())
	f.Add(entry{"a GPU", "00ff", "norm/norm N=4", "norm/norm does not run", true}.String())
	f.Add("etc known answer 1\ndevice \ntext \nkernel \nfailed \n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if e, ok := parse(text); ok {
			require.Equal(t, text, e.String())
		}
	})
}

func TestParse(t *testing.T) {
	for _, e := range []entry{{"a GPU", "00ff", "norm/norm N=4", "", false},
		{"a GPU", "00ff", "norm/norm N=4", "norm/norm is off", false},
		{"a GPU", "00ff", "norm/norm N=4", "norm/norm does not run", true}} {
		got, ok := parse(e.String())
		require.True(t, ok)
		require.Equal(t, e, got)
		for _, damaged := range []string{e.String() + "\n", e.String()[1:], "x" + e.String(),
			e.String()[:len(e.String())-2]} {
			_, ok := parse(damaged)
			require.False(t, ok, "%q", damaged)
		}
	}
}
