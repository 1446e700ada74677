package container

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireNoPanic opens a file of any bytes and reads all of it. Errors are fine as long as no panic made them.
func requireNoPanic(t *testing.T, data []byte) (opened, whole bool) {
	f, err := OpenBytes("test.pte", data)
	if err == nil {
		opened, err = true, readAll(f)
	}
	if err != nil {
		require.ErrorIs(t, err, ErrInvalid)
		require.False(t, strings.Contains(err.Error(), panicked), "%v", err)
	}
	return opened, err == nil
}

// TestMutants changes a few bytes of each file of testdata, mostly where the program and the graph are.
func TestMutants(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	opened, whole, n := 0, 0, 0
	for _, good := range sorted(testdata(t)) {
		f := open(t, good)
		parts := []Segment{{Size: int64(f.Header().ProgramSize)}}
		for _, m := range f.Methods() {
			for _, d := range m.Delegates {
				parts = append(parts, Segment{Offset: d.Offset, Size: int64(len(d.Payload))})
			}
		}
		data := slices.Clone(good)
		for range 600 {
			n++
			var changed []int
			for range 1 + r.IntN(4) {
				part := parts[r.IntN(len(parts))]
				at := int(part.Offset) + r.IntN(int(part.Size))
				changed = append(changed, at)
				if r.IntN(2) == 0 {
					data[at] ^= 1 << r.IntN(8)
				} else {
					data[at] = byte(r.Uint32())
				}
			}
			a, b := requireNoPanic(t, data)
			if a {
				opened++
			}
			if b {
				whole++
			}
			for _, at := range changed {
				data[at] = good[at]
			}
		}
	}
	t.Logf("%d mutants: %d open, of %d every graph is accepted", n, opened, whole)
	require.Greater(t, whole, n/20, "too few mutants get through the checks to say anything of what is behind them")
	require.Less(t, whole, n)
}

// TestTruncated cuts a file at every length.
func TestTruncated(t *testing.T) {
	good := testdata(t)["If_nested_scan_in_branch.pte"]
	for n := range good {
		_, whole := requireNoPanic(t, good[:n])
		require.False(t, whole, "%d of %d bytes", n, len(good))
	}
}

// sorted returns the files in the order of their names, so that every run makes the same mutants.
func sorted(files map[string][]byte) (out [][]byte) {
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, files[name])
	}
	return out
}

func FuzzOpen(f *testing.F) {
	for _, data := range testdata(f) {
		if len(data) < 16<<10 { // the fuzzer is slow on large inputs
			f.Add(data)
		}
	}
	f.Add(newTestFile().bytes(f))
	f.Fuzz(func(t *testing.T, data []byte) { requireNoPanic(t, data) })
}
