package quantize

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// goldens is a safetensors file of testdata.
type goldens map[string]golden

type golden struct {
	dtype string
	shape []int
	data  []byte
}

func readGoldens(t testing.TB, name string) goldens {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	size := binary.LittleEndian.Uint64(b)
	var header map[string]struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	require.NoError(t, json.Unmarshal(b[8:8+size], &header))
	out := goldens{}
	for key, h := range header {
		out[key] = golden{h.DType, h.Shape, b[8+size:][h.Offsets[0]:h.Offsets[1]]}
	}
	return out
}

var dtypes = map[string]Float{"BF16": BF16, "F16": F16, "F32": F32}

// floats returns a tensor of floats, widened to float32.
func (g goldens) floats(t testing.TB, key string) []float32 {
	t.Helper()
	require.Contains(t, g, key)
	f, ok := dtypes[g[key].dtype]
	require.True(t, ok, "%s holds %s", key, g[key].dtype)
	out := make([]float32, len(g[key].data)/f.Size())
	f.Decode(out, g[key].data)
	return out
}

func (g goldens) words(t testing.TB, key string) []uint32 {
	t.Helper()
	require.Contains(t, g, key)
	require.Equal(t, "U32", g[key].dtype, key)
	out := make([]uint32, len(g[key].data)/4)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(g[key].data[4*i:])
	}
	return out
}

// requireBits compares floats by their bits, so that -0 differs from 0.
func requireBits(t *testing.T, want, got []float32, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	for i := range want {
		require.Equalf(t, math.Float32bits(want[i]), math.Float32bits(got[i]), "%s[%d]: expected %g, found %g",
			what, i, want[i], got[i])
	}
}

func quantized(t *testing.T, w []float32, cols int, s Scheme) *Result {
	t.Helper()
	var r Result
	require.NoError(t, Quantize(&r, w, len(w)/cols, cols, s))
	return &r
}

// TestMinMaxEqualsMLX compares with mx.quantize of MLX itself, run on a CPU.
func TestMinMaxEqualsMLX(t *testing.T) {
	g := readGoldens(t, "mlx.safetensors")
	for _, params := range []Float{BF16, F16, F32} {
		w := g.floats(t, params.String()+"_w")
		for _, bits := range []int{4, 8} {
			for _, group := range []int{32, 64, 128} {
				key := fmt.Sprintf("%s_b%d_g%d", params, bits, group)
				t.Run(key, func(t *testing.T) {
					r := quantized(t, w, g[params.String()+"_w"].shape[1],
						Scheme{Method: MinMax, Bits: bits, GroupSize: group, Params: params})
					require.Equal(t, g.words(t, key+"_q"), r.Packed)
					requireBits(t, g.floats(t, key+"_scales"), r.Scales, "scales")
					requireBits(t, g.floats(t, key+"_biases"), r.Biases, "biases")
					require.False(t, r.Symmetric)
				})
			}
		}
	}
}

// TestDequantizeEqualsMLX compares with mx.dequantize in float32.
func TestDequantizeEqualsMLX(t *testing.T) {
	g := readGoldens(t, "mlx.safetensors")
	for _, bits := range []int{4, 8} {
		key := fmt.Sprintf("f32_b%d_g64", bits)
		want := g.floats(t, key+"_deq")
		r := Result{Rows: g["f32_w"].shape[0], Cols: g["f32_w"].shape[1], Bits: bits, GroupSize: 64, Params: F32,
			Packed: g.words(t, key+"_q"), Scales: g.floats(t, key+"_scales"), Biases: g.floats(t, key+"_biases")}
		got := make([]float32, len(want))
		require.NoError(t, r.Dequantize(got))
		requireBits(t, want, got, key)
	}
}

// TestTorchAO compares with torchao's results and with their MLX form by ExecuTorch's
// to_mlx_qparams and regroup_affine_scales. The matrix has rows of zeros, constants, outliers, tiny
// values, one sign, ramps, exact multiples and an all-zero group.
func TestTorchAO(t *testing.T) {
	g := readGoldens(t, "torchao.safetensors")
	for _, dtype := range []string{"bf16", "fp32"} {
		w, cols := g.floats(t, "W."+dtype), g["W."+dtype].shape[1]
		// torchao's hqq keeps the dtype of the weights for its scales.
		params := map[string]Float{"bf16": BF16, "fp32": F32}[dtype]
		for _, group := range []int{32, 64, 128} {
			tag := fmt.Sprintf("%s.g%d", dtype, group)
			t.Run("4w."+tag, func(t *testing.T) {
				r := quantized(t, w, cols, Scheme{Method: HQQ, Bits: 4, GroupSize: group, Params: params})
				require.Equal(t, g.words(t, "4w."+tag+".mlx_packed"), r.Packed)
				requireBits(t, g.floats(t, "4w."+tag+".scale"), r.Scales, "scales")
				requireBits(t, g.floats(t, "4w."+tag+".mlx_biases"), r.Biases, "biases")
				require.True(t, r.Symmetric)
			})
			t.Run("int4_hqqsym."+tag, func(t *testing.T) {
				r := quantized(t, w, cols, Scheme{Method: HQQ, Bits: 4, GroupSize: group, Params: BF16})
				packed := make([]byte, 0, 4*len(r.Packed))
				for _, word := range r.Packed {
					packed = binary.LittleEndian.AppendUint32(packed, word)
				}
				require.Equal(t, g["int4_hqqsym."+tag+".qdata_packed_u8"].data, packed)
				requireBits(t, transposed(g.floats(t, "int4_hqqsym."+tag+".scale_KgN"), r.Rows), r.Scales, "scales")
			})
			t.Run("int4_minmax."+tag, func(t *testing.T) {
				r := quantized(t, w, cols, Scheme{Method: TorchAOAsymmetric, Bits: 4, GroupSize: group})
				require.Equal(t, g.words(t, "int4_minmax."+tag+".mlx_packed"), r.Packed)
				requireBits(t, g.floats(t, "int4_minmax."+tag+".mlx_scales"), r.Scales, "scales")
				requireBits(t, g.floats(t, "int4_minmax."+tag+".mlx_biases"), r.Biases, "biases")
				require.False(t, r.Symmetric)

				zero := transposed(g.floats(t, "int4_minmax."+tag+".zero_point_KgN"), r.Rows)
				for i := range zero {
					zero[i] = Bias(r.Scales[i], zero[i]-8, 4, BF16)
				}
				requireBits(t, zero, r.Biases, "Bias of the zero point")
			})
		}
		t.Run("emb8w_peraxis."+dtype, func(t *testing.T) {
			r := quantized(t, w, cols, Scheme{Method: HQQ, Bits: 8, Params: params})
			requireMLXForm(t, g, "emb8w_peraxis."+dtype, r)
		})
		t.Run("int8_minmax_sym."+dtype, func(t *testing.T) {
			r := quantized(t, w, cols, Scheme{Method: TorchAOSymmetric, Bits: 8})
			requireMLXForm(t, g, "int8_minmax_sym."+dtype, r)
		})
	}
}

// requireMLXForm compares a per-row result that is stored in groups of 128.
func requireMLXForm(t *testing.T, g goldens, tag string, r *Result) {
	t.Helper()
	require.Equal(t, 128, r.GroupSize)
	require.Equal(t, g.words(t, tag+".mlx_packed"), r.Packed)
	requireBits(t, g.floats(t, tag+".mlx_scales"), r.Scales, "scales")
	requireBits(t, g.floats(t, tag+".mlx_biases"), r.Biases, "biases")
	require.True(t, r.Symmetric)
}

// transposed turns [cols, rows] into [rows, cols].
func transposed(x []float32, rows int) []float32 {
	out := make([]float32, len(x))
	cols := len(x) / rows
	for r := range rows {
		for c := range cols {
			out[r*cols+c] = x[c*rows+r]
		}
	}
	return out
}

// TestExporterFiles compares with tensors of .pte files that ExecuTorch's exporter wrote.
func TestExporterFiles(t *testing.T) {
	g := readGoldens(t, "exporter.safetensors")
	for _, c := range []struct {
		tag    string
		scheme Scheme
	}{
		{"hqq4.g32.bf16.out_proj", Scheme{Method: HQQ, Bits: 4, GroupSize: 32, Params: BF16}},
		{"hqq4.g64.bf16.out_proj", Scheme{Method: HQQ, Bits: 4, GroupSize: 64, Params: BF16}},
		{"hqq4.g32.f32.out_proj", Scheme{Method: HQQ, Bits: 4, GroupSize: 32, Params: F32}},
		{"asymmetric4.g64.bf16.out_proj", Scheme{Method: TorchAOAsymmetric, Bits: 4, GroupSize: 64}},
		{"symmetric8.row.bf16.embed", Scheme{Method: TorchAOSymmetric, Bits: 8}},
	} {
		t.Run(c.tag, func(t *testing.T) {
			weight := "w" + c.tag[strings.LastIndex(c.tag, "."):]
			r := quantized(t, g.floats(t, weight), g[weight].shape[1], c.scheme)
			require.Equal(t, g.words(t, c.tag+".packed"), r.Packed)
			requireBits(t, g.floats(t, c.tag+".scales"), r.Scales, "scales")
			if !r.Symmetric {
				requireBits(t, g.floats(t, c.tag+".biases"), r.Biases, "biases")
				return
			}
			for i, scale := range r.Scales {
				require.Equal(t, -scale*float32(int(1)<<(r.Bits-1)), r.Biases[i])
			}
		})
	}
}
