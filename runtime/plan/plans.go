package plan

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// maxPlans is the number of plans that an instance keeps of an entry: one for single tokens, others for chunks. Of one
// for calls of many sequences it keeps more: rows, and those that are wanted, come in many sizes.
const (
	maxPlans       = 4
	maxRaggedPlans = 48
)

// Plans are the plans of an instance by the shapes of a call, the last used first. The zero value keeps as many as
// calls of one sequence need.
type Plans[P any] struct {
	list []shaped[P]
	most int
}

// NewPlans keeps as many plans as the entry of a module needs.
func NewPlans[P any](m *ir.Module) Plans[P] {
	p := Plans[P]{most: maxPlans}
	m.Entry.Body.Walk(func(op *ir.Op) {
		switch op.Def.Name {
		case "block_write", "block_attention", "slot_conv", "slot_delta_rule":
			p.most = maxRaggedPlans
		}
	})
	return p
}

type shaped[P any] struct {
	shapes [][]int
	plan   P
}

// Find gives the plan for inputs of these shapes, and makes it the last used.
func (s *Plans[P]) Find(inputs []eval.Value) (plan P, ok bool) {
	at := slices.IndexFunc(s.list, func(p shaped[P]) bool {
		for i, v := range inputs {
			if v.Tensor != nil && !slices.Equal(p.shapes[i], v.Tensor.Shape) {
				return false
			}
		}
		return true
	})
	if at < 0 {
		return plan, false
	}
	p := s.list[at]
	copy(s.list[1:at+1], s.list[:at])
	s.list[0] = p
	return p.plan, true
}

// Add adds a plan as the last used, and gives the plans that are kept no longer.
func (s *Plans[P]) Add(shapes [][]int, plan P) (dropped []P) {
	s.list = slices.Insert(s.list, 0, shaped[P]{shapes, plan})
	for len(s.list) > max(s.most, maxPlans) {
		last := len(s.list) - 1
		dropped = append(dropped, s.list[last].plan)
		s.list = s.list[:last]
	}
	return dropped
}

// DropLast removes the plan that was used last.
func (s *Plans[P]) DropLast() { s.list = s.list[1:] }

// All are the plans.
func (s *Plans[P]) All() []P {
	out := make([]P, len(s.list))
	for i, p := range s.list {
		out[i] = p.plan
	}
	return out
}

// ShapesOf are the shapes of the inputs of a call; nil stands for an int.
func ShapesOf(inputs []eval.Value) [][]int {
	shapes := make([][]int, len(inputs))
	for i, v := range inputs {
		if v.Tensor != nil {
			shapes[i] = append([]int{}, v.Tensor.Shape...) // not nil, which stands for a shape that is not known
		}
	}
	return shapes
}
