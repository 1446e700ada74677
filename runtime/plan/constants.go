package plan

import (
	"fmt"
	"sync"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// Constants holds the constants of a module, decoded on first use, as reference kernels take them. Large weights are
// not decoded: kernels read them as they are stored. It is safe for concurrent use.
type Constants struct {
	precision eval.Precision

	mu      sync.Mutex
	tensors map[*ir.Value]*eval.Tensor
	joined  map[WeightKey]eval.Value
}

// NewConstants runs the init functions of a module's entries, which compute constants from others.
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

// Tensor returns a constant that is stored or that init has computed. The tensor must not be changed.
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

// Joined returns a quantized weight: the result of the operation quantized.
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

// WeightKey identifies a weight across plans. Every plan has its own operations that make a weight from constants, so
// the key is made of what the file stores.
type WeightKey struct {
	stored *ir.Value // the constant in the file
	shape  string
	ops    string // the operations that make the weight from it
}

// WeightKeyOf returns the key of a weight: a constant, or the result of views, casts and the operation quantized on
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
