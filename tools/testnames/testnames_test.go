package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const events = `{"Action":"start","Package":"github.com/etc-ml/etc/ir"}
{"Action":"run","Package":"github.com/etc-ml/etc/ir","Test":"TestB"}
{"Action":"output","Package":"github.com/etc-ml/etc/ir","Test":"TestB","Output":"=== RUN TestB\n"}
{"Action":"run","Package":"github.com/etc-ml/etc/ir","Test":"TestB/one two"}
{"Action":"pass","Package":"github.com/etc-ml/etc/ir","Test":"TestB/one two","Elapsed":1}
{"Action":"pass","Package":"github.com/etc-ml/etc/ir","Test":"TestB"}
{"Action":"skip","Package":"github.com/etc-ml/etc/ir","Test":"TestA"}
{"Action":"pass","Package":"github.com/etc-ml/etc/ir"}
{"Action":"pass","Package":"github.com/etc-ml/etc/codegen","Test":"TestC"}
{"Action":"pass","Package":"github.com/etc-ml/etc/codegen"}
`

func parse(t *testing.T, text string) results {
	t.Helper()
	r := results{}
	require.NoError(t, r.read(strings.NewReader(text)))
	return r
}

func TestNames(t *testing.T) {
	require.Equal(t, []string{"codegen TestC", "ir TestA", "ir TestB", "ir TestB/one two"}, parse(t, events).names())
	require.ErrorContains(t, results{}.read(strings.NewReader("ok  \tir\n")), "event 1: ")
}

func TestCheck(t *testing.T) {
	var out strings.Builder
	require.NoError(t, check(&out, parse(t, events), []string{"ir TestA", "ir TestB/one two"}))
	require.Equal(t, "4 tests ran, 0 failed; of 2 in the list 0 did not run, 0 have moved\n", out.String())

	// A moved test counts once; one whose name other packages always had is missing.
	out.Reset()
	require.EqualError(t, check(&out, parse(t, events),
		[]string{"ir TestA", "passes TestC", "loaders TestC", "passes TestA"}),
		"0 tests failed, 2 did not run")
	require.Equal(t, "did not run: loaders TestC\ndid not run: passes TestA\n"+
		"4 tests ran, 0 failed; of 4 in the list 2 did not run, 1 have moved\n", out.String())
}

// TestSlow: packages that took long are named with their times, the slowest first.
func TestSlow(t *testing.T) {
	var out strings.Builder
	slow := `{"Action":"pass","Package":"github.com/etc-ml/etc/ir","Test":"TestB","Elapsed":40.2}
{"Action":"pass","Package":"github.com/etc-ml/etc/ir","Elapsed":20}
{"Action":"pass","Package":"github.com/etc-ml/etc/passes","Elapsed":19.9}
{"Action":"fail","Package":"github.com/etc-ml/etc/schema","Elapsed":61.6}
`
	require.Error(t, check(&out, parse(t, slow), nil))
	require.Equal(t, "schema took 62 s\nir took 20 s\nschema failed\n"+
		"1 tests ran, 1 failed; of 0 in the list 0 did not run, 0 have moved\n", out.String())
}

func TestFailed(t *testing.T) {
	var out strings.Builder
	failed := events + `{"Action":"output","Package":"github.com/etc-ml/etc/loaders","Test":"TestD","Output":"want 1\n"}
{"Action":"fail","Package":"github.com/etc-ml/etc/loaders","Test":"TestD"}
{"Action":"output","Package":"github.com/etc-ml/etc/loaders","Output":"FAIL\n"}
{"Action":"fail","Package":"github.com/etc-ml/etc/loaders"}
{"Action":"build-output","ImportPath":"github.com/etc-ml/etc/passes","Output":"undefined: x\n"}
{"Action":"build-fail","ImportPath":"github.com/etc-ml/etc/passes"}
{"Action":"run","Package":"github.com/etc-ml/etc/schema","Test":"TestE"}
{"Action":"output","Package":"github.com/etc-ml/etc/schema","Test":"TestE","Output":"killed\n"}
`
	require.EqualError(t, check(&out, parse(t, failed), nil), "4 tests failed, 0 did not run")
	require.Equal(t, `loaders failed
FAIL
loaders TestD failed
want 1
passes failed
undefined: x
schema TestE did not end
killed
5 tests ran, 4 failed; of 0 in the list 0 did not run, 0 have moved
`, out.String())
}
