package gpu

import (
	"encoding/binary"
	"math"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric"
)

// read copies a value from the device into a tensor for reference kernels.
func (x *instance) read(v *value) (*eval.Tensor, error) {
	p := make([]byte, extent(v.shape, v.stride)*v.format.size())
	if len(p) > 0 {
		buffer, offset := x.locate(v.slot)
		if err := buffer.Read(offset+v.at(), p); err != nil {
			return nil, err
		}
	}
	return v.decode(p)
}

// decode converts a value's bytes, as the device stores them, to a tensor. p starts at the first element.
func (v *value) decode(p []byte) (*eval.Tensor, error) {
	t, err := eval.NewTensor(v.dtype, v.shape...)
	if err != nil {
		return nil, err
	}
	eachElement(v.shape, v.stride, func(i, at int) {
		switch v.format {
		case f32:
			t.F[i] = math.Float32frombits(binary.LittleEndian.Uint32(p[4*at:]))
		case bf16:
			t.F[i] = numeric.BF16ToF32(binary.LittleEndian.Uint16(p[2*at:]))
		case i32:
			n := int64(int32(binary.LittleEndian.Uint32(p[4*at:])))
			if v.dtype == ir.U32 {
				n = int64(uint32(n))
			}
			t.I[i] = n
		}
	})
	return t, nil
}

// write copies a tensor to a dense value on the device.
func (x *instance) write(v *value, t *eval.Tensor) error {
	if t.Len() == 0 {
		return nil
	}
	buffer, offset := x.locate(v.slot)
	return buffer.Write(offset+v.at(), encode(v.format, t))
}

// encode converts the elements of a tensor to the bytes that the device stores.
func encode(f format, t *eval.Tensor) []byte {
	p := make([]byte, 0, t.Len()*f.size())
	for _, v := range t.F {
		if f == bf16 {
			p = binary.LittleEndian.AppendUint16(p, numeric.F32ToBF16(v))
		} else {
			p = binary.LittleEndian.AppendUint32(p, math.Float32bits(v))
		}
	}
	for _, v := range t.I {
		p = binary.LittleEndian.AppendUint32(p, uint32(v))
	}
	return p
}
