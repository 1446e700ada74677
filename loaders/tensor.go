package loaders

import (
	"fmt"
	"io"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// dtypes are the element types of safetensors that the IR has.
var dtypes = map[safetensors.DType]ir.DType{
	safetensors.Bool: ir.Bool, safetensors.U8: ir.U8, safetensors.I8: ir.I8, safetensors.I16: ir.I16,
	safetensors.U16: ir.U16,
	safetensors.I32: ir.I32, safetensors.U32: ir.U32, safetensors.I64: ir.I64, safetensors.U64: ir.U64,
	safetensors.F8E4M3: ir.U8, // bytes, which package fp8 decodes
	safetensors.F16:    ir.F16, safetensors.BF16: ir.BF16, safetensors.F32: ir.F32, safetensors.F64: ir.F64,
}

// source is the data of a tensor of a checkpoint.
type source struct {
	io.ReaderAt
	name  string // in its file; for a file beside the checkpoint, as of a draft, with a prefix
	dtype ir.DType
	shape []int64
}

func (s source) DType() ir.DType { return s.dtype }
func (s source) Shape() []int64  { return s.shape }

// Provenance names the tensor, and not its file: where a checkpoint lies changes nothing.
func (s source) Provenance() string {
	dims := strings.ReplaceAll(fmt.Sprint(s.shape), " ", ",")
	return fmt.Sprintf("tensor(%s,%s%s)", s.name, s.dtype, dims)
}

// tensorOf makes a tensor of a file one for builders. prefix is put before its name in provenances.
func tensorOf(t *safetensors.Tensor, prefix string) builder.Tensor {
	shape := make([]int64, len(t.Shape))
	for i, d := range t.Shape {
		shape[i] = int64(d)
	}
	out := builder.Tensor{Name: t.Name, DType: string(t.DType), Shape: shape}
	if d, ok := dtypes[t.DType]; ok {
		out.Data = source{t, prefix + t.Name, d, shape}
	}
	return out
}
