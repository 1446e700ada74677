package ir

import "fmt"

// inferMetalKernel infers the type of metal_kernel. Their shapes stand one after the other in output_shapes_flat, cut
// by output_shape_lengths; their dtypes are in output_dtypes.
func inferMetalKernel(c *Inference) ([]Type, error) {
	a, inputs := Attrs[MetalKernelAttrs](c.Op), len(c.Op.Operand("inputs"))
	outputs := len(a.OutputDtypes)
	for _, list := range []struct {
		what        string
		found, want int
	}{
		{"input_names", len(a.InputNames), inputs},
		{"output_names", len(a.OutputNames), outputs},
		{"output_shape_lengths", len(a.OutputShapeLengths), outputs},
		{"grid", len(c.Op.Operand("grid")), 3},
		{"threadgroup", len(c.Op.Operand("threadgroup")), 3},
		{"template_arg_kinds", len(a.TemplateArgKinds), len(a.TemplateArgNames)},
		{"template_arg_values", len(a.TemplateArgValues), len(a.TemplateArgNames)},
	} {
		if list.found != list.want {
			return nil, fmt.Errorf("%s must have %d entries, found %d", list.what, list.want, list.found)
		}
	}
	if inputs == 0 || outputs == 0 {
		return nil, fmt.Errorf("needs at least one input and one output, found %d and %d", inputs, outputs)
	}
	flat, err := c.shapeOperand("output_shapes_flat")
	if err != nil {
		return nil, err
	}
	total := 0
	for i, n := range a.OutputShapeLengths {
		if n < 0 || n > len(flat)-total {
			return nil, fmt.Errorf("output_shape_lengths %v: number %d does not fit the %d dims of output_shapes_flat",
				a.OutputShapeLengths, i, len(flat))
		}
		total += n
	}
	if total != len(flat) {
		return nil, fmt.Errorf("output_shape_lengths %v must add up to the %d dims of output_shapes_flat",
			a.OutputShapeLengths, len(flat))
	}
	out := make([]Type, outputs)
	for i, d := range a.OutputDtypes {
		if err := checkDType("output_dtypes", d); err != nil {
			return nil, err
		}
		n := a.OutputShapeLengths[i]
		out[i], flat = TensorType(d, flat[:n:n]...), flat[n:]
	}
	return out, nil
}
