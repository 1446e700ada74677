package passes

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes/quantize"
)

// parts returns the packed codes, the scales and, where there are some, the biases of a weight.
func (q *weightQuantizer) parts(c *ir.Constant, s quantize.Scheme, report *Weight) (out []ir.Data, err error) {
	if s.Method.Calibrated() {
		shape := c.Data.Shape()
		report.GroupSize = s.StoredGroupSize(int(shape[len(shape)-1]))
		if q.calibration != nil {
			if x, ok := q.calibration.Calibrated(c.Name, s); ok {
				report.calibrated = &x
				return []ir.Data{x.Packed, x.Scales, x.Biases}, nil
			}
		}
		return out, &SchemeError{c.Name, shape,
			fmt.Errorf("method %s needs calibration, which has not quantized this weight", s.Method)}
	}
	computed, err := newQuantization(c.Name, c.Data, s)
	if err != nil {
		return out, err
	}
	report.GroupSize, report.computed = computed.storedGroup(), computed
	for i := range computed.outputs() {
		out = append(out, computed.output(i))
	}
	return out, nil
}
