package single

import (
	"context"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/cache"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse"
	"github.com/etc-ml/etc/runtime/ragged"
)

// Engine compiles programs forward(tokens, input_pos, …) for an engine of ragged calls, with another form of the state.
// Its calls have the signature of the given program: tokens from a position on.
type Engine struct {
	engine.Engine
	// Storage is the form of the state.
	Storage ragged.Storage
}

// blockRows is the number of positions of a block.
const blockRows = 64

// RefusedError says that a program cannot have the form of state that is asked for.
type RefusedError struct {
	Storage ragged.Storage
	Why     error
}

func (e *RefusedError) Error() string { return e.Storage.String() + ": " + e.Why.Error() }

// Unwrap returns the reason.
func (e *RefusedError) Unwrap() error { return e.Why }

// DrawsOnDevice reports whether the engine draws tokens on its device: see engine.Drawing.
func (e Engine) DrawsOnDevice() bool {
	d, ok := e.Engine.(engine.Drawing)
	return ok && d.DrawsOnDevice()
}

// Compile makes the program ragged. The error is a [*RefusedError] where that cannot be done.
func (e Engine) Compile(m *ir.Module, o engine.Options) (engine.Executable, error) {
	if r, ok := e.Engine.(engine.Ragged); !ok || !r.RunsRagged() || o.Precision == eval.Strict {
		return nil, &RefusedError{e.Storage,
			fmt.Errorf("device %s keeps state as it is declared, as precision strict does on every device", e.Name())}
	}
	made, model, err := e.Make(m, passes.Control{Disable: o.DisablePasses, Verify: o.VerifyIR})
	if err != nil {
		return nil, &RefusedError{e.Storage, err}
	}
	x, err := engine.Compile(e.Engine, made, o)
	if err != nil {
		return nil, err
	}
	of := &executable{Executable: x, module: made, given: len(m.Entry.Params), slots: int64(e.slots())}
	of.buffers = of.snapshotBuffers(model)
	if b, ok := x.(engine.Bounded); ok {
		return struct {
			*executable
			engine.Bounded
		}{of, b}, nil
	}
	return of, nil
}

// Make returns the ragged program of one sequence that the engine compiles, and what that holds.
func (e Engine) Make(m *ir.Module, c passes.Control) (*ir.Module, *ragged.Model, error) {
	_, most := m.Entry.Params[0].Type.Shape[1].Bounds()
	choose := func(model *ragged.Model) (ragged.Options, error) {
		o := ragged.Options{BlockRows: blockRows, Rows: int(min(most, int64(model.Positions))), Sequences: 1}
		full, rings := model.Columns(o)
		o.Units = append(append(cache.Demand{full}, rings...), e.slots())
		return o, nil
	}
	return fuse.Ragged(m.Only(m.Entry), ragged.Options{Storage: e.Storage, One: true}, choose, c)
}

// slots returns the number of slots that the recurrent state has. Where calls are pipelined there are two: a call that
// was begun early and is dropped must not have overwritten what the call in its place reads. Elsewhere one is enough,
// and a call that updates it in place touches less memory.
func (e Engine) slots() int {
	if p, ok := e.Engine.(engine.Pipelining); ok && p.PipelinesCalls() {
		return 2
	}
	return 1
}

// executable is a compiled program of one sequence.
type executable struct {
	engine.Executable
	module  *ir.Module
	given   int          // parameters of the given program
	slots   int64        // of recurrent state
	buffers []*ir.Buffer // of snapshots
}

// StateBuffers returns the buffers of snapshots: see engine.Stored.
func (x *executable) StateBuffers() []*ir.Buffer { return slices.Clone(x.buffers) }

// NewInstance makes an instance whose buffers are zeros.
func (x *executable) NewInstance() (engine.Instance, error) {
	inner, err := x.Executable.NewInstance()
	if err != nil {
		return nil, err
	}
	i := &instance{Instance: inner, exe: x}
	s, isStateful := inner.(engine.Stateful)
	if !isStateful {
		return i, nil
	}
	if p, ok := inner.(engine.Pipelined); ok && x.slots > 1 {
		return struct {
			*instance
			pipelined
			stateful
		}{i, pipelined{i, p}, stateful{i, s}}, nil
	}
	return struct {
		*instance
		stateful
	}{i, stateful{i, s}}, nil
}

// instance is the state of one sequence.
type instance struct {
	engine.Instance
	exe  *executable
	slot int64 // the slot with the recurrent state
}

// Run calls the program.
func (x *instance) Run(ctx context.Context, inputs []eval.Value) ([]eval.Value, error) {
	made, err := x.exe.inputs(inputs, x.slot)
	if err != nil {
		return nil, err
	}
	return x.ran(x.Instance.Run(ctx, made))
}

// ran notes which slot has the recurrent state after a call. A call that failed leaves it where it was.
func (x *instance) ran(out []eval.Value, err error) ([]eval.Value, error) {
	if err == nil {
		x.slot = x.exe.after(x.slot)
	}
	return out, err
}

// Reset sets every buffer to zeros.
func (x *instance) Reset() error {
	x.slot = 0
	return x.Instance.Reset()
}

// Tune measures kernels: see engine.Tunable.
func (x *instance) Tune(ctx context.Context) error {
	if t, ok := x.Instance.(engine.Tunable); ok {
		return t.Tune(ctx)
	}
	return nil
}

// pipelined is an instance whose next call can begin before the result of this one was read.
type pipelined struct {
	of    *instance
	inner engine.Pipelined
}

// RunPipelined calls the program with a hint which call is likely to follow: see engine.Pipelined.
func (x pipelined) RunPipelined(ctx context.Context, inputs, next []eval.Value) ([]eval.Value, error) {
	exe := x.of.exe
	made, err := exe.inputs(inputs, x.of.slot)
	if err != nil {
		return nil, err
	}
	var follows []eval.Value
	if next != nil {
		if follows, err = exe.inputs(next, exe.after(x.of.slot)); err != nil {
			follows = nil // a call that cannot be made does not follow
		}
	}
	return x.of.ran(x.inner.RunPipelined(ctx, made, follows))
}

// after returns the slot that a call writes which reads slot.
func (x *executable) after(slot int64) int64 { return (slot + 1) % x.slots }

// inputs adds the tables of a call to what is given for it: rows of the sequence from a position on, whose recurrent
// state lies in slot.
func (x *executable) inputs(given []eval.Value, slot int64) ([]eval.Value, error) {
	if len(given) != x.given {
		return nil, fmt.Errorf("%d inputs, want %d", len(given), x.given)
	}
	positions := given[1].Tensor
	if positions == nil || len(positions.I) == 0 {
		return nil, fmt.Errorf("input_pos has no positions")
	}
	first, rows := positions.I[0], len(positions.I)
	for i, p := range positions.I {
		if first < 0 || p != first+int64(i) {
			return nil, fmt.Errorf("input_pos[%d] is %d after %d: positions must follow one another", i, p, first)
		}
	}
	params := x.module.Entry.Params
	out := make([]eval.Value, 0, len(params))
	tables := len(params) - (x.given - 2) // with tokens and positions; the parameters of the given program follow
	for at, p := range params {
		if at >= tables {
			out = append(out, given[2+at-tables])
			continue
		}
		dims := make([]int, p.Type.Rank())
		n := 1
		for i, d := range p.Type.Shape {
			dims[i] = rows
			if c, ok := d.Const(); ok {
				dims[i] = int(c)
			}
			n *= dims[i]
		}
		table := func() []int64 { return make([]int64, n) }
		var v []int64
		switch p.Param {
		case "tokens":
			out = append(out, given[0])
			continue
		case "input_pos":
			out = append(out, given[1])
			continue
		case "sequences":
			v = table()
		case "entries":
			v = []int64{0, int64(rows), slot}
			if first == 0 {
				v[2] = -1 // the state of no positions
			}
		case "writes":
			v = table()
			for i := range v {
				v[i] = -1
			}
			v[n-1] = x.after(slot)
		case "last_row":
			v = []int64{int64(rows - 1)}
		default:
			v = table() // blocks, ring0, …: in their order
			for i := range v {
				v[i] = int64(i)
			}
		}
		out = append(out, eval.Value{Tensor: eval.Ints(p.Type.DType, dims, v)})
	}
	return out, nil
}
