package gpu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/strided"
)

// uniforms is the uniform buffer of a plan: one small buffer with everything that kernels read of a call, such as
// tokens, positions, flags and sampling parameters. Entries that come from host values are written before the first
// step.
type uniforms struct {
	slots   []*slot
	size    int // bytes
	few     int // bytes that nearly every call changes; the tables after them change little
	uploads []upload
	pairs   map[pair]*slot
	content []byte
	// sent is what the buffer of each turn holds on the device; nil where that is not known. See bring.
	sent   [2][]byte
	buffer device.Buffer
}

// upload is a host value that is copied to the device with the uniforms.
type upload struct {
	at *slot
	// rows is set where the host value is a list of row indices of a weight: the number of rows of that weight.
	rows   int
	of     *hostValue
	encode func(p []byte) error
}

// pair is the content of a step operand: a number of rows, and the position of the first.
type pair struct {
	tokens   int
	position *hostValue
}

// uniform reserves size bytes in the uniform buffer and returns their slot, which arrange gives its place. encode
// writes them before every call.
func (b *binder) uniform(size int, encode func(p []byte) error) *slot {
	return b.upload(size, upload{encode: encode})
}

// upload does what uniform does, for an upload whose fields other than the slot the caller has set. It sets u.at to the
// slot, which it also returns.
func (b *binder) upload(size int, u upload) *slot {
	w := &b.plan.uniforms
	u.at = &slot{Slot: plan.Slot{Size: size}}
	w.slots, w.uploads = append(w.slots, u.at), append(w.uploads, u)
	return u.at
}

// stepAt returns the step operand of a kernel for tokens rows that start at a position. Nil is position 0.
func (b *binder) stepAt(tokens int, position *hostValue) operand {
	w := &b.plan.uniforms
	if w.pairs == nil {
		w.pairs = map[pair]*slot{}
	}
	key := pair{tokens, position}
	s := w.pairs[key]
	if s == nil {
		if position != nil {
			position.need()
		}
		s = b.uniform(8, func(p []byte) error {
			binary.LittleEndian.PutUint32(p, uint32(tokens))
			n := int64(0)
			if position != nil {
				n = position.content.Int
			}
			if n != int64(int32(n)) {
				return fmt.Errorf("position %d has more than 32 bits", n)
			}
			binary.LittleEndian.PutUint32(p[4:], uint32(n))
			return nil
		})
		w.pairs[key] = s
	}
	return whole(s)
}

// register returns the host value of an int operand, or nil where a step of the plan computes it.
func (b *binder) register(operand string) *hostValue {
	a, ok := b.Op.Arg(operand)
	switch {
	case !ok:
		return nil
	case a.Kind == ir.IntArg:
		return &hostValue{constant: true, content: eval.Value{Int: a.Int}}
	}
	if v := b.Input(operand); v != nil && v.place == onHost && !v.hostValue.step && v.shape == nil {
		v.hostValue.need()
		return v.hostValue
	}
	return nil
}

// device returns the value on the device, and copies it there if it is a host value: floats as float32, integers as
// int32. It returns nil where the shape is not known, or a step of the plan computes it on the host.
func (b *binder) device(of *ir.Value, v *value) *value {
	if v == nil || v.place == onDevice {
		return v
	}
	if v.place != onHost || v.shape == nil || v.hostValue.step || v.len() == 0 {
		return nil
	}
	if d := b.uploaded[v.hostValue]; d != nil {
		return d
	}
	d := &value{place: onDevice, dtype: v.dtype, shape: v.shape, stride: strided.RowMajor(v.shape)}
	if !v.dtype.IsFloat() {
		d.format = i32
	}
	if v.hostValue.constant {
		c, err := v.hostValue.fixed()
		if err != nil || c.Tensor == nil {
			return nil
		}
		if d.slot = b.x.exe.remembered(memoryKey{value: of, format: d.format},
			func() *slot { return b.x.exe.upload(encode(d.format, c.Tensor)) }); d.slot == nil {
			return nil
		}
	} else {
		v.hostValue.need()
		hostValue, shape := v.hostValue, v.shape
		var last []int64
		d.slot = b.uniform(4*v.len(), func(p []byte) error {
			t := hostValue.content.Tensor
			if t == nil || t.Len() != strided.Elements(shape) {
				return fmt.Errorf("an input has another size than its type says")
			}
			last = encodeChanged(p, t.I, last)
			if len(t.F) > 0 {
				copy(p, encode(f32, t))
			}
			return nil
		})
	}
	b.uploaded[v.hostValue] = d
	return d
}

// encodeChanged converts integers to int32 in p, which holds those of last, the result of the call before. Tables of
// blocks are large and change little, and comparing takes a fifth of the time of converting.
func encodeChanged(p []byte, numbers, last []int64) []int64 {
	const part = 256
	known := len(last) == len(numbers)
	if !known {
		last = make([]int64, len(numbers))
	}
	for lo := 0; lo < len(numbers); lo += part {
		hi := min(lo+part, len(numbers))
		if known && slices.Equal(numbers[lo:hi], last[lo:hi]) {
			continue
		}
		copy(last[lo:hi], numbers[lo:hi])
		for i, n := range numbers[lo:hi] {
			binary.LittleEndian.PutUint32(p[4*(lo+i):], uint32(n))
		}
	}
	return last
}

// floats returns an operand as float32 on the device, or nil.
func (b *binder) floats(operand string) *value {
	v := b.device(b.Op.Input(operand), b.Input(operand))
	if !v.isFloats() {
		return nil
	}
	return v
}

// vector returns a constant vector of n floats, such as the weight of a norm, on the device in float32. It returns nil
// where the operand is something else.
func (b *binder) vector(operand string, n int) *value {
	of := b.Op.Input(operand)
	v := b.Input(operand)
	if v == nil || v.place != onHost || !v.hostValue.constant || !v.dtype.IsFloat() ||
		len(v.shape) != 1 || v.shape[0] != n {
		return nil
	}
	return b.device(of, v)
}

// indexOf returns the slot in the uniforms of a host value that is row indices, and the number of rows that these may
// index. It returns nil where the uniforms do not have it once and as that.
func (w *uniforms) indexOf(c *hostValue) (at *slot, rows int) {
	for _, u := range w.uploads {
		if u.rows > 0 && u.of == c {
			if at != nil {
				return nil, 0
			}
			at, rows = u.at, u.rows
		}
	}
	return at, rows
}

// fill computes the content of the uniform buffer for a call.
func (w *uniforms) fill() error {
	if len(w.content) < w.size {
		w.content = make([]byte, w.size)
	}
	for _, u := range w.uploads {
		if err := u.encode(w.content[u.at.Offset:][:u.at.Size]); err != nil {
			return err
		}
	}
	return nil
}

// smallUniform is the size in bytes up to which a uniform is written with its neighbours, whether it has changed or
// not.
const smallUniform = 1024

// arrange gives all uniforms their places, the small ones before the large ones, so that few writes bring what a call
// changes.
func (w *uniforms) arrange() {
	place := func(small bool) {
		for _, s := range w.slots {
			if s.Size <= smallUniform == small {
				s.Offset = w.size
				w.size = (w.size + s.Size + alignment - 1) &^ (alignment - 1)
			}
		}
	}
	place(true)
	w.few = w.size
	place(false)
}

// bring writes what has changed since the last call of this turn: block tables are large and change little. The small
// uniforms before them are written as one part, since each write takes a copy of its own on the device. Short writes do
// not make the host wait for the device.
func (w *uniforms) bring(turn int, write func(at int, p []byte) error) error {
	content, sent := w.content[:w.size], w.sent[turn]
	w.sent[turn] = nil // stays nil unless everything is written
	if sent == nil {
		if err := write(0, content); err != nil {
			return err
		}
		w.sent[turn] = bytes.Clone(content)
		return nil
	}
	if few := content[:w.few]; !bytes.Equal(few, sent[:w.few]) {
		if err := inPieces(0, few, write); err != nil {
			return err
		}
		copy(sent, few)
	}
	if err := w.bringTables(sent, write); err != nil {
		return err
	}
	w.sent[turn] = sent
	return nil
}

// bringBeside does what bring does, but leaves out a small slot, which a kernel writes, and what else lies in the same
// aligned words: a device that shares memory with the host may move whole cache lines of it.
func (w *uniforms) bringBeside(written *slot, turn int, write func(at int, p []byte) error) error {
	content, sent := w.content[:w.size], w.sent[turn]
	w.sent[turn] = nil
	end := min((written.Offset+written.Size+alignment-1)&^(alignment-1), len(content))
	if err := inPieces(0, content[:written.Offset], write); err != nil {
		return err
	}
	if sent == nil {
		if err := inPieces(end, content[end:], write); err != nil {
			return err
		}
		sent = bytes.Clone(content)
	} else {
		if err := inPieces(end, content[end:w.few], write); err != nil {
			return err
		}
		copy(sent, content[:w.few])
		if err := w.bringTables(sent, write); err != nil {
			return err
		}
	}
	w.sent[turn] = sent
	w.overwritten(written, turn)
	return nil
}

// overwritten notes that a kernel writes a slot that holds row indices in the buffer of this turn, so that the next
// call writes it again, whatever it has there.
func (w *uniforms) overwritten(at *slot, turn int) {
	if sent := w.sent[turn]; sent != nil {
		for i := range at.Size {
			sent[at.Offset+i] = 0xff // no row has the number of these bytes
		}
	}
}

// inPieces writes p, which begins at an offset, in pieces of at most device.MaxPlaced bytes.
func inPieces(at int, p []byte, write func(at int, p []byte) error) error {
	for piece := range slices.Chunk(p, device.MaxPlaced) {
		if err := write(at, piece); err != nil {
			return err
		}
		at += len(piece)
	}
	return nil
}

// bringTables writes those parts of the tables that differ from sent, and notes them there.
func (w *uniforms) bringTables(sent []byte, write func(at int, p []byte) error) error {
	content := w.content[:w.size]
	changed := func(at int) bool {
		end := min(at+alignment, len(content))
		return !bytes.Equal(content[at:end], sent[at:end])
	}
	for at := w.few; at < len(content); {
		if !changed(at) {
			at += alignment
			continue
		}
		end := min(at+alignment, len(content))
		for end < len(content) && end-at < device.MaxPlaced && changed(end) {
			end = min(end+alignment, len(content))
		}
		if err := write(at, content[at:end]); err != nil {
			return err
		}
		copy(sent[at:end], content[at:end])
		at = end
	}
	return nil
}
