package plan

import (
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// maxPlans is the number of plans that an instance stores for an entry: one for single tokens, others for chunks. For
// calls of many sequences it stores more, since these come with many numbers of rows and of wanted results.
const (
	maxPlans       = 4
	maxRaggedPlans = 48
)

// Plans holds the plans of an instance by the shapes of a call, the most recently used first. The zero value has the
// capacity for calls of one sequence.
type Plans[P any] struct {
	list []shaped[P]
	most int
}

// NewPlans returns Plans with the capacity that a module's entry needs.
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

// Find returns the plan for inputs of these shapes and marks it as used.
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

// Add adds a plan as the most recently used one. It returns the plans that it removes.
func (s *Plans[P]) Add(shapes [][]int, plan P) (dropped []P) {
	s.list = slices.Insert(s.list, 0, shaped[P]{shapes, plan})
	for len(s.list) > max(s.most, maxPlans) {
		last := len(s.list) - 1
		dropped = append(dropped, s.list[last].plan)
		s.list = s.list[:last]
	}
	return dropped
}

// DropLast removes the plan that was used most recently.
func (s *Plans[P]) DropLast() { s.list = s.list[1:] }

// All returns the plans.
func (s *Plans[P]) All() []P {
	out := make([]P, len(s.list))
	for i, p := range s.list {
		out[i] = p.plan
	}
	return out
}

// ShapesOf returns the shapes of the inputs of a call; nil stands for an int.
func ShapesOf(inputs []eval.Value) [][]int {
	shapes := make([][]int, len(inputs))
	for i, v := range inputs {
		if v.Tensor != nil {
			shapes[i] = append([]int{}, v.Tensor.Shape...) // not nil, which would stand for an int
		}
	}
	return shapes
}
