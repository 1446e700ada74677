package command

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// destination is where a command writes a file: a name, or a stream where the name stands for one (-, /dev/stdout).
type destination struct {
	path string
	kind outfile.Kind
	// inputs are the files that the command reads; "" and names without a file are left out.
	inputs []string
	// private is for what holds a conversation.
	private bool
}

// options returns the options for outfile. A message on standard error says that a file is replaced.
func (d destination) options(cmd *cobra.Command) outfile.Options {
	o := outfile.Options{Kind: d.kind, Private: d.private,
		Log: func(m string) { logf(cmd.ErrOrStderr(), "etc: %s", m) }}
	for _, in := range d.inputs {
		if in != "" {
			o.Inputs = append(o.Inputs, in)
		}
	}
	return o
}

// check refuses a name that cannot be written, before anything is computed. "" is no name, and right.
func (d destination) check(cmd *cobra.Command) error {
	if d.path == "" || d.stream(cmd) != nil {
		return nil
	}
	return outfile.Check(d.path, d.options(cmd))
}

// stream returns the stream that the name stands for, nil where it is a file's.
func (d destination) stream(cmd *cobra.Command) io.Writer {
	return outfile.Stream(d.path, cmd.OutOrStdout(), cmd.ErrOrStderr())
}

// isOutput reports whether the name stands for standard output.
func (d destination) isOutput(cmd *cobra.Command) bool { return d.stream(cmd) == cmd.OutOrStdout() }

// write writes the file or stream.
func (d destination) write(cmd *cobra.Command, write func(io.Writer) error) error {
	if s := d.stream(cmd); s != nil && isTerminal(s) {
		return write(&shownWriter{w: s})
	} else if s != nil {
		return write(s)
	}
	return outfile.Write(d.path, d.options(cmd), write)
}

// writeTensors writes tensors to the file or stream.
func (d destination) writeTensors(cmd *cobra.Command, entries []safetensors.Entry, metadata map[string]string) error {
	return d.write(cmd, func(w io.Writer) error { return safetensors.Write(w, entries, metadata) })
}
