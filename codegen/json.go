package codegen

import (
	"encoding/json"
	"io"

	"github.com/etc-ml/etc/schema"
	"github.com/etc-ml/etc/schema/program"
)

// WriteJSON writes what a file says, weights aside, as one JSON object: "program", ExecuTorch's tables, and
// "delegate", the MLX graph of the main entry, each with the names of its schema; "delegates" has those of
// further entries. No weight is read.
func WriteJSON(w io.Writer, f File) error {
	parts, err := f.Module.Parts()
	if err != nil {
		return err
	}
	l, err := Plan(f)
	if err != nil {
		return err
	}
	var out struct {
		Program  json.RawMessage `json:"program"`
		Delegate json.RawMessage `json:"delegate"`
		// Delegates are the graphs of the other entries, by the entry's name.
		Delegates map[string]json.RawMessage `json:"delegates,omitempty"`
	}
	if out.Program, err = schema.JSON(program.GetRootAsProgram(l.Program, 0).UnPack()); err != nil {
		return err
	}
	for i, part := range parts {
		graph, err := Encode(part)
		if err != nil {
			return err
		}
		text, err := schema.JSON(graph)
		if err != nil {
			return err
		}
		if i == 0 {
			out.Delegate = text
			continue
		}
		if out.Delegates == nil {
			out.Delegates = map[string]json.RawMessage{}
		}
		out.Delegates[part.Entry.Name] = text
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(out)
}
