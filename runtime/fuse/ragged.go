package fuse

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/ragged"
)

// Ragged returns a fused copy of m, with the main entry and the method that drafts tokens, if m has one, transformed
// for calls of many sequences. Storage and One are taken from o. choose gets a description of what a sequence needs,
// and returns the bounds of the calls. The error says why the program cannot be transformed. An engine may fuse the
// result again, which then changes nothing.
func Ragged(m *ir.Module, o ragged.Options, choose func(*ragged.Model) (ragged.Options, error),
	c passes.Control) (*ir.Module,
	*ragged.Model, error) {
	model, err := Sequences(m, o)
	if err != nil {
		return nil, nil, err
	}
	bounds, err := choose(model)
	if err != nil {
		return nil, nil, err
	}
	bounds.Storage, bounds.One = o.Storage, o.One
	if len(m.More) > 0 {
		made, err := raggedEntries(m, bounds, c)
		return made, model, err
	}
	made, err := run(m, Options{Ragged: &bounds}, c)
	return made, model, err
}

// raggedEntries is Ragged of a program with a method that drafts tokens: entries are fused one by one, made ragged
// together, and go on one by one.
func raggedEntries(m *ir.Module, o ragged.Options, c passes.Control) (*ir.Module, error) {
	made, err := joined(m, c)
	if err != nil {
		return nil, err
	}
	if err := ragged.Make(made, o); err != nil {
		return nil, err
	}
	if err := ir.Verify(made); err != nil {
		return nil, err
	}
	parts, err := Entries(made, c)
	if err != nil {
		return nil, err
	}
	return ir.Join(parts)
}

// joined fuses the entries of a program by the passes before ragged.
func joined(m *ir.Module, c passes.Control) (*ir.Module, error) {
	c.Disable = append(behindRagged(), c.Disable...)
	parts, err := Entries(m, c)
	if err != nil {
		return nil, err
	}
	return ir.Join(parts)
}

// Sequences tells what a sequence of a program holds, with Storage and One of the options. The error says why it cannot
// be made ragged.
func Sequences(m *ir.Module, o ragged.Options) (*ragged.Model, error) {
	fused, err := joined(m, passes.Control{})
	if err != nil {
		return nil, err
	}
	return ragged.Analyze(fused, o)
}

// behindRagged names the passes from ragged on.
func behindRagged() []string {
	names := Table.Names()
	return names[slices.Index(names, "ragged"):]
}
