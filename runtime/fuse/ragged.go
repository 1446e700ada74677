package fuse

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/ragged"
)

// Ragged gives a fused copy of the main entry of m for calls of many sequences. choose is told what a sequence holds
// and gives the bounds of the calls. The error says why the program cannot be made ragged. An engine may fuse the
// result again: nothing is left to do.
func Ragged(m *ir.Module, choose func(*ragged.Model) (ragged.Options, error), c passes.Control) (*ir.Module,
	*ragged.Model, error) {
	model, err := Sequences(m)
	if err != nil {
		return nil, nil, err
	}
	o, err := choose(model)
	if err != nil {
		return nil, nil, err
	}
	made, err := run(m, Options{Ragged: &o}, c)
	return made, model, err
}

// Sequences tells what a sequence of a program holds. The error says why it cannot be made ragged.
func Sequences(m *ir.Module) (*ragged.Model, error) {
	fused, err := Run(m, passes.Control{Disable: behindRagged()})
	if err != nil {
		return nil, err
	}
	return ragged.Analyze(fused)
}

// behindRagged names the passes from ragged on.
func behindRagged() []string {
	names := Table.Names()
	return names[slices.Index(names, "ragged"):]
}
