package kernels_test

import (
	"hash/fnv"
	"testing"
)

// oneOfThree skips about two of three cases of a long table with -short, always the same: the emulator compiles a
// kernel or two for each case.
func oneOfThree(t *testing.T) {
	t.Helper()
	h := fnv.New32a()
	h.Write([]byte(t.Name()))
	if testing.Short() && h.Sum32()%3 != 0 {
		t.Skip("-short: another case of this table runs")
	}
}
