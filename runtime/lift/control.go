package lift

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/schema/mlxgraph"
)

// branch lifts an If. Its results are the slots that either arm writes and that are live afterwards; an
// arm that does not write one yields what the slot held before, or undef. The wire has no order of them.
func (l *lifter) branch(b *ir.Builder, n *mlxgraph.IfNodeT, live slotSet, s *state, depth int) error {
	cond, err := l.args(b, s, reflect.ValueOf(n.Cond))
	if err != nil {
		return fmt.Errorf("cond: %w", err)
	}
	op := &ir.Op{Def: ir.LookupOp("if"), Args: [][]ir.Arg{cond}}
	if err := l.hold(2 * (len(s.tensors) + len(s.ints))); err != nil {
		return err
	}
	arms := [2]*state{}
	for i, chain := range []uint32{n.ThenChainIdx, n.ElseChainIdx} {
		arms[i] = s.clone()
		region := &ir.Region{}
		op.Regions = append(op.Regions, region)
		if err := l.chain(&ir.Builder{Module: l.module, Region: region}, chain, arms[i], depth+1); err != nil {
			return err
		}
	}
	var results []slotID
	for _, id := range l.written(s, arms[0], arms[1]) {
		if live[id] {
			results = append(results, id)
		}
	}
	// In the order in which the first arm computes them; what it does not compute comes last.
	order := map[*ir.Value]int{}
	for _, o := range slices.Backward(op.Regions[0].Ops) {
		for _, v := range slices.Backward(o.Results) {
			order[v] = len(order) + 1
		}
	}
	slices.SortStableFunc(results, func(a,
		b slotID) int {
		return cmp.Compare(order[arms[0].get(b)], order[arms[0].get(a)])
	})
	for _, id := range results {
		values := [2]*ir.Value{arms[0].get(id), arms[1].get(id)}
		for i, v := range values {
			other := values[1-i]
			// An old value of a type that the new one cannot have is not what anything reads afterwards.
			if v == nil || v == s.get(id) && other != nil && !sameKind(v.Type, other.Type) {
				v = undef(op.Regions[i], other.Type)
			}
			op.Regions[i].Results = append(op.Regions[i].Results, v)
		}
	}
	b.Append(op)
	l.forgetLoads(s, op)
	for i, id := range results {
		s.put(id, op.Results[i])
	}
	return nil
}

// sameKind reports whether values of the types can be the same result, whatever their dims.
func sameKind(a, b ir.Type) bool {
	return a.Kind == b.Kind && a.DType == b.DType && a.Rank() == b.Rank()
}

// undef appends an undefined value of a type to a region: what a slot holds that only the other arm writes.
func undef(r *ir.Region, t ir.Type) *ir.Value {
	op := &ir.Op{Def: ir.LookupOp("undef")}
	v := &ir.Value{Type: t, Def: op}
	op.Results = []*ir.Value{v}
	r.Ops = append(r.Ops, op)
	return v
}

// written lists the slots, buffers aside, that hold something else in one of the arms than in s.
func (l *lifter) written(s *state, arms ...*state) []slotID {
	var ids slotSet
	for _, a := range arms {
		for slot, v := range a.tensors {
			if s.tensors[slot] != v {
				ids.add(slotID{false, slot})
			}
		}
		for slot, v := range a.ints {
			if s.ints[slot] != v {
				ids.add(slotID{true, slot})
			}
		}
	}
	return sortedSlots(ids)
}

func sortedSlots(ids slotSet) []slotID {
	out := make([]slotID, 0, len(ids))
	for id := range ids {
		out = append(out, id)
	}
	slices.SortFunc(out, func(a, b slotID) int {
		if a.isInt != b.isInt {
			if b.isInt {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.idx, b.idx)
	})
	return out
}

func (s *state) get(id slotID) *ir.Value {
	if id.isInt {
		return s.ints[id.idx]
	}
	return s.tensors[id.idx]
}

func (s *state) put(id slotID, v *ir.Value) {
	if id.isInt {
		s.ints[id.idx] = v
	} else {
		s.tensors[id.idx] = v
	}
}

// forgetLoads drops the loads of buffers that the regions of op write.
func (l *lifter) forgetLoads(s *state, op *ir.Op) {
	for _, r := range op.Regions {
		r.EachWrite(func(b *ir.Buffer) { delete(s.loads, b) })
	}
}

// scan lifts a Scan. The body's arguments are the slices and every slot that lives from one step to the next: those
// that the body reads before it writes and writes, and those that it writes and that are live after the scan. What the
// wire calls carry is not consulted; the runtime does not read it either. It is long because it is one sequence of
// steps, each of which needs what those before it made.
func (l *lifter) scan(b *ir.Builder, n *mlxgraph.ScanNodeT, live slotSet, s *state, depth int) error {
	if len(n.Sliced) != len(n.Originals) {
		return fmt.Errorf("%d sliced slots for %d originals", len(n.Sliced), len(n.Originals))
	}
	var originals []*ir.Value
	for _, t := range n.Originals {
		v, err := l.readTensor(b, s, t.Idx)
		if err != nil {
			return fmt.Errorf("originals: %w", err)
		}
		originals = append(originals, v)
	}
	carried, err := l.carried(n, live)
	if err != nil {
		return err
	}
	var carry []*ir.Value
	for _, id := range carried {
		v := s.get(id)
		if v == nil || id.isInt {
			return fmt.Errorf("slot %d is carried from step to step and holds no tensor before the first", id.idx)
		}
		carry = append(carry, v)
	}
	if err := l.hold(len(s.tensors) + len(s.ints)); err != nil {
		return err
	}
	// A load from outside must not be used by a step after one that writes the buffer.
	l.forgetChainLoads(s, uint32(n.BodyChainIdx), 0)
	inner := s.clone()
	outputs, last := b.Scan(int(n.ScanAxis), originals, carry,
		func(body *ir.Builder, sliced, carries []*ir.Value) (outs, next []*ir.Value) {
			for i, t := range n.Sliced {
				inner.tensors[t.Idx] = sliced[i]
			}
			for i, id := range carried {
				inner.put(id, carries[i])
			}
			if err := l.chain(body, uint32(n.BodyChainIdx), inner, depth+1); err != nil {
				panic(ir.BuildError{Err: err})
			}
			for _, t := range n.Outputs {
				v := inner.tensors[t.Idx]
				if v == nil {
					body.Fail("output slot %d is not written by the body", t.Idx)
				}
				outs = append(outs, v)
			}
			for _, id := range carried {
				next = append(next, inner.get(id))
			}
			return outs, next
		})
	for i, id := range carried {
		s.put(id, last[i])
	}
	for i, t := range n.Outputs {
		s.tensors[t.Idx] = outputs[i]
	}
	// The slice slots keep the last slices; a program that reads them afterwards is not one we know.
	for _, t := range n.Sliced {
		delete(s.tensors, t.Idx)
	}
	return nil
}

// carried lists the slots that live from step to step: first those that the wire calls carries, in its
// order, then others in that of their numbers.
func (l *lifter) carried(n *mlxgraph.ScanNodeT, live slotSet) ([]slotID, error) {
	writes, err := l.chainWrites(uint32(n.BodyChainIdx), 0)
	if err != nil {
		return nil, err
	}
	budget := maxOps
	before, err := l.liveBefore(uint32(n.BodyChainIdx), slotSet{}, 0, &budget)
	if err != nil {
		return nil, err
	}
	outputs := slotSet{}
	for _, t := range n.Outputs {
		outputs.add(slotID{false, t.Idx})
	}
	sliced := slotSet{}
	for _, t := range n.Sliced {
		sliced.add(slotID{false, t.Idx})
	}
	var ids slotSet
	for id := range writes {
		if !id.isInt && l.buffers[id.idx] != nil || sliced[id] {
			continue
		}
		if before[id] || live[id] && !outputs[id] {
			ids.add(id)
		}
	}
	order := map[slotID]int{}
	for i, t := range slices.Backward(n.Carry) {
		order[slotID{false, t.Idx}] = i - len(n.Carry)
	}
	out := sortedSlots(ids)
	slices.SortStableFunc(out, func(a, b slotID) int { return cmp.Compare(order[a], order[b]) })
	return out, nil
}

// chainWrites lists every slot that a chain or a chain inside of it writes.
func (l *lifter) chainWrites(chain uint32, depth int) (slotSet, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("chains are nested more than %d deep", maxDepth)
	}
	if known, ok := l.writes[chain]; ok {
		return known, nil
	}
	out := slotSet{}
	for _, in := range l.graph.InstructionChains[chain].Instructions {
		var inner []uint32
		switch n := in.Op.Value.(type) {
		case *mlxgraph.IfNodeT:
			inner = []uint32{n.ThenChainIdx, n.ElseChainIdx}
		case *mlxgraph.ScanNodeT:
			inner = []uint32{uint32(n.BodyChainIdx)}
			for _, t := range n.Outputs {
				out.add(slotID{false, t.Idx})
			}
		default:
			_, writes := slotsOf(n)
			for _, id := range writes {
				out.add(id)
			}
		}
		for _, c := range inner {
			w, err := l.chainWrites(c, depth+1)
			if err != nil {
				return nil, err
			}
			for id := range w {
				out.add(id)
			}
		}
	}
	l.writes[chain] = out
	return out, nil
}

func (l *lifter) forgetChainLoads(s *state, chain uint32, depth int) {
	writes, err := l.chainWrites(chain, depth)
	if err != nil {
		return // lifting the chain reports it
	}
	for id := range writes {
		if buffer := l.buffers[id.idx]; buffer != nil && !id.isInt {
			delete(s.loads, buffer)
		}
	}
}
