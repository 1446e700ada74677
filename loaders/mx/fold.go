package mx

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/builder"
)

// Fold joins the tensors of each quantized matrix to one tensor, which has the matrix's name and shape. The others stay
// as they are. parts lists the tensors of each joint one. The error joins one for every matrix that does not fit.
func Fold(c *Config, list []builder.Tensor) (folded []builder.Tensor, parts map[string][]string, err error) {
	byName := map[string]builder.Tensor{}
	for _, t := range list {
		byName[t.Name] = t
	}
	parts = map[string][]string{}
	joint, consumed := map[string]builder.Tensor{}, map[string]bool{}
	var errs []error
	for _, t := range list {
		name, ok := strings.CutSuffix(t.Name, c.codes)
		if !ok || t.DType != "U8" {
			continue
		}
		names := []string{t.Name, name + c.scales}
		if c.global != "" {
			names = append(names, name+c.global)
		}
		w, err := c.join(name, t, byName[name+c.scales], byName[name+c.global])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		joint[t.Name], parts[name] = w, names
		for _, n := range names[1:] {
			consumed[n] = true
		}
	}
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	for _, t := range list {
		if w, ok := joint[t.Name]; ok {
			t = w
		}
		if !consumed[t.Name] {
			folded = append(folded, t)
		}
	}
	return folded, parts, nil
}

// join makes a weight of codes and scales.
func (c *Config) join(name string, codes, scales, global builder.Tensor) (builder.Tensor, error) {
	n := len(codes.Shape) - 1
	if c.codes == "_blocks" { // [..., K/32, 16]
		if n < 2 || codes.Shape[n] != 16 {
			return codes, c.fault(codes, codes.Name, "U8 [..., rows, groups, 16]")
		}
		n--
		codes.Shape = append(slices.Clone(codes.Shape[:n]), 16*codes.Shape[n])
	}
	if n < 1 || codes.Data == nil || codes.Shape[n]*2%32 != 0 {
		return codes, c.fault(codes, codes.Name, "U8 [..., rows, columns/2], with a multiple of 32 columns")
	}
	k := codes.Shape[n] * 2
	groups := append(slices.Clone(codes.Shape[:n]), c.form.Groups(k))
	expected := fmt.Sprintf("a byte for each group of %d, %s", c.form.Group, dims(groups))
	if scales.Data == nil || scales.Data.DType() != ir.U8 || !slices.Equal(scales.Shape, groups) {
		return codes, c.fault(scales, name+c.scales, expected)
	}
	q := &builder.Quantized{WeightForm: c.form, Scales: scales.Data,
		Packed: words{codes.Data, append(slices.Clone(codes.Shape[:n]), c.form.Words(k))}}
	if c.global != "" {
		var err error
		if q.Scales, err = c.divided(scales, global, name+c.global); err != nil {
			return codes, err
		}
	}
	return builder.Tensor{Name: name, DType: c.form.String(), Shape: append(slices.Clone(codes.Shape[:n]), k),
		Quantized: q}, nil
}

func (c *Config) fault(t builder.Tensor, name, expected string) error {
	found := "none"
	if t.Name != "" {
		found = t.DType + " " + dims(t.Shape)
	}
	return fmt.Errorf("%s: tensor %s: expected %s, found %s", c.file, name, expected, found)
}

// divided returns scales e4m3 divided by a global scale, where that is exact.
func (c *Config) divided(scales, global builder.Tensor, name string) (ir.Data, error) {
	if global.Data == nil || global.Data.DType() != ir.F32 || ir.Elements(global.Shape) != 1 {
		return nil, c.fault(global, name, "F32 [1]")
	}
	raw, err := ir.ReadData(global.Data)
	if err != nil {
		return nil, fmt.Errorf("%s: tensor %s: %w", c.file, name, err)
	}
	var value [1]float32
	numeric.F32SliceFromBytes(value[:], raw)
	g := value[0]
	if g == 1 {
		return scales.Data, nil
	}
	refuse := func(why string) error {
		return fmt.Errorf("%s: tensor %s: the global scale %g %s; the nodes that multiply have no global scale of "+
			"their own, so etc cannot say these weights exactly: use the original checkpoint",
			c.file, name, g, why)
	}
	fraction, exponent := math.Frexp(float64(g))
	if fraction != 0.5 || g != g || math.IsInf(float64(g), 0) {
		return nil, refuse("is no power of two, so that the scales of groups cannot take it")
	}
	var table [256]uint8
	var exact [256]bool
	for code := range table {
		v := math.Ldexp(float64(numeric.E4M3ToF32(uint8(code))), 1-exponent)
		table[code] = numeric.F32ToE4M3(float32(v))
		exact[code] = float64(numeric.E4M3ToF32(table[code])) == v
	}
	if lost, err := anyOf(scales.Data, func(code byte) bool { return !exact[code] }); err != nil {
		return nil, fmt.Errorf("%s: tensor %s: %w", c.file, scales.Name, err)
	} else if lost {
		return nil, refuse("would take scales of groups out of the range of e4m3")
	}
	return ir.Map(scales.Data, ir.U8, fmt.Sprintf("e4m3_over_%g", g), func(dst, src []byte) {
		for i, code := range src {
			dst[i] = table[code]
		}
	}), nil
}

// anyOf reports whether a byte of d is one of those that f is true for.
func anyOf(d ir.Data, f func(byte) bool) (bool, error) {
	size, p := ir.DataSize(d), make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(p)) {
		n := min(int64(len(p)), size-at)
		if got, err := d.ReadAt(p[:n], at); int64(got) < n {
			return false, fmt.Errorf("read %d of %d bytes: %w", got, n, err)
		}
		if slices.ContainsFunc(p[:n], f) {
			return true, nil
		}
	}
	return false, nil
}

// words are bytes as words of 32 bits, the first byte the lowest.
type words struct {
	ir.Data
	shape []int64
}

func (w words) DType() ir.DType { return ir.U32 }
func (w words) Shape() []int64  { return w.shape }

// dims writes a shape as [2,3].
func dims(shape []int64) string { return strings.ReplaceAll(fmt.Sprint(shape), " ", ",") }
