package command

import (
	"errors"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/inspect"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/report"
)

type inspectFlags struct {
	json, ir, nodes, weights, dot bool
	method, html                  string
}

func newInspect() *cobra.Command {
	var f inspectFlags
	cmd := &cobra.Command{
		Use:   "inspect FILE.pte",
		Short: "Show what a program is made of",
		Long: `inspect shows what a .pte file holds: its segments, methods, constant methods and metadata, the nodes of its
graph, how its weights are stored. --json gives the same facts under stable keys; --html writes one page of
pictures: sizes, bits, memory over a forward pass, a layer of each kind. The other flags show one part of one
method.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runInspect(cmd, args[0], f) },
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print one JSON object")
	fl.BoolVar(&f.ir, "ir", false, "print the method as IR text")
	fl.BoolVar(&f.nodes, "nodes", false, "print how many nodes of each type there are")
	fl.BoolVar(&f.weights, "weights", false, "print a table of the weights")
	fl.BoolVar(&f.dot, "dot", false, "print the method as a graph for Graphviz")
	fl.StringVar(&f.html, "html", "", "write the pictures to this file")
	fl.StringVar(&f.method, "method", "forward", "the method for --ir, --nodes, --weights, --dot and --html")
	return cmd
}

func runInspect(cmd *cobra.Command, path string, f inspectFlags) error {
	var chosen []string
	for _, name := range []string{"json", "ir", "nodes", "weights", "dot", "html"} {
		if cmd.Flags().Changed(name) {
			chosen = append(chosen, "--"+name)
		}
	}
	switch {
	case len(chosen) > 1:
		return usagef("%s: give one of them", strings.Join(chosen, " "))
	case cmd.Flags().Changed("method") && (len(chosen) == 0 || f.json):
		return usagef("--method: all methods are shown without one of --ir, --nodes, --weights, --dot, --html")
	}
	p, err := program.Open(path)
	if err != nil {
		return err
	}
	defer p.Close()
	out := cmd.OutOrStdout()
	if f.ir || f.dot || f.html != "" {
		m, err := p.Module(f.method)
		if err != nil {
			return err
		}
		if f.html != "" {
			return writeAtomically(f.html, func(w io.Writer) error { return report.Inspection(w, inspect.Read(p), m) })
		}
		if f.dot {
			return inspect.WriteDot(out, m)
		}
		return ir.Print(out, m)
	}
	r := inspect.Read(p)
	switch {
	case f.json:
		return writeJSON(out, r)
	case f.nodes, f.weights:
		return writePart(out, r, f)
	}
	return r.WriteText(out)
}

// writePart writes the nodes or the weights of one method.
func writePart(out io.Writer, r *inspect.Report, f inspectFlags) error {
	m, ok := r.Method(f.method)
	if !ok {
		var names []string
		for _, m := range r.Methods {
			names = append(names, m.Name)
		}
		return usagef("--method %q: %s has no such method; it has %q", f.method, r.File, names)
	}
	if m.Graph == nil {
		return invalidError{errors.New(m.Problem)}
	}
	if f.nodes {
		return m.Graph.WriteNodes(out)
	}
	return m.Graph.WriteWeights(out)
}
