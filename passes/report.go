package passes

import (
	"math"
	"strings"
	"sync"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes/quantize"
)

// Report is what the passes did with the weights of linears and embeddings.
type Report struct {
	// Weights in the order of the operations that use them; a weight that is used twice in one form is there once.
	Weights []*Weight
}

// Weight is a weight of a linear or of an embedding in the form that a file holds.
type Weight struct {
	Name string
	Kind WeightKind
	// Elements is the number of weights, and Bytes what they take: elements, or codes, scales and biases.
	Elements, Bytes int64
	// Mode, Bits and GroupSize say how the weight is quantized; Bits is 0 where it is not.
	Mode            ir.QuantMode
	Bits, GroupSize int
	// Given says that the checkpoint holds it quantized.
	Given bool

	computed   *quantization
	calibrated *CalibratedWeight
}

// Calibration holds weights that were quantized for the inputs that they have.
type Calibration interface {
	// Calibrated gives the quantized form of the weight of that name by a scheme, false where there is none.
	Calibrated(name string, s quantize.Scheme) (CalibratedWeight, bool)
}

// CalibratedWeight is a weight of a [Calibration].
type CalibratedWeight struct {
	// Packed codes, scales and biases, of the shapes and dtypes that a quantized weight has in a file.
	Packed, Scales, Biases ir.Data
	// Noise and Signal are the sums of the squared errors of the weights and of their squares.
	Noise, Signal float64
}

// BitsPerWeight returns the number of bits that an element takes, its share of scales and biases included.
func (w *Weight) BitsPerWeight() float64 { return 8 * float64(w.Bytes) / float64(w.Elements) }

// Error returns the relative error of a quantized weight, |stored - given| / |given| in the Euclidean norm, of
// the rows that have been measured: some of every block that has been computed. It reports false where
// nothing has been measured, or the weight is not quantized. It is safe to call while a file is written.
func (w *Weight) Error() (float64, bool) {
	var noise, signal float64
	switch {
	case w.computed != nil:
		noise, signal = w.computed.measured.total()
	case w.calibrated != nil:
		noise, signal = w.calibrated.Noise, w.calibrated.Signal
	}
	if signal == 0 {
		return 0, false
	}
	return math.Sqrt(noise / signal), true
}

// add notes a weight; a nil report notes nothing.
func (r *Report) add(w *Weight) {
	if r != nil {
		r.Weights = append(r.Weights, w)
	}
}

// plainWeight returns a weight that stays as it is.
func plainWeight(kind WeightKind, name string, d ir.Data) *Weight {
	return &Weight{Name: name, Kind: kind, Elements: ir.Elements(d.Shape()), Bytes: ir.DataSize(d)}
}

// givenWeight returns a weight that the checkpoint holds quantized.
func givenWeight(kind WeightKind, op *ir.Op) *Weight {
	a := ir.Attrs[ir.QuantizedAttrs](op)
	packed := op.Input("packed").Constant
	w := &Weight{Name: strings.TrimSuffix(packed.Name, ".packed"), Kind: kind, Mode: a.Mode, Bits: a.Bits,
		GroupSize: a.GroupSize, Given: true}
	w.Elements = ir.Elements(packed.Data.Shape()) * 32 / int64(a.Bits) // codes of 3, 5 and 6 bits lie across words
	for _, part := range []string{"packed", "scales", "biases"} {
		if v := op.Input(part); v != nil && v.Constant != nil && v.Constant.Data != nil {
			w.Bytes += ir.DataSize(v.Constant.Data)
		}
	}
	return w
}

// measurement holds the squares of the errors and of the weights, block by block.
type measurement struct {
	mu            sync.Mutex
	noise, signal map[int]float64
}

func (m *measurement) set(block int, noise, signal float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.noise == nil {
		m.noise, m.signal = map[int]float64{}, map[int]float64{}
	}
	m.noise[block], m.signal[block] = noise, signal
}

func (m *measurement) total() (noise, signal float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for block, n := range m.noise {
		noise, signal = noise+n, signal+m.signal[block]
	}
	return noise, signal
}

// squares returns the sums of the squared errors of a result and of the squared weights that it was made of.
// stored is memory for the result's weights, which is returned.
func squares(r *quantize.Result, given, stored []float32) (noise, signal float64, memory []float32, err error) {
	stored = grow(stored, len(given))
	if err := r.Dequantize(stored); err != nil {
		return 0, 0, stored, err
	}
	for i, x := range given {
		e := float64(stored[i] - x)
		noise += float64(e * e)
		signal += float64(float64(x) * float64(x))
	}
	return noise, signal, stored, nil
}
