package prequantized

import (
	"testing"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
)

// FuzzUnflatten: whatever the metadata of a bundle says of tensors of any shape, it is weights or an error.
func FuzzUnflatten(f *testing.F) {
	const names = `["model.a.weight"]`
	f.Add(names, "model.a.weight", `{"_type":"Int4Tensor","_data":{"block_size":[1,32]},"_tensor_data_names":["qdata","scale","zero_point"]}`, uint8(4), uint8(8), uint8(2), uint8(1))
	f.Add(names, "model.a.weight", `{"_type":"IntxUnpackedToInt8Tensor","_data":{"block_size":[1,32],"target_dtype":{"_data":"int4"}},"_tensor_data_names":["qdata","scale","zero_point"]}`,
		uint8(4), uint8(64), uint8(2), uint8(0))
	f.Add(names, "model.a.weight", `{"_type":"Tensor"}`, uint8(1), uint8(1), uint8(0), uint8(2))
	f.Fuzz(func(t *testing.T, list, name, text string, rows, cols, groups, kind uint8) {
		tensor := func(suffix string, d ir.DType, dims ...int64) builder.Tensor {
			return builder.Tensor{Name: name + suffix, DType: d.String(), Shape: dims,
				Data: ir.Bytes(d, dims, make([]byte, ir.Elements(dims)*int64(d.Size())))}
		}
		dtypes := []ir.DType{ir.I8, ir.U8, ir.BF16, ir.F32, ir.I64}
		d := dtypes[int(kind)%len(dtypes)]
		tensors := []builder.Tensor{
			tensor("", d, int64(rows), int64(cols)), tensor("_qdata", d, int64(rows), int64(cols)),
			tensor("_scale", ir.BF16, int64(rows), int64(groups)),
			tensor("_zero_point", d, int64(groups), int64(rows)),
		}
		weights, parts, err := Unflatten("bundle", map[string]string{listKey: list, name: text}, tensors)
		if err != nil {
			return
		}
		for _, w := range weights {
			if len(parts[w.Name]) == 0 {
				t.Fatalf("%q is made of nothing", w.Name)
			}
			if q := w.Quantized; q != nil { // what was accepted can be read
				for _, data := range []ir.Data{q.Packed, q.Scales, q.Biases} {
					if data == nil {
						continue
					}
					if n := ir.DataSize(data); n > 0 {
						if got, err := data.ReadAt(make([]byte, n), 0); int64(got) != n {
							t.Fatalf("%q: %d of %d bytes: %v", w.Name, got, n, err)
						}
					}
				}
			}
		}
	})
}
