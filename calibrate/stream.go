package calibrate

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric/dot"
)

// call is one call of the module's entry: its values that are alive. The calls of a window share their buffers.
type call struct {
	tokens  int
	env     map[*ir.Value]eval.Value
	buffers map[*ir.Buffer]*eval.Tensor
}

// stream computes a module over windows of tokens. Each window has its own state. A window that is longer than the
// module's longest call takes several calls.
type stream struct {
	module  *ir.Module
	windows [][]*call
	// quantized says that the stream computes with the quantized weights.
	quantized bool
}

// newStream returns a stream over windows, none of them empty.
func newStream(m *ir.Module, windows [][]int, quantized bool) *stream {
	s := &stream{module: m, quantized: quantized}
	_, most := m.Entry.Params[0].Type.Shape[1].Bounds()
	for _, window := range windows {
		buffers := map[*ir.Buffer]*eval.Tensor{}
		var calls []*call
		at := int64(0)
		for part := range slices.Chunk(window, int(min(most, int64(len(window))))) {
			tokens := &eval.Tensor{DType: ir.I64, Shape: []int{1, len(part)}}
			positions := &eval.Tensor{DType: ir.I64, Shape: []int{len(part)}}
			for _, id := range part {
				tokens.I, positions.I = append(tokens.I, int64(id)), append(positions.I, at)
				at++
			}
			calls = append(calls, &call{len(part), map[*ir.Value]eval.Value{
				m.Entry.Params[0]: {Tensor: tokens}, m.Entry.Params[1]: {Tensor: positions},
			}, buffers})
		}
		s.windows = append(s.windows, calls)
	}
	return s
}

// calls returns the calls of all windows in order.
func (s *stream) calls() []*call { return slices.Concat(s.windows...) }

// gather returns the rows of a value from all calls as one matrix, whose columns are the value's last dim.
func (s *stream) gather(v *ir.Value) (dot.Matrix, error) {
	var m dot.Matrix
	for _, c := range s.calls() {
		t := c.env[v].Tensor
		if t == nil || t.F == nil || len(t.Shape) == 0 {
			return m, fmt.Errorf("a linear's input is no tensor of floats")
		}
		m.Cols = t.Shape[len(t.Shape)-1]
		m.Values = append(m.Values, t.F...)
	}
	m.Stride, m.Rows = m.Cols, len(m.Values)/max(m.Cols, 1)
	return m, nil
}

// scatter sets a value in all calls to the rows of m. The value gets the leading dims of like.
func (s *stream) scatter(v, like *ir.Value, m dot.Matrix) {
	at := 0
	for _, c := range s.calls() {
		shape := slices.Clone(c.env[like].Tensor.Shape)
		n := c.env[like].Tensor.Len() / shape[len(shape)-1] * m.Cols
		shape[len(shape)-1] = m.Cols
		c.env[v] = eval.Value{Tensor: eval.Floats(v.Type.DType, shape, m.Values[at:at+n:at+n])}
		at += n
	}
}

// drop drops values from all calls.
func (s *stream) drop(values []*ir.Value) {
	for _, c := range s.calls() {
		for _, v := range values {
			delete(c.env, v)
		}
	}
}

// run executes operations window by window, and drops values after their last use.
func (s *stream) run(ops []*ir.Op, ends [][]*ir.Value, constants *constants, each eachFunc) error {
	return each.try(len(s.windows), func(i int) error {
		for _, c := range s.windows[i] {
			for j, op := range ops {
				if err := s.op(c, op, constants); err != nil {
					return fmt.Errorf("%w\n\tin %s", err, ir.Describe(s.module, op))
				}
				for _, v := range ends[j] {
					delete(c.env, v)
				}
			}
		}
		return nil
	})
}

// op executes an operation of one call.
func (s *stream) op(c *call, op *ir.Op, constants *constants) error {
	if len(op.Regions) > 0 {
		return fmt.Errorf("calibration cannot run the operation %s", op.Def.Name)
	}
	args := make([][]eval.Value, len(op.Args))
	for i, list := range op.Args {
		args[i] = make([]eval.Value, len(list))
		for j, a := range list {
			switch {
			case a.Kind != ir.ValueArg:
				args[i][j].Int = a.Int
			case a.Value.Constant != nil:
				t, err := constants.get(a.Value.Constant)
				if err != nil {
					return err
				}
				args[i][j].Tensor = t
			default:
				v, ok := c.env[a.Value]
				if !ok {
					return fmt.Errorf("%s: a value is used where no operation that ran has defined it", op.Def.Name)
				}
				args[i][j] = v
			}
		}
	}
	x := &eval.Call{Op: op, Precision: eval.FP32, Args: args}
	var results []eval.Value
	var err error
	switch {
	case op.Def.Effect == ir.Reads:
		results = []eval.Value{{Tensor: c.buffer(op.Buffer).Clone()}} // updates are in place
	case op.Def.Effect == ir.Writes && op.Def.State == ir.ReplacesState:
		c.buffers[op.Buffer] = x.Tensor("x").Clone()
	case op.Def.Effect == ir.Writes:
		results, err = eval.Update(x, c.buffer(op.Buffer))
	default:
		results, err = eval.Run(x)
	}
	for i, v := range op.Results {
		if err == nil {
			c.env[v] = results[i]
		}
	}
	return err
}

// buffer returns the content of a buffer. It is zeros at first.
func (c *call) buffer(b *ir.Buffer) *eval.Tensor {
	t := c.buffers[b]
	if t == nil {
		dims, _ := b.Type.Static()
		t = &eval.Tensor{DType: b.Type.DType}
		for _, d := range dims {
			t.Shape = append(t.Shape, int(d))
		}
		if n := ir.Elements(dims); b.Type.DType.IsFloat() {
			t.F = make([]float32, n)
		} else {
			t.I = make([]int64, n)
		}
		c.buffers[b] = t
	}
	return t
}
