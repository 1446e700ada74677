package lift

import (
	"fmt"
	"reflect"

	"github.com/etc-ml/etc/schema/mlxgraph"
)

// slotID is a tensor slot (Tid) or an integer slot (Vid).
type slotID struct {
	isInt bool
	idx   uint32
}

type slotSet map[slotID]bool

func (s *slotSet) add(id slotID) {
	if *s == nil {
		*s = slotSet{}
	}
	(*s)[id] = true
}

func (s slotSet) clone() slotSet {
	c := make(slotSet, len(s))
	for k := range s {
		c[k] = true
	}
	return c
}

func slotOf(m *mlxgraph.SlotVariantT) slotID {
	return slotID{m.SlotType != mlxgraph.SlotTypeTensorSlot, m.Idx}
}

// analyse finds the slots that are live after each If and Scan of a chain, given those that are live
// after the chain.
func (l *lifter) analyse(chain uint32, after slotSet) error {
	l.live = map[*mlxgraph.InstructionT]slotSet{}
	budget := maxOps
	_, err := l.liveBefore(chain, after.clone(), 0, &budget)
	return err
}

// liveBefore returns the slots that are live before a chain whose end has the given live slots. A chain that several
// instructions share is analysed for each; what is live after an If inside of it is then the union, which only makes
// results that are pruned again. It is long because it is one switch over the nodes that have chains of their own.
func (l *lifter) liveBefore(chain uint32, live slotSet, depth int, budget *int) (slotSet, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("chains are nested more than %d deep", maxDepth)
	}
	instructions := l.graph.InstructionChains[chain].Instructions
	for i := len(instructions) - 1; i >= 0; i-- {
		if *budget--; *budget < 0 {
			return nil, fmt.Errorf("the chains unfold to more than %d instructions", maxOps)
		}
		in := instructions[i]
		switch n := in.Op.Value.(type) {
		case *mlxgraph.IfNodeT:
			if err := l.note(in, live); err != nil {
				return nil, err
			}
			then, err := l.liveBefore(n.ThenChainIdx, live.clone(), depth+1, budget)
			if err != nil {
				return nil, err
			}
			otherwise, err := l.liveBefore(n.ElseChainIdx, live, depth+1, budget)
			if err != nil {
				return nil, err
			}
			for id := range then {
				otherwise.add(id)
			}
			live = otherwise
			if n.Cond.IsVid && n.Cond.Vid != nil {
				live.add(slotID{true, n.Cond.Vid.Idx})
			}
		case *mlxgraph.ScanNodeT:
			if err := l.note(in, live); err != nil {
				return nil, err
			}
			for _, t := range n.Outputs {
				live.add(slotID{false, t.Idx})
			}
			// What the body reads before it writes is also live at its own end: the next step reads it.
			body, err := l.liveBefore(uint32(n.BodyChainIdx), live.clone(), depth+1, budget)
			if err != nil {
				return nil, err
			}
			for id := range body {
				live.add(id)
			}
			if live, err = l.liveBefore(uint32(n.BodyChainIdx), live, depth+1, budget); err != nil {
				return nil, err
			}
			for _, t := range n.Sliced {
				delete(live, slotID{false, t.Idx})
			}
			for _, t := range n.Originals {
				live.add(slotID{false, t.Idx})
			}
		default:
			reads, writes := slotsOf(n)
			for _, id := range writes {
				delete(live, id)
			}
			for _, id := range reads {
				if id.isInt || id.idx >= l.graph.NumConstantTensors || l.init { // nothing else writes constants
					live.add(id)
				}
			}
		}
	}
	return live, nil
}

func (l *lifter) note(in *mlxgraph.InstructionT, live slotSet) error {
	known := l.live[in]
	for id := range live {
		known.add(id)
	}
	l.live[in] = known
	return l.hold(len(live))
}

// isResult reports whether a field of a node names the slots that the node writes.
func isResult(field string) bool { return field == "out" || field == "outs" || field == "outputs" }

// slotsOf lists the slots that a node other than If and Scan reads and writes.
func slotsOf(node any) (reads, writes []slotID) {
	v := reflect.ValueOf(node).Elem()
	for i := range v.NumField() {
		into := &reads
		if isResult(v.Type().Field(i).Tag.Get("json")) {
			into = &writes
		}
		eachSlot(v.Field(i), func(id slotID) { *into = append(*into, id) })
	}
	return reads, writes
}

// eachSlot calls f with the slots that a field of a node names.
func eachSlot(v reflect.Value, f func(slotID)) {
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			eachSlot(v.Index(i), f)
		}
		return
	}
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return
	}
	vid, tid := namedSlots(v.Interface())
	if vid != nil {
		f(slotID{true, vid.Idx})
	}
	if tid != nil {
		f(slotID{false, tid.Idx})
	}
}

// namedSlots returns the register or the tensor that a field is or chooses; nil for what it is not.
func namedSlots(field any) (vid *mlxgraph.VidT, tid *mlxgraph.TidT) {
	switch x := field.(type) {
	case *mlxgraph.TidT:
		return nil, x
	case *mlxgraph.VidT:
		return x, nil
	case *mlxgraph.IntOrVidT:
		if x.IsVid {
			return x.Vid, nil
		}
	case *mlxgraph.FloatOrVidT:
		if x.IsVid {
			return x.Vid, nil
		}
	case *mlxgraph.VidOrTidT:
		if x.IsVid {
			return x.Vid, nil
		}
		return nil, x.Tid
	case *mlxgraph.IntOrVidOrTidT:
		switch x.Kind {
		case 1:
			return x.Vid, nil
		case 2:
			return nil, x.Tid
		}
	}
	return nil, nil
}
