package gpu

import (
	"encoding/binary"
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/strided"
)

// bindEmbedding looks up rows of a weight.
func bindEmbedding(b *binder) bool {
	w, indices := b.x.exe.weight(b.Op.Input("weight")), b.Input("indices")
	if w == nil || w.count != 1 || indices == nil || indices.dtype.IsFloat() {
		return false
	}
	tokens := b.indices(indices, w.rows)
	if tokens == nil {
		return false
	}
	n := tokens.len()
	if w.cols%8 != 0 && !w.Quantized() {
		return b.gather("weight", 0, "indices")
	}
	l, err := kernels.Embedding{Format: w.Format, N: w.rows, K: w.cols, Multiplier: 1}.Launch(n)
	out := b.result(0, nil)
	if err != nil || out == nil || out.len() != n*w.cols {
		return false
	}
	b.launch("embedding", l, nil, kernels.EmbeddingArguments[operand]{W: w.arguments(), Tokens: bytesOf(tokens),
		Y: bytesOf(out), Step: b.stepAt(n, nil)})
	b.reading(n * w.bytes() / w.rows)
	return true
}

// indices returns row numbers on the device. Those that the host knows are checked against rows before anything runs;
// others must come from a kernel that cannot exceed rows. It returns nil where that is not sure.
func (b *binder) indices(v *value, rows int) *value {
	if v.place == onDevice {
		if v.format != i32 || !v.isDense() || v.below == 0 || v.below > rows { // kernels do not check indices
			return nil
		}
		return v
	}
	if v.place != onHost || v.shape == nil || v.hostValue.step || v.hostValue.constant {
		return nil
	}
	v.hostValue.need()
	c, n, unsigned, name := v.hostValue, v.len(), v.dtype == ir.U64, b.Op.Def.Name
	d := &value{place: onDevice, dtype: v.dtype, shape: v.shape, stride: strided.RowMajor(v.shape), format: i32}
	d.slot = b.upload(4*n, upload{of: c, rows: rows, encode: func(p []byte) error {
		t := c.content.Tensor
		if t == nil || len(t.I) != n {
			return fmt.Errorf("%s: indices are no %d integers", name, n)
		}
		for i, at := range t.I {
			if at < 0 && !unsigned {
				at += int64(rows)
			}
			if at < 0 || at >= int64(rows) {
				return fmt.Errorf("%s: indices[%d] is %d, there are %d rows", name, i, t.I[i], rows)
			}
			binary.LittleEndian.PutUint32(p[4*i:], uint32(at))
		}
		return nil
	}})
	return d
}
