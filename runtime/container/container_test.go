package container

import (
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/schema"
	"github.com/etc-ml/etc/schema/mlxgraph"
	"github.com/etc-ml/etc/schema/program"
)

func TestOpenTestdata(t *testing.T) {
	for name, data := range testdata(t) {
		f, err := Open(filepath.Join("testdata", name))
		require.NoError(t, err)
		require.Equal(t, int64(len(data)), f.Size())
		require.Equal(t, filepath.Join("testdata", name), f.Name())
		require.NoError(t, readAll(f), name)
		require.NoError(t, f.Close())
		require.NoError(t, f.Close(), "a second Close does nothing")
	}
}

// TestExporterFiles holds the reader to the facts of two files of ExecuTorch's exporter, as flatc and its own
// inspector gave them.
func TestExporterFiles(t *testing.T) {
	type io struct {
		Type    program.ScalarType
		Sizes   []int
		Dynamic bool
		Planned bool
	}
	const long, float, bf16 = program.ScalarTypeLONG, program.ScalarTypeFLOAT, program.ScalarTypeBFLOAT16
	for name, want := range map[string]struct {
		programSize, segmentBase uint64
		segments                 int
		ints                     map[string]int64
		sampling                 bool
		io                       []io
		arena                    int64
		args                     []int
		payload                  int
		counts                   [6]uint32
		init                     int32
		chains, instructions     int
		constant                 Constant // number 5
	}{
		"qwen35moe-tiny-4w-g32-scan.noweights.pte": {17760, 17792, 117,
			map[string]int64{"get_max_seq_len": 256, "get_vocab_size": 256, "get_n_layers": 4, "get_max_prefill_chunk": 255}, false,
			[]io{{long, []int{1, 255}, true, false}, {long, []int{255}, true, false}, {bf16, []int{1, 256}, false, true}}, 512,
			[]int{0, 1, 2}, 47456, [6]uint32{142, 2, 1, 8, 23, 7}, 1, 20, 531,
			Constant{Name: "7015/layers.0.attn.norm.weight", ScalarType: bf16, Shape: []int{64}},
		},
		"gemma4-chat-int4-g64-sample.noweights.pte": {25240, 25344, 182,
			map[string]int64{"get_max_seq_len": 512, "get_vocab_size": 960, "get_n_layers": 6, "get_max_prefill_chunk": 256}, true,
			[]io{{long, []int{1, 256}, true, false}, {long, []int{256}, true, false}, {float, []int{}, false, false}, {long, []int{}, false, false},
				{float, []int{}, false, false}, {long, []int{}, false, false}, {long, []int{1}, false, true}}, 16,
			[]int{0, 1, 2, 3, 4, 5, 6}, 51344, [6]uint32{185, 6, 1, 12, 18, 9}, 1, 4, 410,
			Constant{Name: "4f09/model.layers.0.pre_feedforward_layernorm.weight", ScalarType: bf16, Shape: []int{128}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, testdata(t)[name])
			require.Equal(t, want.programSize, f.Header().ProgramSize)
			require.Equal(t, want.segmentBase, f.Header().SegmentBase)
			require.Len(t, f.Segments(), want.segments)
			for method, n := range want.ints {
				got, ok, err := f.ConstantInt(method)
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, n, got, method)
			}
			for method, b := range map[string]bool{"use_kv_cache": true, "use_sdpa_with_kv_cache": false, "enable_dynamic_shape": true, "use_sampling": want.sampling} {
				got, ok, err := f.ConstantBool(method)
				require.NoError(t, err)
				require.True(t, ok)
				require.Equal(t, b, got, method)
			}
			m, ok := f.Method("forward")
			require.True(t, ok)
			var got []io
			for _, i := range append(m.Inputs, m.Outputs...) {
				v := m.Values[i].Tensor
				got = append(got, io{v.ScalarType, v.Sizes, v.Dynamic, v.Planned})
			}
			require.Empty(t, cmp.Diff(want.io, got))
			require.Equal(t, []int64{0, want.arena}, m.Arenas)
			require.Equal(t, []DelegateCall{{0, want.args}}, m.Calls)
			require.Empty(t, m.Others)
			require.Equal(t, MLXBackend, m.Delegates[0].ID)
			require.Len(t, m.Delegates[0].Payload, want.payload)
			require.Equal(t, int64(want.segmentBase), m.Delegates[0].Offset)

			mlx, err := f.MLX(m, 0)
			require.NoError(t, err)
			g := mlx.Graph
			require.Equal(t, want.counts, [6]uint32{g.NumConstantTensors, g.NumInputTensors, g.NumOutputTensors, g.NumMutableBufferTensors, g.NumTempTensors, g.NumValues})
			require.Equal(t, want.init, g.InitChainIdx)
			require.Len(t, g.InstructionChains, want.chains)
			instructions := 0
			for _, c := range g.InstructionChains {
				instructions += len(c.Instructions)
			}
			require.Equal(t, want.instructions, instructions)
			require.Len(t, mlx.Constants, int(want.counts[0]))
			constant := mlx.Constants[5]
			require.Len(t, constant.Data, 2*constant.Shape[0])
			constant.Data = nil
			require.Equal(t, want.constant, constant)
			require.Equal(t, want.args, append(mlx.Inputs, mlx.Outputs...))
		})
	}
}

func TestBuiltFile(t *testing.T) {
	b := newTestFile()
	b.weight[0] = 42
	f := open(t, b.bytes(t))
	m, _ := f.Method("forward")
	mlx, err := f.MLX(m, 0)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(b.graph, mlx.Graph))
	require.Equal(t, []int{0, 1}, mlx.Inputs)
	require.Equal(t, []int{2, 3}, mlx.Outputs)
	require.Equal(t, []Constant{{Name: "w", ScalarType: program.ScalarTypeFLOAT, Shape: []int{2, 3}, Data: b.weight}}, mlx.Constants)
	require.Equal(t, int64(7), m.Values[m.Inputs[1]].Int)

	data, ok := f.Lookup("w")
	require.True(t, ok, "of equal keys the first counts")
	require.Equal(t, b.weight, data)
	_, ok = f.Lookup("metadata.y")
	require.False(t, ok)
	_, ok = f.Method("backward")
	require.False(t, ok)
	_, err = f.MLX(m, 1)
	require.ErrorContains(t, err, "there is no call 1")
}

func TestConstants(t *testing.T) {
	b := newTestFile()
	data := binary.LittleEndian.AppendUint32(nil, 1<<31) // an INT of -2³¹, then two LONGs
	data = binary.LittleEndian.AppendUint64(append(data, 0, 0, 0, 0), 1<<40)
	data = binary.LittleEndian.AppendUint64(data, 2)
	b.weight = append(b.weight, data...)
	b.program.ConstantSegment = &program.SubsegmentOffsetsT{SegmentIndex: 2, Offsets: []uint64{0, 24, 32}}
	constant := func(t program.ScalarType, index uint32, size int32) *program.EValueT {
		v := tensor(t, size)
		v.Val.Value.(*program.TensorT).DataBufferIdx = index
		return v
	}
	b.program.ExecutionPlan = append(b.program.ExecutionPlan,
		constantMethod("ints", val(program.KernelTypesInt, &program.IntT{IntVal: 3}), val(program.KernelTypesIntList, &program.IntListT{Items: []int64{0, 0}}),
			constant(program.ScalarTypeLONG, 2, 2), constant(program.ScalarTypeINT, 1, 1)),
		constantMethod("floats", constant(program.ScalarTypeFLOAT, 1, 1)),
		constantMethod("empty"),
	)
	b.program.ExecutionPlan[len(b.program.ExecutionPlan)-3].Outputs = []int32{3, 2, 1, 0}
	b.program.NamedData = nil
	b.graph.NumConstantTensors, b.graph.NumTempTensors = 0, 2
	b.graph.NamedSlots = nil
	b.graph.TensorMeta = nil
	b.graph.NumInputTensors, b.graph.NumOutputTensors, b.graph.NumMutableBufferTensors, b.graph.MutableBufferMap = 0, 0, 0, nil
	b.graph.NumTempTensors = 5
	f := open(t, b.bytes(t))

	ints, ok, err := f.ConstantInts("ints")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []int64{-1 << 31, 1 << 40, 2, 3, 3, 3}, ints)
	ints, _, err = f.ConstantInts("get_eos_ids")
	require.NoError(t, err)
	require.Equal(t, []int64{6, 5}, ints)
	n, ok, err := f.ConstantInt("get_max_seq_len")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, int64(64), n)
	sampling, ok, err := f.ConstantBool("use_sampling")
	require.NoError(t, err)
	require.True(t, ok && sampling)
	values, _, err := f.Constant("get_rate")
	require.NoError(t, err)
	require.Equal(t, []Value{{Kind: program.KernelTypesString, String: "s"}, {Kind: program.KernelTypesDouble, Double: 0.5}}, values)

	// Absent is no error, anything else that keeps the answer away is one.
	_, ok, err = f.ConstantBool("get_bos_id")
	require.NoError(t, err)
	require.False(t, ok)
	for name, read := range map[string]func() error{
		"method forward: it has 2 inputs and 1 instructions, expected a constant": func() error { _, _, err := f.ConstantBool("forward"); return err },
		"method get_max_seq_len: a value of type Int, expected a bool":            func() error { _, _, err := f.ConstantBool("get_max_seq_len"); return err },
		"method get_eos_ids: 2 outputs, expected one bool":                        func() error { _, _, err := f.ConstantBool("get_eos_ids"); return err },
		"method get_eos_ids: 2 integers, expected one":                            func() error { _, _, err := f.ConstantInt("get_eos_ids"); return err },
		"method empty: 0 integers, expected one":                                  func() error { _, _, err := f.ConstantInt("empty"); return err },
		"method use_sampling, output 0: a value of type Bool, expected integers":  func() error { _, _, err := f.ConstantInts("use_sampling"); return err },
		"method floats, output 0: a tensor FLOAT[1], expected integers":           func() error { _, _, err := f.ConstantInts("floats"); return err },
	} {
		err := read()
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorContains(t, err, name)
	}
}

// TestTensorData: the places that a tensor's initial data may be in besides the segment of constants.
func TestTensorData(t *testing.T) {
	build := func(change func(b *testFile, x *program.TensorT)) ([]byte, error) {
		b := newTestFile()
		v := tensor(program.ScalarTypeSHORT, 2, 2)
		b.program.ExecutionPlan = append(b.program.ExecutionPlan, constantMethod("c", v))
		b.weight[8], b.weight[15] = 1, 2
		change(b, v.Val.Value.(*program.TensorT))
		f, err := OpenBytes("test.pte", b.bytes(t))
		if err != nil {
			return nil, err
		}
		m, _ := f.Method("c")
		return m.Values[0].Tensor.Data, nil
	}
	want := []byte{1, 0, 0, 0, 0, 0, 0, 2}
	mutable := func(b *testFile, x *program.TensorT) {
		x.DataBufferIdx, x.AllocationInfo = 1, &program.AllocationDetailsT{MemoryId: 1}
		x.ExtraTensorInfo = &program.ExtraTensorInfoT{MutableDataSegmentsIdx: 1}
		b.program.MutableDataSegments = []*program.SubsegmentOffsetsT{{}, {SegmentIndex: 2, Offsets: []uint64{0, 8}}}
	}
	got, err := build(mutable)
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = build(func(b *testFile, x *program.TensorT) {
		x.DataBufferIdx = 1
		b.program.ConstantSegment = &program.SubsegmentOffsetsT{SegmentIndex: 2, Offsets: []uint64{0, 8}}
	})
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = build(func(b *testFile, x *program.TensorT) {})
	require.NoError(t, err)
	require.Nil(t, got)

	for problem, change := range map[string]func(b *testFile, x *program.TensorT){
		"entry 1 of the 1 constants in segment 0 of 3": func(b *testFile, x *program.TensorT) { x.DataBufferIdx = 1 },
		"the program has none":                         func(b *testFile, x *program.TensorT) { x.DataBufferIdx, b.program.ConstantSegment = 1, nil },
		"8 bytes at 17 of segment 2, which has 24": func(b *testFile, x *program.TensorT) {
			x.DataBufferIdx, b.program.ConstantSegment = 1, &program.SubsegmentOffsetsT{SegmentIndex: 2, Offsets: []uint64{0, 17}}
		},
		"8 bytes at 18446744073709551615 of segment 2": func(b *testFile, x *program.TensorT) {
			x.DataBufferIdx, b.program.ConstantSegment = 1, &program.SubsegmentOffsetsT{SegmentIndex: 2, Offsets: []uint64{0, 1<<64 - 1}}
		},
		"in segment 3 of 3": func(b *testFile, x *program.TensorT) {
			x.DataBufferIdx, b.program.ConstantSegment = 1, &program.SubsegmentOffsetsT{SegmentIndex: 3, Offsets: []uint64{0, 8}}
		},
		"entry 2 of mutable_data_segments, the program has 2": func(b *testFile, x *program.TensorT) { mutable(b, x); x.ExtraTensorInfo.MutableDataSegmentsIdx = 2 },
		"data in another file, but no name of it": func(b *testFile, x *program.TensorT) {
			x.ExtraTensorInfo = &program.ExtraTensorInfoT{Location: program.TensorDataLocationEXTERNAL}
		},
	} {
		_, err := build(change)
		require.ErrorIs(t, err, ErrInvalid, problem)
		require.ErrorContains(t, err, problem)
	}
}

func TestInlinePayload(t *testing.T) {
	b := newTestFile()
	b.graph.NumConstantTensors, b.graph.NumTempTensors = 0, 2
	b.graph.NamedSlots = nil
	for _, s := range append(append(b.graph.InputMap[:1:1], b.graph.OutputMap[0]), b.graph.MutableBufferMap...) {
		s.Idx-- // no constant any more
	}
	b.graph.TensorMeta = b.graph.TensorMeta[1:]
	graph, err := schema.Marshal(schema.MLXGraph(), b.graph)
	require.NoError(t, err)
	payload := schema.MLXPayload(graph)
	plan := b.program.ExecutionPlan[0]
	plan.Delegates[0].Processed = &program.BackendDelegateDataReferenceT{Location: program.DataLocationINLINE}
	data, err := schema.Marshal(schema.Program(), handProgram{Plan: plan, Payload: payload})
	require.NoError(t, err)

	f := open(t, data)
	require.Nil(t, f.Header(), "a program without segments needs no extended header")
	m, _ := f.Method("forward")
	d := m.Delegates[0]
	require.True(t, d.Inline)
	require.Equal(t, payload, d.Payload)
	require.Equal(t, payload, data[d.Offset:][:len(payload)])
	require.Zero(t, d.Offset%16)
	mlx, err := f.MLX(m, 0)
	require.NoError(t, err)
	require.Len(t, mlx.Graph.InstructionChains, 3)
	require.IsType(t, &mlxgraph.AddNodeT{}, mlx.Graph.InstructionChains[0].Instructions[0].Op.Value)
}

// TestOldConstantBuffer reads constants from the program, where old exporters put them.
func TestOldConstantBuffer(t *testing.T) {
	v := tensor(program.ScalarTypeINT, 2)
	x := v.Val.Value.(*program.TensorT)
	x.DataBufferIdx = 1
	p := handProgram{Plan: constantMethod("heads", v), Constants: [][]byte{nil, {4, 0, 0, 0, 8, 0, 0, 0}}}
	marshal := func() []byte {
		data, err := schema.Marshal(schema.Program(), p)
		require.NoError(t, err)
		return data
	}
	ints, ok, err := open(t, marshal()).ConstantInts("heads")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, []int64{4, 8}, ints)

	x.Sizes[0] = 3
	_, err = OpenBytes("test.pte", marshal())
	require.ErrorContains(t, err, "constant_buffer[1] has 8 bytes, the tensor needs 12")
	x.DataBufferIdx = 2
	_, err = OpenBytes("test.pte", marshal())
	require.ErrorContains(t, err, "entry 2 of constant_buffer, the program has 2")
}

func TestOpenSystemErrors(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), "none.pte"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NotErrorIs(t, err, ErrInvalid)
	_, err = Open(t.TempDir())
	require.ErrorContains(t, err, "is a directory")

	short := filepath.Join(t.TempDir(), "short.pte")
	require.NoError(t, os.WriteFile(short, []byte("ET12"), 0o644))
	_, err = Open(short)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "short.pte: 4 bytes, a .pte file has at least 64")
}
