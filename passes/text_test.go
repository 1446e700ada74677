package passes

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes/quantize"
)

var update = flag.Bool("update", false, "write what the passes make into testdata/text")

// TestText runs the passes on the modules of testdata/text. A file begins with what it shows and with
// lines of directives:
//
//	pass: NAME …       the passes to run, in order
//	options: WORD …    cuda, sample, portable
//	equal: PRECISION … the precisions in which the results must stay the same, bit for bit
//
// and has the module before and after; or before and the error.
func TestText(t *testing.T) {
	paths, err := filepath.Glob("testdata/text/*.txt")
	require.NoError(t, err)
	covered := map[string]bool{}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			file, err := os.ReadFile(path)
			require.NoError(t, err)
			comment, text, found := strings.Cut(string(file), "-- before --\n")
			require.True(t, found)
			text, after, _ := strings.Cut(text, "-- after --\n")
			text, wantError, _ := strings.Cut(text, "-- error --\n")
			d := directives(t, comment)
			before, m := parse(t, text), parse(t, text)
			require.Equal(t, text, m.String(), "before is in the canonical text")
			o := textOptions(t, d["options"])
			for _, name := range d["pass"] {
				covered[name] = true
				if err = pass(t, name).Run(m, o); err != nil {
					break
				}
				require.NoError(t, ir.Verify(m))
			}
			if wantError != "" {
				require.EqualError(t, err, strings.TrimSpace(wantError))
				return
			}
			require.NoError(t, err)
			if *update {
				require.NoError(t, os.WriteFile(path, []byte(comment+"-- before --\n"+text+"-- after --\n"+m.String()),
					0o644))
				return
			}
			require.Equal(t, after, m.String())
			for _, p := range d["equal"] {
				for _, length := range []int64{1, 2, 5} {
					want := evaluate(t, before, precisions[p], length)
					if d["pass"][0] == "last-token" {
						lastPositions(want)
					}
					requireSameValues(t, want, evaluate(t, m, precisions[p], length), p)
				}
			}
			if len(d["pass"]) == 1 && d["pass"][0] != "sampling-head" && d["pass"][0] != "legalize" {
				require.NoError(t, pass(t, d["pass"][0]).Run(m, textOptions(t, d["options"])))
				require.Equal(t, after, m.String(), "a second run changes nothing")
			}
		})
	}
	for _, p := range Table {
		require.True(t, covered[p.Name], "no file of testdata/text is about pass %s", p.Name)
	}
}

// lastPositions replaces results (B, S, V) by what they hold for the last position, (B, V).
func lastPositions(values []eval.Value) {
	for i, v := range values {
		if len(v.Tensor.Shape) != 3 {
			continue
		}
		shape, last := v.Tensor.Shape, &eval.Tensor{DType: v.Tensor.DType,
			Shape: []int{v.Tensor.Shape[0], v.Tensor.Shape[2]}}
		for b := range shape[0] {
			from := (b*shape[1] + shape[1] - 1) * shape[2]
			last.F = append(last.F, v.Tensor.F[from:from+shape[2]]...)
		}
		values[i].Tensor = last
	}
}

// directives reads the lines "name: word word" of a comment.
func directives(t *testing.T, comment string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for line := range strings.Lines(comment) {
		name, rest, ok := strings.Cut(line, ": ")
		if ok && (name == "pass" || name == "options" || name == "equal") {
			out[name] = strings.Fields(rest)
		}
	}
	require.NotEmpty(t, out["pass"])
	for _, p := range out["equal"] {
		require.Contains(t, precisions, p)
	}
	return out
}

func textOptions(t *testing.T, words []string) *Options {
	t.Helper()
	o := &Options{}
	for _, w := range words {
		switch w {
		case "cuda":
			o.Backend = CUDA
		case "sample":
			o.Sample = true
		case "portable":
			o.Portable = true
		case "4w":
			o.Recipe = DefaultRecipe(minMax(4, 32), nil)
		case "4w+8w":
			o.Recipe = DefaultRecipe(minMax(4, 32), minMax(8, 32))
		case "6bpw":
			o.Recipe = AllocationRecipe(minMax(8, 32), nil)
			o.Allocate = &Allocation{BitsPerWeight: 6,
				Schemes: []quantize.Scheme{*minMax(4, 32), *minMax(4, 64), *minMax(8, 32)}}
		case "round":
			o.Recipe.RoundConstants = true
		default:
			require.Fail(t, "unknown option", w)
		}
	}
	return o
}
