package gpu

import (
	"unsafe"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/device"
)

// uploads is the copy of a program's quantized weights to a device that has memory of its own. It begins as soon as the
// device is open and goes on while the program is fused, lowered and compiled.
type uploads struct {
	upload device.Upload
	parts  map[*ir.Constant]int // the number of a constant's part
	sizes  []int
}

// newUploads begins to copy the quantized weights of a program. It returns nil where the device shares the host's
// memory, or where there are no such weights. It also returns nil where the copy cannot begin, as when the device has
// no memory for all of them. Then each weight is copied when a plan needs it, and an error is that plan's.
func newUploads(d device.Device, m *ir.Module) *uploads {
	x, ok := d.(device.Uploader)
	if !ok {
		return nil
	}
	u := &uploads{parts: map[*ir.Constant]int{}}
	var parts [][]byte
	at := map[*byte]int{} // the number of the part at an address: constants may share bytes of a file
	for _, c := range quantizedConstants(m) {
		mapped, ok := c.Data.(interface{ Bytes() []byte })
		if !ok || len(mapped.Bytes()) == 0 {
			continue
		}
		p := mapped.Bytes()
		number, known := at[unsafe.SliceData(p)]
		if known && u.sizes[number] != len(p) {
			continue // it begins where another part does, but ends elsewhere: copied when a plan needs it
		}
		if !known {
			number = len(parts)
			parts, u.sizes = append(parts, p), append(u.sizes, len(p))
			at[unsafe.SliceData(p)] = number
		}
		u.parts[c] = number
	}
	if len(parts) == 0 {
		return nil
	}
	var err error
	if u.upload, err = x.Upload(parts); err != nil {
		return nil
	}
	return u
}

// quantizedConstants returns the packed codes of quantized weights with their scales and biases in bf16, in the order
// in which operations use them. Kernels read these as the file stores them. Only those that lie in the memory of a
// mapped file are copied ahead: others are made when they are asked for.
func quantizedConstants(m *ir.Module) (out []*ir.Constant) {
	for _, f := range m.Entries() {
		f.Body.Walk(func(op *ir.Op) {
			codes := false
			for i := range op.Args {
				for _, a := range op.Args[i] {
					if a.Kind != ir.ValueArg || a.Value.Constant == nil || a.Value.Constant.Data == nil {
						continue
					}
					d := a.Value.Constant.Data.DType()
					codes = codes || d == ir.U32
					if codes && (d == ir.U32 || d == ir.BF16) {
						out = append(out, a.Value.Constant)
					}
				}
			}
		})
	}
	return out
}

// of waits until a constant is on the device, and returns its buffer and its size in bytes. ok is false for a constant
// that is no part of the copy.
func (u *uploads) of(c *ir.Constant) (b device.Buffer, size int, ok bool, err error) {
	if u == nil {
		return nil, 0, false, nil
	}
	i, ok := u.parts[c]
	if !ok {
		return nil, 0, false, nil
	}
	b, err = u.upload.Buffer(i)
	return b, u.sizes[i], true, err
}

// close ends the copy and frees the memory of all weights. No kernel may read them any more.
func (u *uploads) close() error {
	if u == nil {
		return nil
	}
	return u.upload.Close()
}
