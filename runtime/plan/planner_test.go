package plan

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// bound is what the planner of this test binds values to.
type bound struct {
	Slot
	name string
	size int
}

// recorder is an engine that notes what it is asked for. Its kernel of sigmoid makes a slot and a step, then fails.
type recorder struct {
	Planner[*bound]
	steps []string
}

func (r *recorder) Constant(v *ir.Value) (*bound, error) {
	if v.Constant == nil {
		return nil, errors.New("no constant")
	}
	return &bound{name: v.Constant.Name, size: 1}, nil
}
func (r *recorder) Slot(v *bound) *Slot {
	if v.Size == 0 {
		return nil
	}
	return &v.Slot
}
func (r *recorder) IsEmpty(v *bound) bool        { return v.size == 0 }
func (r *recorder) Steps() int                   { return len(r.steps) }
func (r *recorder) Truncate(n int)               { r.steps = r.steps[:n] }
func (r *recorder) BindStructure() (bool, error) { return r.Op.Def.Name == "noop", nil }
func (r *recorder) BindView() bool {
	r.Values[r.Op.Result()] = r.Input("x")
	return true
}
func (r *recorder) BindKernel() bool {
	if r.Op.Def.Name == "tanh" {
		return false
	}
	r.made("kernel ", 4)
	return r.Op.Def.Name != "sigmoid"
}
func (r *recorder) BindReference() error {
	if r.Op.Def.Name == "neg" {
		return errors.New("no reference kernel")
	}
	r.made("reference ", 8)
	return nil
}

func (r *recorder) made(how string, size int) {
	v := &bound{name: r.Op.Def.Name, size: size}
	r.Scratch(&v.Slot, size)
	r.steps = append(r.steps, how+r.Op.Def.Name)
	r.Values[r.Op.Result()] = v
}

func planOf(t *testing.T, body string, rows int) (*recorder, error) {
	t.Helper()
	m := entry(t, body)
	r := &recorder{}
	r.Planner = NewPlanner(m, Shapes(m, rows), Target[*bound](r))
	for _, p := range m.Entry.Params {
		r.Values[p] = &bound{name: p.Param, size: rows}
	}
	return r, r.Bind(m.Entry.Body)
}

// TestPlanner: views make no step, a kernel that fails leaves nothing, and what a step uses lives until it.
func TestPlanner(t *testing.T) {
	r, err := planOf(t, `    noop()
    %0 = exp(x=%x) : f32[s0,4,6]
    %1 = reshape(x=%0, shape=[-1, 24]) : f32[s0,24]
    %2 = sigmoid(x=%x) : f32[s0,4,6]
    %3 = tanh(x=%1) : f32[s0,24]
    %4 = abs(x=%2) : f32[s0,4,6]
    return %3: f32[s0,24], %4: f32[s0,4,6]
`, 2)
	require.NoError(t, err)
	require.Equal(t, []string{"kernel exp", "reference sigmoid", "reference tanh", "kernel abs"}, r.steps)
	var spans [][3]int
	for _, s := range r.Slots {
		spans = append(spans, [3]int{s.Size, s.First, s.Last})
	}
	require.Equal(t, [][3]int{{4, 0, 2}, {8, 1, 3}, {8, 2, 2}, {4, 3, 3}}, spans,
		"the slot that the kernel of sigmoid made is gone")
}

// TestPlannerOfEmpty: kernels need not think of tensors without elements.
func TestPlannerOfEmpty(t *testing.T) {
	r, err := planOf(t, `    %0 = exp(x=%x) : f32[s0,4,6]
    return %0: f32[s0,4,6]
`, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"reference exp"}, r.steps)
}

// TestPlannerErrors: an error names the operation.
func TestPlannerErrors(t *testing.T) {
	_, err := planOf(t, `    %0 = sigmoid(x=%x) : f32[s0,4,6]
    %1 = neg(x=%0) : f32[s0,4,6]
    %2 = tanh(x=%1) : f32[s0,4,6]
    return %2: f32[s0,4,6]
`, 0)
	require.EqualError(t, err, "no reference kernel\n\tin %1 = neg(x=%0) : f32[s0,4,6]")
}
