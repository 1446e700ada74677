package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// module is cut off from the names of packages.
const module = "github.com/etc-ml/etc/"

// A test is a package's test or subtest, or the package itself where name is "".
type test struct{ pkg, name string }

func (t test) String() string { return strings.TrimSuffix(t.pkg+" "+t.name, " ") }

// A result is how a test ended: pass, skip or fail, or "" as long as it has not.
type result struct {
	action  string
	seconds float64
	output  strings.Builder // dropped when the test passes
}

type results map[test]*result

// event is a line of go test -json. Builds that fail have an ImportPath in place of a Package.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

func (r results) read(in io.Reader) error {
	decoder := json.NewDecoder(in)
	for n := 1; ; n++ {
		var e event
		if err := decoder.Decode(&e); err == io.EOF {
			return nil
		} else if err != nil {
			return fmt.Errorf("event %d: %w, want the output of go test -json", n, err)
		}
		t := test{strings.TrimPrefix(e.Package+e.ImportPath, module), e.Test}
		if r[t] == nil {
			r[t] = &result{}
		}
		switch e.Action {
		case "output", "build-output":
			r[t].output.WriteString(e.Output)
		case "build-fail":
			r[t].action = "fail"
		case "pass", "skip":
			r[t].action, r[t].seconds = e.Action, e.Elapsed
			r[t].output.Reset()
		case "fail":
			r[t].action, r[t].seconds = e.Action, e.Elapsed
		}
	}
}

// names returns those of the tests that ended, packages left out.
func (r results) names() []string {
	var names []string
	for t, result := range r {
		if t.name != "" && result.action != "" {
			names = append(names, t.String())
		}
	}
	slices.Sort(names)
	return names
}

// printFailed prints what the tests and packages have said that failed or did not end, and counts them.
func (r results) printFailed(out io.Writer) int {
	var failed []test
	for t, result := range r {
		if result.action == "fail" || result.action == "" {
			failed = append(failed, t)
		}
	}
	slices.SortFunc(failed, func(a, b test) int { return strings.Compare(a.String(), b.String()) })
	for _, t := range failed {
		what := "failed"
		if r[t].action == "" {
			what = "did not end"
		}
		fmt.Fprintf(out, "%s %s\n%s", t, what, r[t].output.String())
	}
	return len(failed)
}

// printSlow prints the packages whose tests took at least so many seconds, the slowest first.
func (r results) printSlow(out io.Writer, least float64) {
	var slow []test
	for t, result := range r {
		if t.name == "" && result.seconds >= least {
			slow = append(slow, t)
		}
	}
	slices.SortFunc(slow, func(a, b test) int {
		return cmp.Or(cmp.Compare(r[b].seconds, r[a].seconds), strings.Compare(a.pkg, b.pkg))
	})
	for _, t := range slow {
		fmt.Fprintf(out, "%s took %.0f s\n", t, r[t].seconds)
	}
}

// missing returns the tests of a list that did not run. A test that ran in a package that the list does not have it
// in has moved there.
func (r results) missing(list []string) (missing []string, moved int) {
	listed := map[string]bool{}
	for _, name := range list {
		listed[name] = true
	}
	elsewhere := map[string]int{} // tests by name, in packages that the list does not have them in
	ran := map[string]bool{}
	for _, name := range r.names() {
		ran[name] = true
		if _, test, ok := strings.Cut(name, " "); ok && !listed[name] {
			elsewhere[test]++
		}
	}
	for _, name := range list {
		_, test, _ := strings.Cut(name, " ")
		switch {
		case ran[name]:
		case elsewhere[test] > 0:
			elsewhere[test]--
			moved++
		default:
			missing = append(missing, name)
		}
	}
	return missing, moved
}
