package passes

import "github.com/etc-ml/etc/ir"

// canonicalize drops operations that change nothing: a cast to the dtype that the value has, a reshape
// to the shape that it has, a transposition that keeps the order. contiguous stays: it lets go of the tensor
// that a slice is a view of. What stands between a load and its uses stays too: the loaded value itself
// may not be used after the buffer is written again.
func canonicalize(m *ir.Module, _ *Options) error {
	return ir.Build(func() {
		rewriteEntries(m, func(_ *ir.Builder, op *ir.Op) ([]*ir.Value, bool) {
			switch op.Def.Name {
			case "astype", "reshape", "broadcast_to", "transpose":
				if x := op.Input("x"); x.Def != nil && x.Def.Def.Effect == ir.Reads {
					return nil, false
				}
			}
			switch op.Def.Name {
			case "astype", "reshape", "broadcast_to":
				if x := op.Input("x"); x.Type.Equal(op.Result().Type) {
					return []*ir.Value{x}, true
				}
			case "transpose":
				for i, p := range ir.Attrs[ir.TransposeAttrs](op).Perm {
					if i != p {
						return nil, false
					}
				}
				return []*ir.Value{op.Input("x")}, true
			}
			return nil, false
		})
	})
}
