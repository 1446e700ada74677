package compare

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

// Weight is how far a weight of a program is from the checkpoint's.
type Weight struct {
	Name string `json:"name"`
	// Mode is the quantization mode, where it is another than affine.
	Mode string `json:"mode,omitempty"`
	// Bits, Group and BitsPerWeight describe the program's form of the weight. For a weight that is not quantized, Bits
	// is the size of its dtype.
	Bits          int     `json:"bits"`
	Group         int     `json:"group,omitempty"`
	BitsPerWeight float64 `json:"bits_per_weight"`
	Elements      int64   `json:"elements"`
	// SQNR is the signal-to-noise ratio in dB, +Inf where the weights are equal.
	SQNR Decibel `json:"sqnr_db"`
	// Max is the largest absolute difference; that of what is no number to a number is the largest float32.
	Max float64 `json:"max_error"`
	// RMS is the root mean square of the checkpoint's weight.
	RMS float64 `json:"rms"`
	// Histogram counts the differences by magnitude: bin i has those in [2^(i-8), 2^(i-7)) times RMS; the first bin
	// also has smaller ones, the last bin larger ones. RMS is rounded to a power of two for it.
	Histogram [bins]int64 `json:"histogram"`
}

// bins is the number of bins of a histogram.
const bins = 10

// Suffixes of the constants of a quantized weight, as passes name them.
const (
	packedSuffix = ".packed"
	scalesSuffix = ".scales"
	biasesSuffix = ".biases"
)

// blockElements bounds the elements that are decoded at a time.
const blockElements = 1 << 20

// Weights compares the constants of a program with those of the checkpoint's module, in the order of the
// latter. Constants that only one side has are listed by name in missing and extra.
func Weights(file, original *ir.Module) (weights []Weight, missing, extra []string, err error) {
	constants := map[string]*ir.Constant{}
	for _, c := range file.Constants {
		constants[c.Name] = c
	}
	used := map[string]bool{}
	for _, c := range original.Constants {
		if !c.Data.DType().IsFloat() || len(c.Data.Shape()) == 0 {
			used[c.Name] = true
			continue
		}
		same, packed := constants[c.Name], constants[c.Name+packedSuffix]
		if same == nil && packed == nil {
			missing = append(missing, c.Name)
		}
		if same != nil {
			used[c.Name] = true
			w, err := compareDense(c, same)
			if err != nil {
				return nil, nil, nil, err
			}
			weights = append(weights, w)
		}
		if packed != nil { // beside the dense form where a tied weight is quantized for one of its uses only
			q := &quantized{packed: packed.Data}
			used[packed.Name] = true
			for suffix, to := range map[string]*ir.Data{scalesSuffix: &q.scales, biasesSuffix: &q.biases} {
				part := constants[c.Name+suffix]
				if part == nil && suffix == biasesSuffix && q.withoutBiases(constants[c.Name+scalesSuffix]) {
					continue
				}
				if part == nil {
					return nil, nil, nil, fmt.Errorf("constant %s has packed codes but no %s", c.Name, suffix[1:])
				}
				used[part.Name] = true
				*to = part.Data
			}
			w, err := compareQuantized(c, q)
			if err != nil {
				return nil, nil, nil, err
			}
			weights = append(weights, w)
		}
	}
	for _, c := range file.Constants {
		if !used[c.Name] && len(c.Data.Shape()) > 0 { // scalars belong to the lowering, not to the checkpoint
			extra = append(extra, c.Name)
		}
	}
	return weights, missing, extra, nil
}

// sums adds up the differences of a weight.
type sums struct {
	signal, noise, max float64
	elements           int64
	exponents          map[int]int64 // differences by the exponent of two that is just above
}

func (s *sums) add(want, got []float32) {
	if s.exponents == nil {
		s.exponents = map[int]int64{}
	}
	var counts [512]int64
	for i, w := range want {
		g, signal := got[i], float64(w)
		d := math.Abs(signal - float64(g))
		switch { // tables of frequencies hold infinities
		case w == g || w != w && g != g:
			d = 0
		case math.IsInf(d, 0) || math.IsNaN(d):
			d = math.MaxFloat32
		}
		if math.IsInf(signal, 0) || math.IsNaN(signal) {
			signal = 0
		}
		s.signal += float64(signal * signal)
		s.noise += float64(d * d)
		s.max = math.Max(s.max, d)
		_, e := math.Frexp(d)
		if d == 0 {
			e = -255
		}
		counts[min(max(e+256, 0), len(counts)-1)]++
	}
	for e, n := range counts {
		if n > 0 {
			s.exponents[e-256] += n
		}
	}
	s.elements += int64(len(want))
}

func (s *sums) weight(name string) Weight {
	w := Weight{Name: name, Elements: s.elements, Max: s.max, SQNR: Decibel(math.Inf(1))}
	if s.noise > 0 {
		w.SQNR = Decibel(10 * numeric.Log10(s.signal/s.noise))
	}
	w.RMS = math.Sqrt(s.signal / math.Max(float64(s.elements), 1))
	_, unit := math.Frexp(w.RMS)
	for e, n := range s.exponents {
		w.Histogram[min(max(e-unit+bins-2, 0), bins-1)] += n
	}
	return w
}

func compareDense(want, got *ir.Constant) (Weight, error) {
	if !slices.Equal(want.Data.Shape(), got.Data.Shape()) || !got.Data.DType().IsFloat() {
		return Weight{}, fmt.Errorf("constant %s is %s%v, the checkpoint's %s%v", want.Name, got.Data.DType(),
			got.Data.Shape(), want.Data.DType(), want.Data.Shape())
	}
	s := &sums{}
	n := ir.Elements(want.Data.Shape())
	for at := int64(0); at < n; at += blockElements {
		count := min(blockElements, n-at)
		a, err := readFloats(want.Data, at, count)
		if err != nil {
			return Weight{}, fmt.Errorf("constant %s of the checkpoint: %w", want.Name, err)
		}
		b, err := readFloats(got.Data, at, count)
		if err != nil {
			return Weight{}, fmt.Errorf("constant %s: %w", got.Name, err)
		}
		s.add(a, b)
	}
	w := s.weight(want.Name)
	w.Bits = 8 * got.Data.DType().Size()
	w.BitsPerWeight = float64(w.Bits)
	return w, nil
}

// readFloats reads count elements of floating-point data from element at.
func readFloats(d ir.Data, at, count int64) ([]float32, error) {
	size := int64(d.DType().Size())
	raw := make([]byte, count*size)
	if n, err := d.ReadAt(raw, at*size); n < len(raw) {
		return nil, orEOF(err)
	}
	out := make([]float32, count)
	switch d.DType() {
	case ir.BF16:
		numeric.BF16SliceToF32(out, raw)
	case ir.F16:
		numeric.F16SliceToF32(out, raw)
	case ir.F32:
		numeric.F32SliceFromBytes(out, raw)
	default:
		return nil, fmt.Errorf("%s data, want bf16, f16 or f32", d.DType())
	}
	return out, nil
}

func orEOF(err error) error {
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
