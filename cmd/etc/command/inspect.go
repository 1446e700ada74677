package command

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/inspect"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/ragged"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/report"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/single"
	"github.com/etc-ml/etc/runtime/speculate"
)

type inspectFlags struct {
	modelFlags
	json, ir, nodes, weights, dot, plan bool
	method, html, after                 string
	rows                                int
}

func newInspect() *cobra.Command {
	var f inspectFlags
	cmd := &cobra.Command{
		Use:   "inspect FILE.pte",
		Short: "Show what a program is made of",
		Long: `inspect shows what a .pte file holds: its segments, methods, constant methods and metadata, the nodes
of its graph, how its weights are stored. --json gives the same facts under stable keys; --html writes one page of
pictures: sizes, bits, memory over a forward pass, a layer of each kind. The other flags show one part of one
method; --plan shows how a device runs it: operations after fusion, steps for one token and for a chunk, what they
read, buffers and memory.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runInspect(cmd, args[0], f) },
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.json, "json", false, "print one JSON object")
	fl.BoolVar(&f.ir, "ir", false, "print all methods, or the one that --method names, as IR text")
	fl.BoolVar(&f.nodes, "nodes", false, "print how many nodes of each type there are")
	fl.BoolVar(&f.weights, "weights", false, "print a table of the weights")
	fl.BoolVar(&f.dot, "dot", false, "print the method as a graph for Graphviz")
	fl.BoolVar(&f.plan, "plan", false, "print how --device runs the method")
	f.add(cmd, "mixed")
	f.addStorage(cmd)
	fl.StringVar(&f.after, "after", "", "with --ir: print what --device runs, after this pass of the runtime (last: "+
		"after all of them)")
	fl.IntVar(&f.rows, "rows", 1, "with --ir --after: tokens of a call, from bind-shapes on")
	fl.StringVar(&f.html, "html", "", "write the pictures to this file")
	fl.StringVar(&f.method, "method", "forward", "the method for --ir, --nodes, --weights, --dot, --plan and --html")
	return cmd
}

func runInspect(cmd *cobra.Command, path string, f inspectFlags) error {
	if err := f.check(cmd); err != nil {
		return err
	}
	e, o, err := f.runner()
	if err != nil {
		return err
	}
	if f.plan || f.after != "" {
		if e, err = chosen(e, o.Precision); err != nil {
			return err
		}
	}
	page := destination{path: f.html, kind: outfile.Page, inputs: []string{path}}
	if err := page.check(cmd); err != nil {
		return err
	}
	p, err := openProgram(path)
	if err != nil {
		return err
	}
	defer p.Close()
	if f.ir || f.dot || f.plan || f.html != "" {
		return f.showMethod(cmd, p, page, e, o)
	}
	out, r := shownOut(cmd), inspect.Read(p)
	switch {
	case f.json:
		return writeJSON(out, inspection{r, recordOf(p)})
	case f.nodes, f.weights:
		return writePart(out, r, f)
	}
	if err := r.WriteText(out); err != nil {
		return err
	}
	return recordOf(p).Write(out)
}

// check refuses flags that do not go together.
func (f inspectFlags) check(cmd *cobra.Command) error {
	var chosen []string
	for _, name := range []string{"json", "ir", "nodes", "weights", "dot", "plan", "html"} {
		if cmd.Flags().Changed(name) {
			chosen = append(chosen, "--"+name)
		}
	}
	switch {
	case len(chosen) > 1:
		return usagef("%s: give one of them", strings.Join(chosen, " "))
	case cmd.Flags().Changed("method") && (len(chosen) == 0 || f.json):
		return usagef("--method: all methods are shown without one of --ir, --nodes, --weights, --dot, --plan, --html")
	case f.after != "" && !f.ir:
		return usagef("--after %s is about --ir", f.after)
	case cmd.Flags().Changed("rows") && (f.after == "" || f.rows < 1):
		return usagef("--rows %d: want a number of tokens from 1 on, with --ir --after", f.rows)
	case !f.plan && f.after == "" && anyChanged(cmd, "device", "threads", "cpu-features", "exact",
		"no-tune", "precision"):
		return usagef("--device, --threads, --cpu-features, --exact, --no-tune and --precision are about --plan and " +
			"--ir --after")
	case !f.plan && f.after != "ragged" && anyChanged(cmd, "kv-cache", "state"):
		return usagef("--kv-cache and --state are about --plan and --ir --after ragged")
	}
	return nil
}

// showMethod shows what the flags ask for of a method's graph.
func (f inspectFlags) showMethod(cmd *cobra.Command, p *program.Program, page destination, e engine.Engine,
	o engine.Options) error {
	m, err := p.Module(f.method)
	if err != nil {
		return err
	}
	out := shownOut(cmd)
	switch {
	case f.ir && f.after == "" && !cmd.Flags().Changed("method"):
		return printEntries(cmd, p, m)
	case f.plan:
		if err := writePlan(out, m, e, o); err != nil || f.method != "forward" {
			return err
		}
		return writeDraftPlan(out, p, e, o)
	case f.html != "":
		return page.write(cmd, func(w io.Writer) error {
			return report.Inspection(w, inspect.Read(p), m, figuresOf(recordOf(p))...)
		})
	case f.after != "":
		return writeLowered(out, m, e, o, f)
	case f.dot:
		return inspect.WriteDot(out, m)
	}
	return ir.Print(out, m)
}

// printEntries prints all methods as one module, or m alone where they are none.
func printEntries(cmd *cobra.Command, p *program.Program, m *ir.Module) error {
	whole, err := p.Whole(m.Entry.Name)
	if err != nil {
		logf(cmd.ErrOrStderr(), "etc: the methods are printed one by one (--method), this is %s: %v", m.Entry.Name, err)
		whole = m
	}
	return ir.Print(cmd.OutOrStdout(), whole)
}

// inspection is what --json prints.
type inspection struct {
	*inspect.Report
	// Build is the build record, absent in files of other tools.
	Build *buildRecord `json:"build,omitempty"`
}

// recordOf returns the build record of a program, or nil where it has none that can be read; etc verify says why.
func recordOf(p *program.Program) *buildRecord {
	r, err := readRecord(p)
	if err != nil {
		return nil
	}
	return r
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

// writeLowered writes what an engine runs, after a pass of the runtime.
func writeLowered(out io.Writer, m *ir.Module, e engine.Engine, o engine.Options, f inspectFlags) error {
	e, storage := storageOf(e)
	if f.after != "last" || !isLowerer(e) {
		if err := checkRuntimePass("--after", f.after, e); err != nil {
			return err
		}
	}
	if _, err := session.Describe(m); err == nil {
		if m, err = session.LastRow(m); err != nil {
			return err
		}
	}
	if f.after == "ragged" { // the pass runs where a program is compiled for many sequences
		made, err := batch.RaggedModule(m, e, batch.RaggedOptions{Engine: o, Storage: storage})
		if err != nil {
			return err
		}
		return ir.Print(out, made)
	}
	shown := false
	last, err := e.(engine.Lowerer).Lower(m, f.rows, o, func(pass string, m *ir.Module) error {
		if pass == f.after {
			shown = true
			return ir.Print(out, m)
		}
		return nil
	})
	switch {
	case err != nil || shown:
		return err
	case f.after != "last":
		return usagef("--after %s: the pass did not run", f.after)
	}
	return ir.Print(out, last)
}

func isLowerer(e engine.Engine) bool {
	_, ok := e.(engine.Lowerer)
	return ok
}

// writeDraftPlan writes how the draft of a program drafts for many sequences, and nothing for a program without one.
func writeDraftPlan(out io.Writer, p *program.Program, e engine.Engine, o engine.Options) error {
	kind, err := execution.DraftOf(p)
	if err != nil || kind == speculate.None {
		return err
	}
	m, err := p.Whole("forward")
	if err != nil {
		return err
	}
	e, storage := storageOf(e)
	return batch.DescribeDraft(out, m, kind, e, o.Precision, storage)
}

// writePlan writes how an engine runs a module.
func writePlan(out io.Writer, m *ir.Module, e engine.Engine, o engine.Options) error {
	e, storage := storageOf(e)
	name := e.Name()
	if o.Precision == eval.Strict {
		name = reference.Engine{}.Name() // which runs it then
	}
	chunk, languageModel := math.MaxInt, false
	if d, err := session.Describe(m); err == nil {
		chunk, languageModel = d.MaxChunk, true
		if m, err = session.LastRow(m); err != nil {
			return err
		}
	}
	given, err := m, error(nil)
	if storage != (ragged.Storage{}) {
		of := single.Engine{Engine: e, Storage: storage}
		if m, _, err = of.Make(m, passes.Control{Disable: o.DisablePasses}); err != nil {
			return usagef("--kv-cache, --state: %s: %w", storage, err)
		}
	}
	switch name {
	case "metal", "cuda":
		err = e.(gpu.Engine).Describe(out, m, chunk, o)
	case cpu.Engine{}.Name():
		err = cpu.Describe(out, m, chunk, o)
	case reference.Engine{}.Name():
		if _, err = fmt.Fprintln(out, "engine reference runs the operations of the graph as they stand, "+
			"each on its own"); err == nil {
			err = ir.Print(out, m)
		}
	default:
		return usagef("--plan: device %s shows none", name)
	}
	if err != nil || !languageModel {
		return err
	}
	return batch.Describe(out, given, e, o.Precision, storage)
}
