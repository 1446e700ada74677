package plan

import "github.com/etc-ml/etc/ir"

// CodedCaches returns the caches in which operations on blocks store codes of 8 bits.
func CodedCaches(entries []*ir.Module) map[*ir.Buffer]bool {
	out := map[*ir.Buffer]bool{}
	for _, m := range entries {
		for _, op := range m.Entry.Body.Ops {
			if op.Def.Name == "block_write" && op.Buffer.Type.DType == ir.U32 {
				out[op.Buffer] = true
			}
		}
	}
	return out
}
