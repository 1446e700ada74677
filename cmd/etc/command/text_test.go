package command

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/schema"
	wire "github.com/etc-ml/etc/schema/program"
)

// Stop tokens of programs from elsewhere: constant methods give them as Ints, as a list or as a tensor.
func TestStopTokensOfAProgram(t *testing.T) {
	value := func(kind wire.KernelTypes, v any) *wire.EValueT {
		return &wire.EValueT{Val: &wire.KernelTypesT{Type: kind, Value: v}}
	}
	integer := func(v int64) *wire.EValueT { return value(wire.KernelTypesInt, &wire.IntT{IntVal: v}) }
	tensor := func(dtype wire.ScalarType, size int32) *wire.EValueT {
		return value(wire.KernelTypesTensor,
			&wire.TensorT{ScalarType: dtype, Sizes: []int32{size}, DimOrder: []byte{0}, DataBufferIdx: 1})
	}
	method := func(name string, outputs []int32, values ...*wire.EValueT) *wire.ExecutionPlanT {
		return &wire.ExecutionPlanT{Name: name, Values: values, Outputs: outputs, Chains: []*wire.ChainT{{}},
			NonConstBufferSizes: []int64{0}}
	}
	data := []byte{7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0}
	list := value(wire.KernelTypesIntList, &wire.IntListT{Items: []int64{1, 0}})
	for _, test := range []struct {
		name  string
		plans []*wire.ExecutionPlanT
		want  []int
		wrong string
	}{
		{"none", []*wire.ExecutionPlanT{method("get_bos_id", []int32{0}, integer(9))}, nil, ""},
		{"ints", []*wire.ExecutionPlanT{method(prompt.StopMethod, []int32{0, 1}, integer(7), integer(9))}, []int{7, 9},
			""},
		{"a list", []*wire.ExecutionPlanT{method(prompt.StopMethod, []int32{2}, integer(9), integer(7), list)},
			[]int{7, 9}, ""},
		{"a tensor of int64", []*wire.ExecutionPlanT{method(prompt.StopMethod, []int32{0},
			tensor(wire.ScalarTypeLONG, 2))}, []int{7, 9}, ""},
		{"a tensor of int32", []*wire.ExecutionPlanT{method("get_eos_id", []int32{0}, tensor(wire.ScalarTypeINT, 1))},
			[]int{7}, ""},
		{"both methods", []*wire.ExecutionPlanT{method("get_eos_id", []int32{0}, integer(9)),
			method(prompt.StopMethod, []int32{0}, tensor(wire.ScalarTypeLONG, 2))}, []int{7, 9}, ""},
		{"no integers", []*wire.ExecutionPlanT{method(prompt.StopMethod, []int32{0},
			value(wire.KernelTypesString, &wire.StringT{StringVal: "</s>"}))}, nil,
			"stop.pte: method get_eos_ids, output 0: a value of type String, expected integers"},
	} {
		t.Run(test.name, func(t *testing.T) {
			head, err := schema.Marshal(schema.Program(), &wire.ProgramT{ExecutionPlan: test.plans,
				Segments:        []*wire.DataSegmentT{{Size: uint64(len(data))}},
				ConstantSegment: &wire.SubsegmentOffsetsT{Offsets: []uint64{0, 0}}})
			require.NoError(t, err)
			file, header := schema.WithExtendedHeader(head, uint64(len(data)),
				func(n uint64) uint64 { return (n + 15) &^ 15 })
			file = append(append(file, make([]byte, header.SegmentBase-header.ProgramSize)...), data...)
			f, err := container.OpenBytes("stop.pte", file)
			require.NoError(t, err)
			p, err := program.New(f)
			require.NoError(t, err)
			text, err := openText(p, "", true)
			if test.wrong != "" {
				require.EqualError(t, err, test.wrong)
				require.Equal(t, exitInvalid, exitCode(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, text.Stop)
		})
	}
}
