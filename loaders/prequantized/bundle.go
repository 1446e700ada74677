package prequantized

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
)

// listKey is the metadata key with the names of all weights.
const listKey = "tensor_names"

// IsBundle reports whether a safetensors file with this metadata is a bundle.
func IsBundle(metadata map[string]string) bool { return metadata[listKey] != "" }

// description is the metadata of a weight.
type description struct {
	Type string `json:"_type"`
	Data struct {
		BlockSize []int64 `json:"block_size"`
		Target    struct {
			DType string `json:"_data"`
		} `json:"target_dtype"`
		Activation any `json:"activation_quantization"`
	} `json:"_data"`
	Tensors []string `json:"_tensor_data_names"`
}

// Unflatten joins the tensors of a bundle to its weights, which have the names of the bundle; parts lists the tensors
// of each. file is for messages. The error joins one for every weight that does not fit.
func Unflatten(file string, metadata map[string]string, list []builder.Tensor) (weights []builder.Tensor,
	parts map[string][]string, err error) {
	var names []string
	if err := json.Unmarshal([]byte(metadata[listKey]), &names); err != nil {
		return nil, nil, fmt.Errorf("%s: metadata %s: expected a JSON array of names: %w", file, listKey, err)
	}
	byName := map[string]builder.Tensor{}
	for _, t := range list {
		byName[t.Name] = t
	}
	parts = map[string][]string{}
	used := map[string]bool{}
	var errs []error
	for _, name := range names {
		fault := func(expected, found string, args ...any) {
			errs = append(errs, fmt.Errorf("%s: tensor %.200s: expected %s, found %s", file, name, expected,
				fmt.Sprintf(found, args...)))
		}
		var d description
		if err := json.Unmarshal([]byte(metadata[name]), &d); err != nil {
			fault("a description in the metadata", "%.200q", metadata[name])
			continue
		}
		if d.Type == "Tensor" {
			if t, ok := byName[name]; ok && !used[name] {
				used[name], parts[name] = true, []string{name}
				weights = append(weights, t)
			} else {
				fault("its bytes, once", "none or a second description")
			}
			continue
		}
		w := weight{description: d, name: name, get: func(part string) (builder.Tensor, bool) {
			at := partName(name, part)
			t, ok := byName[at]
			if ok && !used[at] {
				used[at] = true
				parts[name] = append(parts[name], at)
			}
			return t, ok
		}}
		t, err := w.join()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: tensor %.200s: %w", file, name, err))
			continue
		}
		weights = append(weights, t)
	}
	for _, t := range list {
		if !used[t.Name] && len(errs) == 0 {
			errs = append(errs, fmt.Errorf("%s: tensor %s: expected a description in the metadata, found none", file,
				t.Name))
		}
	}
	return weights, parts, errors.Join(errs...)
}

// partName returns M._W_qdata for M.W.
func partName(name, part string) string {
	dot := strings.LastIndexByte(name, '.')
	return name[:dot+1] + "_" + name[dot+1:] + "_" + part
}

// weight is a weight that is being joined.
type weight struct {
	description
	name string
	get  func(part string) (builder.Tensor, bool)
}

// The bits of a code by subclass and dtype.
var targetBits = map[string]int{"int5": 5, "int6": 6, "int8": 8}

// join makes MLX's form.
func (w weight) join() (builder.Tensor, error) {
	none := builder.Tensor{}
	if slices.Contains(w.Tensors, "act_pre_scale") || w.Data.Activation != nil {
		return none, fmt.Errorf("expected weights without quantization of activations, found it")
	}
	codes, ok1 := w.get("qdata")
	scale, ok2 := w.get("scale")
	zero, ok3 := w.get("zero_point")
	if !ok1 || !ok2 || !ok3 || codes.Data == nil || scale.Data == nil || zero.Data == nil {
		return none, fmt.Errorf("expected the tensors qdata, scale and zero_point of a %s, found not all of them",
			w.Type)
	}
	if len(codes.Shape) != 2 || len(w.Data.BlockSize) != 2 || w.Data.BlockSize[0] != 1 {
		return none, fmt.Errorf("expected a matrix in groups of neighbours of a row, found the shape %v in "+
			"blocks of %v", codes.Shape, w.Data.BlockSize)
	}
	f, params, err := w.form(codes, scale.Shape)
	if err != nil {
		return none, err
	}
	rows, columns, group := f.rows, f.columns, w.Data.BlockSize[1]
	if group < 1 || columns%group != 0 || !slices.Equal(params, []int64{rows, columns / group}) ||
		!slices.Equal(zero.Shape, scale.Shape) {
		return none, fmt.Errorf("expected scales and zero points for [%d,%d] in groups of %d, found the "+
			"shapes %v and %v", rows, columns, group, scale.Shape, zero.Shape)
	}
	if scale.Data.DType() != ir.BF16 || zero.Data.DType() != ir.BF16 && zero.Data.DType() != ir.I8 {
		return none, fmt.Errorf("expected scales in BF16 and zero points in BF16 or I8, found %s and %s",
			scale.DType, zero.DType)
	}
	if f.group, f.stored = group, storedGroup(group); f.stored == 0 {
		return none, fmt.Errorf("expected groups of a multiple of 32, found %d", group)
	}
	return builder.Tensor{Name: w.name, DType: fmt.Sprintf("%d bits in groups of %d,", f.bits, group),
		Shape:     []int64{rows, columns},
		Quantized: f.quantized(codes.Data, scale.Data, zero.Data)}, nil
}

// form returns the form of the codes, without the group, and the shape of the scales, rows first.
func (w weight) form(codes builder.Tensor, params []int64) (f form, _ []int64, err error) {
	f.rows, f.columns = codes.Shape[0], codes.Shape[1]
	switch w.Type {
	case "Int4Tensor":
		f.bits, f.packed, f.transposed, f.columns = 4, true, true, 2*f.columns
		if codes.Data.DType() != ir.U8 {
			return f, nil, fmt.Errorf("expected codes in U8, found %s", codes.DType)
		}
		if len(params) == 2 {
			params = []int64{params[1], params[0]}
		}
	case "IntxUnpackedToInt8Tensor":
		if f.bits = targetBits[w.Data.Target.DType]; f.bits != 8 || codes.Data.DType() != ir.I8 {
			return f, nil, fmt.Errorf("expected int8 codes in I8, found %s in %s", w.Data.Target.DType, codes.DType)
		}
	default:
		return f, nil, fmt.Errorf("expected an Int4Tensor or an IntxUnpackedToInt8Tensor, as quantize_and_save "+
			"writes for MLX, found a %s", w.Type)
	}
	return f, params, nil
}

// storedGroup returns the largest group of MLX that divides a group.
func storedGroup(group int64) int64 {
	for _, g := range []int64{128, 64, 32} {
		if group%g == 0 {
			return g
		}
	}
	return 0
}
