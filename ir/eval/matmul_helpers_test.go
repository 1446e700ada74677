package eval

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
)

// answers reads recorded arguments and results, a safetensors file in testdata, by name.
func answers(t *testing.T, name string) map[string]*Tensor {
	t.Helper()
	p, err := os.ReadFile(filepath.Join("testdata", name+".safetensors"))
	require.NoError(t, err)
	n := binary.LittleEndian.Uint64(p)
	var header map[string]struct {
		DType   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	require.NoError(t, json.Unmarshal(p[8:8+n], &header))
	dtypes := map[string]ir.DType{"F32": ir.F32, "BF16": ir.BF16, "F16": ir.F16, "U32": ir.U32, "I32": ir.I32,
		"I64": ir.I64, "U8": ir.U8, "BOOL": ir.Bool}
	out := map[string]*Tensor{}
	for key, h := range header {
		d, ok := dtypes[h.DType]
		require.True(t, ok, "%s: %s", key, h.DType)
		out[key], err = Decode(d, h.Shape, p[8+n:][h.Offsets[0]:h.Offsets[1]])
		require.NoError(t, err, key)
	}
	return out
}

// newCall makes a call of an op with tensors, quantized weights, ints, int lists, tensor lists, or nil
// for absent operands, and infers its result types.
func newCall(op string, attrs any, p Precision, operands ...any) (*Call, error) {
	def := ir.LookupOp(op)
	if attrs == nil {
		attrs = def.NewAttrs()
	}
	c := &Call{Op: &ir.Op{Def: def, Attrs: attrs, Args: make([][]ir.Arg, len(def.Operands))}, Precision: p,
		Args: make([][]Value, len(def.Operands))}
	add := func(i int, a ir.Arg, v Value) {
		c.Op.Args[i], c.Args[i] = append(c.Op.Args[i], a), append(c.Args[i], v)
	}
	var one func(i int, o any)
	one = func(i int, o any) {
		switch o := o.(type) {
		case nil:
		case []any:
			for _, x := range o {
				one(i, x)
			}
		case *Tensor:
			if o != nil {
				add(i, ir.Use(&ir.Value{Type: typeOf(o)}), Value{Tensor: o})
			}
		case []*Tensor:
			for _, x := range o {
				add(i, ir.Use(&ir.Value{Type: typeOf(x)}), Value{Tensor: x})
			}
		case *Quantized:
			dims := append(append([]int{}, o.Scales.Shape[:len(o.Scales.Shape)-1]...),
				o.Scales.Shape[len(o.Scales.Shape)-1]*o.Group)
			w := ir.StaticType(o.Scales.DType, int64s(dims...)...)
			w.Kind, w.WeightForm = ir.QuantizedKind, o.WeightForm
			add(i, ir.Use(&ir.Value{Type: w}), Value{Quantized: o})
		case int:
			add(i, ir.Use(&ir.Value{Type: ir.IntType(ir.Const(int64(o)))}), Value{Int: int64(o)})
		case []int:
			for _, x := range o {
				add(i, ir.Use(&ir.Value{Type: ir.IntType(ir.Const(int64(x)))}), Value{Int: int64(x)})
			}
		default:
			panic(o)
		}
	}
	for i, o := range operands {
		one(i, o)
	}
	return c, ir.Infer(c.Op)
}

func typeOf(x *Tensor) ir.Type { return ir.StaticType(x.DType, int64s(x.Shape...)...) }

// run computes an op and checks that dtypes and shapes of the results are those of its type rule.
func run(t *testing.T, op string, attrs any, p Precision, operands ...any) []*Tensor {
	t.Helper()
	c, err := newCall(op, attrs, p, operands...)
	require.NoError(t, err)
	values, err := Run(c)
	require.NoError(t, err)
	require.Len(t, values, len(c.Op.Results))
	out := make([]*Tensor, len(values))
	for i, v := range values {
		out[i] = v.Tensor
		require.Equal(t, c.Result(i).String(), typeOf(v.Tensor).String())
	}
	return out
}

// requireError runs an op whose arguments the type rule or the kernel must refuse.
func requireError(t *testing.T, want, op string, attrs any, operands ...any) {
	t.Helper()
	c, err := newCall(op, attrs, FP32, operands...)
	if err == nil {
		_, err = Run(c)
	}
	require.ErrorContains(t, err, want)
}

// tolerance is how far results of the reference engine may be from those of MLX, relative to max(1, |b|).
var tolerance = map[ir.DType]float64{ir.F32: 2e-5, ir.BF16: 1.0 / 128, ir.F16: 1.0 / 1024}

// requireNear compares floats within the tolerance of their dtype, integers exactly.
func requireNear(t *testing.T, want, got *Tensor) {
	t.Helper()
	requireWithin(t, want, got, tolerance[want.DType])
}

func requireWithin(t *testing.T, want, got *Tensor, tolerance float64) {
	t.Helper()
	require.Equal(t, want.DType, got.DType)
	require.Equal(t, want.Shape, got.Shape)
	require.Equal(t, want.I, got.I)
	for i, w := range want.F {
		g := float64(got.F[i])
		if w != w {
			require.True(t, g != g, "element %d is %g, want NaN", i, g)
			continue
		}
		require.InDelta(t, w, g, tolerance*max(1, float64(w), float64(-w)), "element %d of %v", i, want.Shape)
	}
}

// floats makes an f32 tensor of small values that differ from element to element.
func floats(shape ...int) *Tensor {
	n, _ := elements(shape)
	v := make([]float32, n)
	for i := range v {
		v[i] = float32((i*7919+13)%101-50) / 32
	}
	return Floats(ir.F32, shape, v)
}
