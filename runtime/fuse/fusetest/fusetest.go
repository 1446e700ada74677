package fusetest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

//go:embed testdata
var files embed.FS

// Names lists the graphs of the trained checkpoints: those whose names begin with "etc-" are ours, of the checkpoints
// in testdata; the others are ExecuTorch's, of the same checkpoints.
func Names() []string { return list("") }

// Neighbours lists graphs of ours of the other model families, of the tiny checkpoints in testdata.
func Neighbours() []string { return list("neighbours/") }

func list(dir string) []string {
	entries, err := files.ReadDir(strings.TrimSuffix("testdata/"+dir, "/"))
	if err != nil {
		panic(err)
	}
	var names []string
	for _, f := range entries {
		if !f.IsDir() {
			names = append(names, dir+strings.TrimSuffix(f.Name(), ".ir.gz"))
		}
	}
	return names
}

// Load returns a module of that name. Its weights are random, but the same every time.
func Load(t testing.TB, name string) *ir.Module { return LoadEdited(t, name, "", "") }

// LoadEdited is Load after replacing a part of the text, which must be there once.
func LoadEdited(t testing.TB, name, old, by string) *ir.Module {
	t.Helper()
	p, err := files.ReadFile("testdata/" + name + ".ir.gz")
	require.NoError(t, err)
	z, err := gzip.NewReader(bytes.NewReader(p))
	require.NoError(t, err)
	all, err := io.ReadAll(z)
	require.NoError(t, err)
	text, values, ok := strings.Cut(string(all), "\n---\n")
	require.True(t, ok)
	if old != "" {
		require.Equal(t, 1, strings.Count(text, old), "%q", old)
		text = strings.Replace(text, old, by, 1)
	}
	m, err := ir.Parse(text + "\n")
	require.NoError(t, err)
	kept := map[string][]byte{}
	for s := bufio.NewScanner(strings.NewReader(values)); s.Scan(); {
		var key, data string
		_, err := fmt.Sscanf(s.Text(), "%q %s", &key, &data)
		require.NoError(t, err, s.Text())
		kept[key], err = hex.DecodeString(data)
		require.NoError(t, err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range m.Constants {
		dims, _ := c.Value.Type.Static()
		data, ok := kept[c.Name]
		if !ok {
			data = weights(random, c.Name, c.Value.Type.DType, dims)
		}
		c.Data = ir.Bytes(c.Value.Type.DType, dims, data)
	}
	return m
}

// weights makes numbers of about the size that a constant of that name has in a trained model, so that
// values neither grow nor vanish from layer to layer.
func weights(random *rand.Rand, name string, d ir.DType, dims []int64) []byte {
	n := int(ir.Elements(dims))
	if !d.IsFloat() {
		p := make([]byte, n*d.Size())
		for i := range p {
			p[i] = byte(random.Uint32())
		}
		return p
	}
	v := make([]float32, n)
	number := number(name, float64(dims[len(dims)-1]))
	for i := range v {
		v[i] = number(random.NormFloat64())
	}
	return eval.Floats(d, ints(dims), v).Encode()
}

// number makes a number of a weight of that name and width from one of the normal distribution.
func number(name string, width float64) func(x float64) float32 {
	has := func(part string) bool { return strings.Contains(name, part) }
	switch {
	case has("norm") || has("ln_") || has("rms"):
		return func(x float64) float32 { return float32(1 + x/10) }
	case has("scale") || has("original1"):
		return func(x float64) float32 { return float32((1 + x*x) / 100) }
	case has("bias") || has("zero_point"):
		return func(x float64) float32 { return float32(-(1 + x*x) / 100 * 7.5) }
	default:
		return func(x float64) float32 { return float32(x / math.Sqrt(width)) }
	}
}

func ints(dims []int64) []int {
	out := make([]int, len(dims))
	for i, d := range dims {
		out[i] = int(d)
	}
	return out
}

// Inputs makes the inputs of forward for n tokens at a position; for graphs with a sampling head the
// parameters vary with the position.
func Inputs(m *ir.Module, position, n int) []eval.Value {
	ids, positions := make([]int64, n), make([]int64, n)
	for i := range ids {
		ids[i], positions[i] = int64((position+i)*37%200+3), int64(position+i)
	}
	in := []eval.Value{{Tensor: eval.Ints(ir.I64, []int{1, n}, ids)}, {Tensor: eval.Ints(ir.I64, []int{n}, positions)}}
	if len(m.Entry.Params) == 6 {
		number := func(v float32) eval.Value { return eval.Value{Tensor: eval.Floats(ir.F32, nil, []float32{v})} }
		integer := func(v int) eval.Value {
			return eval.Value{Tensor: eval.Ints(ir.I64, nil, []int64{int64(v)})}
		}
		top := []float32{1, 0.9, 0.3}[position/3%3]
		in = append(in, number(float32(position%3)*0.7), integer(position%5*9), number(top), integer(position*7919))
	}
	return in
}
