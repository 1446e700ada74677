package command

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/internal/tensorfile"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/runtime/engine"
)

type execFlags struct {
	modelFlags
	inputs, outputs, method string
	repeat                  int
}

func newExec() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec FILE.pte",
		Short: "Run any method of a program on given inputs",
		Long: `exec runs a method of a program on tensors from a safetensors file and writes what it gives.

Inputs are keyed "0", "1", … in the order of the method's inputs; other keys are ignored. Outputs are keyed
alike and have the dtype and shape that the program declares; an Int is an i64 of no dims. --repeat N calls
the method N times on one state; the outputs of call r > 0 get the suffix _callr.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runExec(cmd, args[0], f) },
	}
	cmd.Flags().StringVar(&f.inputs, "inputs", "", "safetensors file with the inputs")
	cmd.Flags().StringVar(&f.outputs, "outputs", "", "safetensors file to write the outputs to")
	cmd.Flags().StringVar(&f.method, "method", "forward", "method to run")
	cmd.Flags().IntVar(&f.repeat, "repeat", 1, "number of calls on one state")
	f.add(cmd, "strict")
	return cmd
}

func runExec(cmd *cobra.Command, path string, f execFlags) error {
	if f.outputs == "" {
		return usagef("exec: --outputs FILE is missing: it names the file for the results")
	}
	if f.repeat < 1 {
		return usagef("exec: --repeat %d, want at least 1", f.repeat)
	}
	device, options, err := f.runner()
	if err != nil {
		return err
	}
	outputs := destination{path: f.outputs, kind: outfile.Tensors, inputs: []string{path, f.inputs}}
	if err := outputs.check(cmd); err != nil {
		return err
	}
	p, err := openProgram(path)
	if err != nil {
		return err
	}
	defer p.Close()
	m, err := p.Module(f.method)
	if err != nil {
		return err
	}
	inputs, err := readInputs(f.inputs, m.Entry)
	if err != nil {
		return err
	}
	x, err := engine.Compile(device, m, options)
	if err != nil {
		return err
	}
	defer x.Close()
	if err := checkExecutable(path, m, x, device, options.Precision); err != nil {
		return err
	}
	instance, err := x.NewInstance()
	if err != nil {
		return err
	}
	defer instance.Close()
	var entries []safetensors.Entry
	for call := range f.repeat {
		out, err := instance.Run(cmd.Context(), inputs)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for i, v := range out {
			key := strconv.Itoa(i)
			if call > 0 {
				key += "_call" + strconv.Itoa(call)
			}
			entries = append(entries, tensorfile.Entry(key, v))
		}
	}
	return outputs.writeTensors(cmd, entries, nil)
}

// readInputs reads the inputs of a function from a safetensors file.
func readInputs(path string, f *ir.Func) ([]eval.Value, error) {
	if len(f.Params) == 0 {
		return nil, nil
	}
	if path == "" {
		return nil, usagef("exec: --inputs FILE is missing: %s has %d inputs", f.Name, len(f.Params))
	}
	file, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for i, p := range f.Params {
		if _, ok := file.Tensor(strconv.Itoa(i)); !ok {
			return nil, usagef("%s: no tensor %q for input %d (%s), which is %s", path,
				strconv.Itoa(i), i, p.Param, p.Type)
		}
	}
	inputs := make([]eval.Value, len(f.Params))
	for i, p := range f.Params {
		key := strconv.Itoa(i)
		t, _ := file.Tensor(key)
		d, ok := tensorfile.DType(t.DType)
		if !ok {
			return nil, usagef("%s: tensor %q is %s, which no program takes", path, key, t.DType)
		}
		raw := make([]byte, t.Size())
		if n, err := t.ReadAt(raw, 0); n < len(raw) {
			return nil, fmt.Errorf("%s: tensor %q: %w", path, key, err)
		}
		v, err := eval.Decode(d, t.Shape, raw)
		if err != nil {
			return nil, fmt.Errorf("%s: tensor %q: %w", path, key, err)
		}
		if p.Type.Kind == ir.IntKind {
			if len(v.I) != 1 {
				return nil, usagef("%s: tensor %q has shape %v, want one integer for input %d", path, key, t.Shape, i)
			}
			inputs[i] = eval.Value{Int: v.I[0]}
			continue
		}
		if d != p.Type.DType || len(t.Shape) != p.Type.Rank() {
			return nil, usagef("%s: tensor %q is %s%v, input %d (%s) is %s", path, key, d, t.Shape, i, p.Param, p.Type)
		}
		inputs[i] = eval.Value{Tensor: v}
	}
	return inputs, nil
}
