package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

func main() {
	sums := flag.String("sum", "runtime/gpu,runtime/cpu,runtime/bind,runtime/plan,runtime/fuse",
		"folders to sum, separated by commas")
	flag.Parse()
	root := "."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	packages, err := count(os.DirFS(root))
	if err == nil {
		err = table(os.Stdout, packages, strings.Split(*sums, ","))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "loc: %s: %v\n", root, err)
		os.Exit(1)
	}
}

// table prints a row for each package, then one for each folder that has any of them, then one for these folders
// together and one for the whole tree.
func table(out io.Writer, packages map[string]lines, folders []string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	header := func(name string) {
		fmt.Fprintf(w, "%s\t", name)
		for k := range kinds {
			fmt.Fprintf(w, "%s\t", k)
		}
		fmt.Fprintf(w, "sum\t%s\t\n", tests)
	}
	row := func(name string, l lines) {
		fmt.Fprintf(w, "%s\t", name)
		for k := range kinds {
			fmt.Fprintf(w, "%d\t", l[k])
		}
		fmt.Fprintf(w, "%d\t%d\t\n", l.sum(), l[tests])
	}
	header("package")
	for _, name := range sortedKeys(packages) {
		row(name, packages[name])
	}
	fmt.Fprintln(w)
	header("folder")
	var together lines
	for _, folder := range folders {
		l := under(packages, folder)
		together.add(l)
		row(folder, l)
	}
	row("these together", together)
	row("the whole tree", under(packages, "."))
	return w.Flush()
}
