package plan

import (
	"fmt"
	"sync"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// Constants are the constants of a module as reference kernels take them, decoded when they are first asked for. Large
// weights do not come here: kernels read them where they are. It is safe for concurrent use.
type Constants struct {
	precision eval.Precision

	mu      sync.Mutex
	tensors map[*ir.Value]*eval.Tensor
	joined  map[WeightKey]eval.Value
}

// NewConstants runs the init functions of the entries of a module, where they have one, for the constants that these
// derive.
func NewConstants(entries []*ir.Module, p eval.Precision) (*Constants, error) {
	c := &Constants{precision: p, tensors: map[*ir.Value]*eval.Tensor{}, joined: map[WeightKey]eval.Value{}}
	for _, m := range entries {
		derived, err := eval.Derive(m, p)
		if err != nil {
			return nil, err
		}
		for v, content := range derived {
			c.tensors[v] = content.Tensor
		}
	}
	return c, nil
}

// Tensor is a constant, or what init has derived. The tensor must not be changed.
func (c *Constants) Tensor(v *ir.Value) (*eval.Tensor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tensors[v]; t != nil {
		return t, nil
	}
	if v.Constant == nil {
		return nil, fmt.Errorf("a value is used where no operation that ran has defined it")
	}
	t, err := eval.DecodeConstant(v.Constant)
	if err != nil {
		return nil, err
	}
	c.tensors[v] = t
	return t, nil
}

// Joined is a quantized weight: what the operation quantized makes of its parts.
func (c *Constants) Joined(v *ir.Value) (eval.Value, error) {
	key := WeightKeyOf(v)
	c.mu.Lock()
	q, ok := c.joined[key]
	c.mu.Unlock()
	if ok {
		return q, nil
	}
	call := &eval.Call{Op: v.Def, Precision: c.precision, Args: make([][]eval.Value, len(v.Def.Args))}
	for i, list := range v.Def.Args {
		for _, a := range list {
			t, err := c.Tensor(a.Value)
			if err != nil {
				return eval.Value{}, err
			}
			call.Args[i] = append(call.Args[i], eval.Value{Tensor: t})
		}
	}
	out, err := eval.Run(call)
	if err != nil {
		return eval.Value{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.joined[key] = out[0]
	return out[0], nil
}

// WeightKey tells a weight by what it is in the file: every plan has operations of its own that make weights of
// constants.
type WeightKey struct {
	stored *ir.Value // its numbers in the file
	shape  string
	ops    string // those that make it of these
}

// WeightKeyOf gives the key of a weight: a constant, or what views, casts and the operation quantized make of
// constants.
func WeightKeyOf(v *ir.Value) WeightKey {
	key := WeightKey{stored: v, shape: v.Type.String()}
	for key.stored.Def != nil {
		op := key.stored.Def
		if op.Def.Name != "astype" {
			key.ops += op.Def.Name + " "
		}
		if key.stored = op.Input(op.Def.Operands[0].Name); key.stored == nil {
			return WeightKey{stored: v}
		}
	}
	return key
}
