package codegen

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// chain appends an empty chain to the graph.
func (e *encoder) chain() (*mlxgraph.InstructionChainT, int) {
	c := &mlxgraph.InstructionChainT{}
	e.graph.InstructionChains = append(e.graph.InstructionChains, c)
	return c, len(e.graph.InstructionChains) - 1
}

// branch encodes an if. Both arms write their results to the slots of the if's results.
func (e *encoder) branch(op *ir.Op) (any, error) {
	node := &mlxgraph.IfNodeT{Cond: &mlxgraph.IntOrVidT{}}
	cond, _ := op.Arg("cond")
	if cond.Kind == ir.IntArg {
		node.Cond.Literal = cond.Int
	} else {
		node.Cond.IsVid, node.Cond.Vid = true, &mlxgraph.VidT{Idx: e.slots.ints[cond.Value]}
	}
	for _, r := range op.Results {
		e.slots.define(r)
	}
	for i, r := range op.Regions {
		for j, v := range r.Results {
			if err := definedIn(r, v); err != nil {
				return nil, fmt.Errorf("result %d of arm %d: %w", j, i, err)
			}
			if e.slots.owned[v] {
				return nil, fmt.Errorf("result %d of arm %d is yielded twice", j, i)
			}
			e.slots.share(v, op.Results[j])
		}
		chain, number := e.chain()
		if i == 0 {
			node.ThenChainIdx = uint32(number)
		} else {
			node.ElseChainIdx = uint32(number)
		}
		if err := e.region(chain, r, r.Results); err != nil {
			return nil, err
		}
	}
	return node, nil
}

// definedIn checks that v can be computed straight into the slot of a result of the operation around r.
func definedIn(r *ir.Region, v *ir.Value) error {
	if v.Def != nil && (ownsOutput(v) || v.Type.Kind == ir.IntKind) {
		for _, op := range r.Ops {
			if op == v.Def {
				return nil
			}
		}
	}
	return fmt.Errorf("is not computed there; it needs an id_copy")
}

// scan encodes a scan. A carry lives in one slot from its first value to its last: the carry operand,
// the body's argument, the body's new value and the scan's result are all in it.
func (e *encoder) scan(op *ir.Op) (any, error) {
	body := op.Regions[0]
	carry := op.Operand("carry")
	originals := op.Operand("originals")
	outputs := len(op.Results) - len(carry)
	node := &mlxgraph.ScanNodeT{ScanAxis: int32(ir.Attrs[ir.ScanAttrs](op).ScanAxis)}
	for _, a := range originals {
		node.Originals = append(node.Originals, &mlxgraph.TidT{Idx: e.slots.tensors[a.Value]})
	}
	for _, r := range op.Results[:outputs] {
		e.slots.define(r)
	}
	for i, a := range carry {
		if a.Value.Def == nil || a.Value.Def.Def.Name != "id_copy" || e.slots.owned[a.Value] || e.uses[a.Value] != 1 {
			return nil, fmt.Errorf("carry %d is not an id_copy of its own; the scan overwrites it", i)
		}
		e.slots.owned[a.Value] = true // the slot is the result's from here on
		result := op.Results[outputs+i]
		e.slots.tensors[result] = e.slots.tensors[a.Value]
		e.slots.share(body.Args[len(originals)+i], result)
		if next := body.Results[outputs+i]; next.Def == nil || next.Def.Def.Name != "id_copy" ||
			definedIn(body, next) != nil || e.slots.owned[next] {
			return nil, fmt.Errorf("the next value of carry %d is not an id_copy of its own at the end of the body", i)
		} else if readAfter(body, next.Def, body.Args[len(originals)+i]) {
			return nil, fmt.Errorf("the next value of carry %d is copied into its slot before the body has read "+
				"the old one", i)
		} else {
			e.slots.share(next, result)
		}
	}
	for i, v := range body.Results[:outputs] {
		if err := definedIn(body, v); err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		if e.slots.owned[v] {
			return nil, fmt.Errorf("output %d is yielded twice", i)
		}
		e.slots.share(v, op.Results[i])
	}
	for _, v := range body.Args[:len(originals)] {
		e.slots.define(v)
	}
	node.Sliced = e.tids(body.Args[:len(originals)])
	node.Outputs = e.tids(op.Results[:outputs])
	node.Carry = e.tids(op.Results[outputs:])
	chain, number := e.chain()
	node.BodyChainIdx = int32(number)
	// The slice slots are written anew for every step, so they stay taken through the whole body.
	if err := e.region(chain, body, append(append([]*ir.Value{}, body.Results...), body.Args...)); err != nil {
		return nil, err
	}
	for _, v := range body.Args[:len(originals)] {
		e.slots.end(v)
	}
	return node, nil
}

// readAfter reports whether an operation of r after the given one reads v.
func readAfter(r *ir.Region, op *ir.Op, v *ir.Value) bool {
	return ir.CountUses(&ir.Region{Ops: r.Ops[slices.Index(r.Ops, op)+1:]})[v] > 0
}
