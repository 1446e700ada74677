package bind

import "github.com/etc-ml/etc/ir"

// Stored names what op has of the file and of the state: its buffer, then its weights, as the text form of the IR does.
func Stored(op *ir.Op) []string {
	var out []string
	for _, b := range op.Buffers() {
		out = append(out, "@"+b.Name)
	}
	op.EachArg(func(a *ir.Arg) {
		v := a.Value
		if v != nil && v.Def != nil && v.Def.Def.Name == "quantized" {
			v = v.Def.Input("packed")
		}
		if v != nil && v.Constant != nil {
			out = append(out, "@"+v.Constant.Name)
		}
	})
	return out
}
