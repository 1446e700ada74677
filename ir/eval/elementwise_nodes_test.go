package eval

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// nodeCase is a program of a few nodes that ran on real MLX under ExecuTorch's runtime: the nodes with
// the field names of the delegate's schema, inputs and outputs. The wire's slots are numbered: inputs,
// outputs, mutable buffers, temporaries.
type nodeCase struct {
	Name  string
	Error string // what the runtime said where it failed
	Chain []struct {
		Node   string
		Fields map[string]json.RawMessage
	}
	Inputs     []recorded
	InputSlots []int `json:"input_slots"`
	Buffers    []recorded
	Outputs    []recorded
}

type recorded struct {
	DType string
	Shape []int
	Bytes string
	Slot  int
	Int   *int64
}

func (r *recorded) tensor(t *testing.T) *Tensor {
	d, err := ir.ParseDType(r.DType)
	require.NoError(t, err)
	p, err := hex.DecodeString(r.Bytes)
	require.NoError(t, err)
	if r.Bytes == "" {
		x, err := NewTensor(d, r.Shape...)
		require.NoError(t, err)
		return x
	}
	x, err := Decode(d, r.Shape, p)
	require.NoError(t, err)
	return x
}

// slot is any of the schema's references: a slot or register number, or a literal.
type slot struct {
	Idx     int
	Literal json.Number
	IsVid   bool `json:"is_vid"`
	Kind    int
	Vid     *slot
	Tid     *slot
}

// nodeRun executes a chain on slots and registers.
type nodeRun struct {
	t         *testing.T
	precision Precision
	tensors   map[int]*Tensor
	registers map[int]int64
}

func (r *nodeRun) argument(kind ir.OperandKind, s slot) (ir.Arg, Value) {
	switch {
	case kind == ir.TensorOperand || kind == ir.TensorsOperand:
		s.Tid = &slot{Idx: s.Idx}
	case kind == ir.IntValueOperand:
		s.Vid = &slot{Idx: s.Idx}
	case s.Kind == 2:
	case s.IsVid || s.Kind == 1:
		s.Tid = nil
	default:
		if kind == ir.FloatOperand {
			f, err := s.Literal.Float64()
			require.NoError(r.t, err)
			return ir.Float(f), Value{}
		}
		i, err := s.Literal.Int64()
		require.NoError(r.t, err)
		return ir.Int(i), Value{Int: i}
	}
	if s.Tid != nil {
		x := r.tensors[s.Tid.Idx]
		require.NotNil(r.t, x, "slot %d is not set", s.Tid.Idx)
		return ir.Use(&ir.Value{Type: staticType(x)}), Value{Tensor: x}
	}
	v := r.registers[s.Vid.Idx]
	return ir.Use(&ir.Value{Type: ir.IntType(ir.Const(v))}), Value{Int: v}
}

func staticType(x *Tensor) ir.Type {
	dims := make([]int64, len(x.Shape))
	for i, d := range x.Shape {
		dims[i] = int64(d)
	}
	return ir.StaticType(x.DType, dims...)
}

var wordStart = regexp.MustCompile("([a-z0-9])([A-Z])")

// step executes one node and stores its results.
func (r *nodeRun) step(node string, fields map[string]json.RawMessage) error {
	def := ir.OpOfNode(node)
	require.NotNil(r.t, def, node)
	c := &Call{Op: &ir.Op{Def: def, Attrs: def.NewAttrs(), Args: make([][]ir.Arg, len(def.Operands))},
		Precision: r.precision, Args: make([][]Value, len(def.Operands))}
	for i, o := range def.Operands {
		raw, ok := fields[o.Name]
		if !ok {
			continue
		}
		if !o.Kind.IsList() {
			raw = json.RawMessage("[" + string(raw) + "]")
		}
		var slots []slot
		require.NoError(r.t, json.Unmarshal(raw, &slots), o.Name)
		for _, s := range slots {
			arg, value := r.argument(o.Kind, s)
			c.Op.Args[i], c.Args[i] = append(c.Op.Args[i], arg), append(c.Args[i], value)
		}
	}
	if c.Op.Attrs != nil {
		a := reflect.ValueOf(c.Op.Attrs).Elem()
		for i := range a.NumField() {
			name := strings.ToLower(wordStart.ReplaceAllString(a.Type().Field(i).Name, "${1}_$2"))
			if raw, ok := fields[name]; ok {
				require.NoError(r.t, json.Unmarshal(raw, a.Field(i).Addr().Interface()), name)
			}
		}
	}
	if err := ir.Infer(c.Op); err != nil {
		return err
	}
	results, err := Run(c)
	if err != nil {
		return err
	}
	var outs []slot
	if raw, ok := fields["outs"]; ok {
		require.NoError(r.t, json.Unmarshal(raw, &outs))
	} else if raw, ok := fields["out"]; ok {
		outs = make([]slot, 1)
		require.NoError(r.t, json.Unmarshal(raw, &outs[0]))
	}
	require.Len(r.t, results, len(outs))
	for i, v := range results {
		if v.Tensor == nil {
			r.registers[outs[i].Idx] = v.Int
			continue
		}
		r.tensors[outs[i].Idx] = v.Tensor
		checkResult(r.t, c.Op.Results[i].Type, v.Tensor)
	}
	return nil
}

// checkResult checks a result against the type that the type rule derived.
func checkResult(t *testing.T, want ir.Type, got *Tensor) {
	t.Helper()
	require.Equal(t, want.DType, got.DType)
	n, err := elements(got.Shape)
	require.NoError(t, err)
	require.Equal(t, n, got.Len(), "%v", got.Shape)
	dims, ok := want.Static()
	require.True(t, ok, want.String())
	require.Equal(t, fmt.Sprint(dims), fmt.Sprint(got.Shape))
}

// The nodes agree with real MLX in every precision: integers exactly, f32 to 2e-5, bf16 and f16 to 2^-7,
// both relative to 1 at least.
func TestNodesAgreeWithMLX(t *testing.T) {
	p, err := os.ReadFile("testdata/mlx_nodes.json")
	require.NoError(t, err)
	var cases []nodeCase
	require.NoError(t, json.Unmarshal(p, &cases))
	require.NotEmpty(t, cases)
	for _, k := range cases {
		t.Run(k.Name, func(t *testing.T) {
			for _, precision := range []Precision{FP32, Mixed, Strict} {
				r := &nodeRun{t: t, precision: precision, tensors: map[int]*Tensor{}, registers: map[int]int64{}}
				for i := range k.Inputs {
					r.tensors[k.InputSlots[i]] = k.Inputs[i].tensor(t)
				}
				for i := range k.Buffers {
					r.tensors[k.Buffers[i].Slot] = k.Buffers[i].tensor(t)
				}
				err := error(nil)
				for _, n := range k.Chain {
					if err = r.step(n.Node, n.Fields); err != nil {
						break
					}
				}
				if k.Error != "" {
					require.Error(t, err, "MLX: %s", k.Error)
					return
				}
				require.NoError(t, err)
				for _, want := range k.Outputs {
					if want.Int != nil {
						require.Equal(t, *want.Int, r.registers[want.Slot])
						continue
					}
					w := want.tensor(t)
					got := convert(r.tensors[want.Slot], w.DType, Strict)
					require.Equal(t, fmt.Sprint(w.Shape), fmt.Sprint(got.Shape))
					requireClose(t, w, got)
				}
			}
		})
	}
}

// requireClose compares tensors of one dtype with the tolerance of the goldens.
func requireClose(t *testing.T, want, got *Tensor) {
	t.Helper()
	require.Equal(t, want.DType, got.DType)
	require.Equal(t, want.I, got.I)
	tolerance := 2e-5
	if want.DType.Size() == 2 {
		tolerance = 1.0 / 128
	}
	require.Len(t, got.F, len(want.F))
	for i, w := range want.F {
		g := got.F[i]
		if w != w || math.IsInf(float64(w), 0) {
			require.True(t, w == g || w != w && g != g, "element %d: %v, want %v", i, g, w)
			continue
		}
		difference := math.Abs(float64(g) - float64(w))
		require.LessOrEqual(t, difference, tolerance*max(1, math.Abs(float64(w))), "element %d: %v, want %v", i, g, w)
	}
}

// Every operation of the op table that is not a composite, control flow or buffer access has a kernel, or an expansion
// into operations that have.
func TestKernelsAreComplete(t *testing.T) {
	others := strings.Fields(`addmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
		rms_norm layer_norm rope sdpa dequantize quantized_matmul gather_mm gather_qmm metal_kernel update_and_attend
		scan if quantized load store buffer_slice_update buffer_index_copy undef linear embedding top_k switch_mlp switch_geglu
		gated_delta_rule sample buffer_ring_update buffer_conv buffer_delta_rule block_write slot_conv slot_delta_rule unit_copy`)
	skip := map[string]bool{}
	for _, name := range others {
		require.NotNil(t, ir.LookupOp(name), name)
		skip[name] = true
	}
	for _, d := range ir.Ops {
		if !skip[d.Name] && d.Expand == nil { // what it expands to has kernels
			require.NotNil(t, kernels[d.Name], d.Name)
		}
	}
}
