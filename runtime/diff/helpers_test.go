package diff_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/diff"
	"github.com/etc-ml/etc/runtime/program"
)

// model is a program with a dense and a quantized weight, state and branches.
const model = `module {
  symbol s0 [1, 8]
  symbol s1 [1, 8]
  symbol s2 [-2147483648, 2147483647]
  constant @embed.weight : f32[6,32]
  constant @head.weight.packed : u32[6,4]
  constant @head.weight.scales : f32[6,1]
  constant @head.weight.biases : f32[6,1]
  buffer @count : f32[1]
  method get_max_seq_len = [8]
  method get_vocab_size = [6]
  method rope_theta = [10000.0]
  entry forward(%tokens: i64[1,s0], %input_pos: i64[s1]) {
    %0 = take(x=@embed.weight, index=%tokens) : f32[1,s0,32]
    %1 = exp(x=%0) : f32[1,s0,32]
    %2 = tanh(x=%0) : f32[1,s0,32]
    %3 = add(a=%1, b=%2) : f32[1,s0,32]
    %4 = take(x=%input_pos, index=0) : i64[]
    %5 = item_int(x=%4) : int(s2)
    %6 = if(cond=%5) : f32[1,s0,32] {
      %7 = sin(x=%3) : f32[1,s0,32]
      yield %7
    } else {
      %8 = cos(x=%3) : f32[1,s0,32]
      yield %8
    }
    %9 = load @count() : f32[1]
    %10 = multiply(a=%6, b=%9) : f32[1,s0,32]
    %11 = quantized_matmul(x=%10, w=@head.weight.packed, scales=@head.weight.scales, biases=@head.weight.biases) {group_size=32, bits=4, mode="affine"} : f32[1,s0,6]
    return %11: f32[1,s0,6]
  }
}
`

// dense is model with a head that is not quantized.
var dense = edit(model,
	"  constant @head.weight.packed : u32[6,4]\n  constant @head.weight.scales : f32[6,1]\n  constant @head.weight.biases : f32[6,1]\n", "  constant @head.weight : f32[6,32]\n",
	"    %11 = quantized_matmul(x=%10, w=@head.weight.packed, scales=@head.weight.scales, biases=@head.weight.biases) {group_size=32, bits=4, mode=\"affine\"} : f32[1,s0,6]\n    return %11",
	"    %11 = transpose(x=@head.weight) {perm=[1, 0]} : f32[32,6]\n    %12 = addmm(mat1=%10, mat2=%11) : f32[1,s0,6]\n    return %12")

// edit replaces pairs of strings, each of which must be there.
func edit(text string, pairs ...string) string {
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			panic("no " + pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// The values of the model's weights: embeddings, codes, scales and biases, and what the latter are together.
func embedding(i int) float32 { return float32(i%7) - 3 }
func code(i int) uint32       { return uint32(i*5) % 16 }
func scale(row int) float32   { return 0.5 + float32(row) }
func bias(row int) float32    { return -float32(row) }
func headWeight(i int) float32 {
	return scale(i/32)*float32(code(i)) + bias(i/32)
}

// weightsOf are the values of the constants by name.
func weightsOf() map[string]*eval.Tensor {
	embed, head := make([]float32, 6*32), make([]float32, 6*32)
	words, scales, biases := make([]int64, 6*4), make([]float32, 6), make([]float32, 6)
	for i := range embed {
		embed[i], head[i] = embedding(i), headWeight(i)
		words[i/8] |= int64(code(i)) << (4 * (i % 8))
	}
	for row := range scales {
		scales[row], biases[row] = scale(row), bias(row)
	}
	return map[string]*eval.Tensor{
		"embed.weight":       eval.Floats(ir.F32, []int{6, 32}, embed),
		"head.weight":        eval.Floats(ir.F32, []int{6, 32}, head),
		"head.weight.packed": eval.Ints(ir.U32, []int{6, 4}, words),
		"head.weight.scales": eval.Floats(ir.F32, []int{6, 1}, scales),
		"head.weight.biases": eval.Floats(ir.F32, []int{6, 1}, biases),
	}
}

// file is the content of a .pte file.
type file struct {
	text    string
	weights map[string]*eval.Tensor
	extra   []codegen.NamedBytes
}

// open writes a file and opens it. Constants without a value are zeros.
func (f file) open(t *testing.T) *program.Program {
	t.Helper()
	m, err := ir.Parse(f.text)
	require.NoError(t, err)
	for _, c := range m.Constants {
		shape, _ := c.Value.Type.Static()
		p := make([]byte, ir.Elements(shape)*int64(c.Value.Type.DType.Size()))
		if v := f.weights[c.Name]; v != nil {
			require.Equal(t, c.Value.Type.DType, v.DType, c.Name)
			p = v.Encode()
		}
		c.Data = named{ir.Bytes(c.Value.Type.DType, shape, p), c.Name}
	}
	path := filepath.Join(t.TempDir(), "model.pte")
	require.NoError(t, codegen.Write(t.Context(), path, codegen.File{Module: m, Extra: f.extra}))
	return open(t, path)
}

// named gives data a provenance of its own, so that equal bytes are not stored once.
type named struct {
	ir.Data
	name string
}

func (n named) Provenance() string { return n.name }

func open(t *testing.T, path string) *program.Program {
	t.Helper()
	p, err := program.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// compare compares two files.
func compare(t *testing.T, a, b file) *diff.Report {
	t.Helper()
	r, err := diff.Programs(a.open(t), b.open(t))
	require.NoError(t, err)
	return r
}

// changedLines are the lines of a graph's diff that are not context.
func changedLines(t *testing.T, r *diff.Report) []string {
	t.Helper()
	require.LessOrEqual(t, len(r.Methods), 1)
	var out []string
	for _, m := range r.Methods {
		for _, line := range m.Diff {
			if line[0] == '-' || line[0] == '+' {
				out = append(out, line[:1]+strings.TrimSpace(line[1:]))
			}
		}
	}
	return out
}
