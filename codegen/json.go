package codegen

import (
	"encoding/json"
	"io"

	"github.com/etc-ml/etc/schema"
	"github.com/etc-ml/etc/schema/program"
)

// WriteJSON writes what a file says, weights aside, as one JSON object: "program", ExecuTorch's tables, and
// "delegate", the MLX graph, each with the names of its schema. No weight is read.
func WriteJSON(w io.Writer, f File) error {
	graph, err := Encode(f.Module)
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
	}
	if out.Program, err = schema.JSON(program.GetRootAsProgram(l.Program, 0).UnPack()); err != nil {
		return err
	}
	if out.Delegate, err = schema.JSON(graph); err != nil {
		return err
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(out)
}
