package fp8

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
)

// DType is how safetensors spells the element type of codes, which [Fold] takes as bytes.
const DType = "F8_E4M3"

// scaleSuffix is the suffix of the name of a matrix's tensor of scales.
const scaleSuffix = "_scale_inv"

// Fold joins every matrix in E4M3 with its scales to one tensor in float32, which has the matrix's name. The others
// stay as they are. parts lists the tensors of each joint one. The error joins one for every tensor that does not fit.
func Fold(c *Config, list []builder.Tensor) (folded []builder.Tensor, parts map[string][]string, err error) {
	byName := map[string]builder.Tensor{}
	for _, t := range list {
		byName[t.Name] = t
	}
	parts = map[string][]string{}
	consumed := map[string]bool{}
	var errs []error
	for i, t := range list {
		if t.DType != DType || t.Data == nil || t.Data.DType() != ir.U8 {
			continue
		}
		scales := byName[t.Name+scaleSuffix]
		if err := c.fits(t, scales); err != nil {
			errs = append(errs, err)
			continue
		}
		list[i].Data = newValues(t.Data, scales.Data, c.Rows, c.Columns)
		list[i].DType = fmt.Sprintf("%s with scales", DType)
		parts[t.Name] = []string{t.Name, scales.Name}
		consumed[scales.Name] = true
	}
	if len(errs) > 0 {
		return nil, nil, errors.Join(errs...)
	}
	return slices.DeleteFunc(slices.Clone(list), func(t builder.Tensor) bool { return consumed[t.Name] }), parts, nil
}

// fits checks the scales of a matrix [..., N, K]: [..., ⌈N/rows⌉, ⌈K/columns⌉].
func (c *Config) fits(codes, scales builder.Tensor) error {
	n := len(codes.Shape)
	if n < 2 {
		return fmt.Errorf("%s: tensor %s: expected a matrix in blocks of %d×%d, found %s %s",
			c.file, codes.Name, c.Rows, c.Columns, codes.DType, dims(codes.Shape))
	}
	want := slices.Clone(codes.Shape)
	want[n-2], want[n-1] = (want[n-2]+c.Rows-1)/c.Rows, (want[n-1]+c.Columns-1)/c.Columns
	floats := []ir.DType{ir.BF16, ir.F16, ir.F32}
	if scales.Data == nil || !slices.Contains(floats, scales.Data.DType()) || !slices.Equal(scales.Shape, want) {
		found := "none"
		if scales.Name != "" {
			found = scales.DType + " " + dims(scales.Shape)
		}
		return fmt.Errorf("%s: tensor %s: expected BF16, F16 or F32 %s, a scale for each block of %d×%d, found %s",
			c.file, codes.Name+scaleSuffix, dims(want), c.Rows, c.Columns, found)
	}
	return nil
}

// dims writes a shape as [2,3].
func dims(shape []int64) string { return strings.ReplaceAll(fmt.Sprint(shape), " ", ",") }
