package mlx

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
)

// suffixes of the tensors of a quantized module.
const (
	weightSuffix = ".weight"
	scalesSuffix = ".scales"
	biasesSuffix = ".biases"
)

// Fold joins the tensors of each quantized module to one tensor, which has the name of the packed codes and the
// shape of the matrix. The others stay as they are. parts lists the tensors of each joint one. The error joins one
// for every tensor that does not fit.
func Fold(c *Config, list []builder.Tensor) (folded []builder.Tensor, parts map[string][]string, err error) {
	byName := map[string]builder.Tensor{}
	for _, t := range list {
		byName[t.Name] = t
	}
	parts = map[string][]string{}
	consumed := map[string]bool{}
	var errs []error
	for _, t := range list {
		module, ok := strings.CutSuffix(t.Name, scalesSuffix)
		if !ok {
			continue
		}
		packed, scales, biases := byName[module+weightSuffix], t, byName[module+biasesSuffix]
		q, err := c.join(module, packed, scales, biases)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		k := q.Scales.Shape()[len(q.Scales.Shape())-1] * int64(q.Group)
		packed.Shape = append(slices.Clone(packed.Shape[:len(packed.Shape)-1]), k)
		packed.DType = fmt.Sprintf("%d bits in groups of %d,", q.Bits, q.Group)
		packed.Data, packed.Quantized = nil, q
		byName[packed.Name] = packed
		parts[packed.Name] = []string{packed.Name, scales.Name}
		consumed[scales.Name] = true
		if q.Biases != nil {
			parts[packed.Name] = append(parts[packed.Name], biases.Name)
			consumed[biases.Name] = true
		}
	}
	for _, t := range list {
		module := strings.TrimSuffix(t.Name, weightSuffix)
		if f := c.Modules[builder.Inner(module)]; f != nil && module != t.Name &&
			byName[module+scalesSuffix].Name == "" {
			errs = append(errs, fmt.Errorf(
				"%s: tensor %s: expected %s beside it, as %s.%s has the module quantized, found none", c.file, t.Name,
				module+scalesSuffix, sectionName, clip(module)))
		}
		if !consumed[t.Name] {
			folded = append(folded, byName[t.Name])
		}
	}
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	return folded, parts, nil
}

// join checks the tensors of a module against each other and the configuration.
func (c *Config) join(module string, packed, scales, biases builder.Tensor) (*builder.Quantized, error) {
	fault := func(t builder.Tensor, name, expected string) error {
		found := "none"
		if t.Name != "" {
			found = fmt.Sprintf("%s %s", t.DType, strings.ReplaceAll(fmt.Sprint(t.Shape), " ", ","))
		}
		return fmt.Errorf("%s: tensor %s: expected %s, found %s", c.file, name, expected, found)
	}
	form, listed := c.Modules[builder.Inner(module)]
	if !listed {
		form = &c.Default
	}
	if form == nil {
		return nil, fault(scales, scales.Name, fmt.Sprintf("no scales, as %s.%s is false", sectionName, clip(module)))
	}
	n := len(scales.Shape)
	if form.Mode != ir.Affine {
		return c.joinSmallFloats(*form, module, packed, scales, biases, fault)
	}
	if n < 2 || scales.Data == nil || !slices.Contains([]ir.DType{ir.BF16, ir.F16, ir.F32}, scales.Data.DType()) {
		return nil, fault(scales, scales.Name, "BF16, F16 or F32 [..., rows, groups]")
	}
	if biases.Data == nil || biases.Data.DType() != scales.Data.DType() || !slices.Equal(biases.Shape, scales.Shape) {
		return nil, fault(biases, module+biasesSuffix,
			fmt.Sprintf("the dtype and shape of the scales, %s %s", scales.DType,
				strings.ReplaceAll(fmt.Sprint(scales.Shape), " ", ",")))
	}
	if err := fits(*form, module, packed, scales, fault); err != nil {
		return nil, err
	}
	return &builder.Quantized{WeightForm: *form, Packed: packed.Data, Scales: scales.Data, Biases: biases.Data}, nil
}

// joinSmallFloats is join for modes that have scales of a byte and no biases.
func (c *Config) joinSmallFloats(form ir.WeightForm, module string, packed, scales, biases builder.Tensor,
	fault func(t builder.Tensor, name, expected string) error) (*builder.Quantized, error) {
	switch {
	case len(scales.Shape) < 2 || scales.Data == nil || scales.Data.DType() != ir.U8:
		return nil, fault(scales, scales.Name,
			fmt.Sprintf("U8 [..., rows, groups] (%s has mode %s)", sectionName, form.Mode))
	case biases.Name != "":
		return nil, fault(biases, biases.Name, fmt.Sprintf("no biases (%s has mode %s)", sectionName, form.Mode))
	}
	if err := fits(form, module, packed, scales, fault); err != nil {
		return nil, err
	}
	return &builder.Quantized{WeightForm: form, Packed: packed.Data, Scales: scales.Data}, nil
}

// fits checks packed codes against the scales.
func fits(form ir.WeightForm, module string, packed, scales builder.Tensor,
	fault func(t builder.Tensor, name, expected string) error) error {
	n := len(scales.Shape)
	want := append(slices.Clone(scales.Shape[:n-1]), form.Words(scales.Shape[n-1]*int64(form.Group)))
	if packed.Data == nil || packed.Data.DType() != ir.U32 || !slices.Equal(packed.Shape, want) {
		return fault(packed, module+weightSuffix,
			fmt.Sprintf("U32 %s, codes of %d bits for %d scales a row of groups of %d (%s)",
				strings.ReplaceAll(fmt.Sprint(want), " ", ","), form.Bits, scales.Shape[n-1], form.Group, sectionName))
	}
	return nil
}
