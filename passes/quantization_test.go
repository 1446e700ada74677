package passes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/passes/quantize"
)

// weights is a source of random weights that notes the largest read and can fail.
type weights struct {
	name    string
	dtype   ir.DType
	shape   []int64
	bytes   []byte
	mu      sync.Mutex
	largest int
	reads   int
	fail    error
}

func newWeights(d ir.DType, shape ...int64) *weights {
	dims := ints(shape)
	t := randomTensor("w", d, dims)
	for i := range t.F {
		t.F[i] *= 0.05 * float32(1+i/int(shape[len(shape)-1])%7) // rows of different sizes
	}
	return &weights{name: "w", dtype: d, shape: shape, bytes: t.Encode()}
}

func (w *weights) DType() ir.DType    { return w.dtype }
func (w *weights) Shape() []int64     { return w.shape }
func (w *weights) Provenance() string { return w.name }
func (w *weights) ReadAt(p []byte, off int64) (int, error) {
	w.mu.Lock()
	w.largest, w.reads = max(w.largest, len(p)), w.reads+1
	w.mu.Unlock()
	if w.fail != nil {
		return 0, w.fail
	}
	return bytes.NewReader(w.bytes).ReadAt(p, off)
}

// floats are the weights of matrix number i.
func (w *weights) floats(i int) []float32 {
	rank := len(w.shape)
	n := int(w.shape[rank-1] * w.shape[rank-2])
	out := make([]float32, n)
	floatOf(w.dtype).Decode(out, w.bytes[i*n*w.dtype.Size():])
	return out
}

// produced collects what a computation emits.
func produced(t *testing.T, q *quantization) [3][]byte {
	t.Helper()
	var out [3][]byte
	for i := range q.outputs() {
		out[i] = make([]byte, ir.DataSize(q.output(i)))
	}
	covered := [3]int{}
	require.NoError(t, q.Produce(func(output int, offset int64, p []byte) error {
		covered[output] += copy(out[output][offset:], p)
		return nil
	}))
	for i := range out {
		require.Equal(t, len(out[i]), covered[i])
	}
	return out
}

var quantizations = []struct {
	scheme quantize.Scheme
	dtype  ir.DType
	shape  []int64
}{
	{*minMax(4, 32), ir.BF16, []int64{5, 64}},
	{*minMax(8, 64), ir.F32, []int64{5, 128}},
	{*minMax(4, 128), ir.F16, []int64{1, 128}},
	{*minMax(4, 64), ir.BF16, []int64{3, 7, 64}},
	{*minMax(4, 64), ir.BF16, []int64{2, 3, 5, 64}},
	{*minMax(4, 32), ir.BF16, []int64{2100, 512}}, // more than one block
	{quantize.Scheme{Method: quantize.Best, Bits: 4, GroupSize: 32}, ir.BF16, []int64{2100, 512}},
	{quantize.Scheme{Method: quantize.Best, Bits: 8, GroupSize: 64}, ir.F32, []int64{3, 7, 64}},
	{quantize.Scheme{Method: quantize.HQQ, Bits: 4, GroupSize: 32}, ir.BF16, []int64{6, 96}},
	{quantize.Scheme{Method: quantize.HQQ, Bits: 8}, ir.F32, []int64{6, 256}},
	{quantize.Scheme{Method: quantize.HQQ, Bits: 4, GroupSize: 64}, ir.BF16, []int64{4, 6, 64}},
	{quantize.Scheme{Method: quantize.TorchAOAsymmetric, Bits: 4, GroupSize: 32}, ir.BF16, []int64{6, 96}},
	{quantize.Scheme{Method: quantize.TorchAOSymmetric, Bits: 8}, ir.BF16, []int64{6, 192}},
	{quantize.Scheme{Method: quantize.MinMax, Mode: ir.MXFP4, Bits: 4, GroupSize: 32}, ir.BF16, []int64{2100, 512}},
	{quantize.Scheme{Method: quantize.Best, Mode: ir.MXFP8, Bits: 8, GroupSize: 32}, ir.F32, []int64{3, 7, 64}},
}

// TestQuantizationIsOfEachMatrix: the streamed parts are those of quantizing every matrix of the stack at
// once and by itself, which for hqq tells them apart: its stop test spans a matrix.
func TestQuantizationIsOfEachMatrix(t *testing.T) {
	for _, test := range quantizations {
		s := test.scheme
		name := fmt.Sprintf("{%s %d %d %s %d} %s %v", s.Method, s.Bits, s.GroupSize, s.Params, s.Iterations,
			test.dtype, test.shape)
		if s.Mode != ir.Affine {
			name = s.Mode.String() + " " + name
		}
		t.Run(name, func(t *testing.T) {
			w := newWeights(test.dtype, test.shape...)
			q, err := newQuantization("w", w, test.scheme)
			require.NoError(t, err)
			got := produced(t, q)
			var want [3][]byte
			rows, cols := int(test.shape[len(test.shape)-2]), int(test.shape[len(test.shape)-1])
			for i := range len(w.bytes) / test.dtype.Size() / rows / cols {
				var r quantize.Result
				require.NoError(t, quantize.Quantize(&r, w.floats(i), rows, cols, test.scheme))
				for _, word := range r.Packed {
					want[0] = binary.LittleEndian.AppendUint32(want[0], word)
				}
				for j, values := range [][]float32{r.Scales, r.Biases} {
					for _, v := range values {
						if s.Mode != ir.Affine {
							want[1+j] = append(want[1+j], numeric.F32ToE8M0(v))
							continue
						}
						want[1+j] = binary.LittleEndian.AppendUint16(want[1+j], numeric.F32ToBF16(v))
					}
				}
			}
			for i := range want {
				require.True(t, bytes.Equal(want[i], got[i]), "output %d", i)
			}
			require.LessOrEqual(t, w.largest, max(blockBytes, cols*test.dtype.Size()), "weights stream in blocks")
		})
	}
}

// TestQuantizedPartsAreData: reading a part at any place gives what Produce gives, and names what it is.
func TestQuantizedPartsAreData(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	provenance := map[string]bool{}
	for _, test := range quantizations {
		w := newWeights(test.dtype, test.shape...)
		q, err := newQuantization("w", w, test.scheme)
		require.NoError(t, err)
		want := produced(t, q)
		for i := range q.outputs() {
			d := q.output(i)
			require.EqualValues(t, len(want[i]), ir.DataSize(d))
			computation, output := d.(ir.Joint).Group()
			require.Equal(t, i, output)
			require.Equal(t, q.Provenance(), computation.Provenance())
			require.Equal(t, q.Provenance()+"."+fmt.Sprint(i), d.Provenance())
			key := fmt.Sprint(d.Provenance(), test.dtype, test.shape)
			require.False(t, provenance[key])
			provenance[key] = true
			size := len(want[i])
			for n := range 12 {
				off, length := r.IntN(size), r.IntN(min(size, 5000)+2)
				if n == 0 {
					off, length = 0, size
				}
				p := make([]byte, length)
				got, err := d.ReadAt(p, int64(off))
				expect := want[i][off:min(size, off+length)]
				require.Equal(t, len(expect), got)
				require.True(t, bytes.Equal(expect, p[:got]), "%d bytes at %d", length, off)
				if got < length {
					require.Equal(t, io.EOF, err)
				} else {
					require.NoError(t, err)
				}
			}
			_, err := d.ReadAt(make([]byte, 1), int64(size))
			require.Equal(t, io.EOF, err)
			_, err = d.ReadAt(make([]byte, 1), -1)
			require.Error(t, err)
		}
	}
}

// TestQuantizationIsConcurrent: pieces of one weight may be read at the same time; hqq searches once.
func TestQuantizationIsConcurrent(t *testing.T) {
	w := newWeights(ir.BF16, 3, 40, 64)
	q, err := newQuantization("w", w, quantize.Scheme{Method: quantize.HQQ, Bits: 4, GroupSize: 32})
	require.NoError(t, err)
	want, err := ir.ReadData(q.output(packedOutput))
	require.NoError(t, err)
	before := w.reads
	fresh, err := newQuantization("w", w, q.scheme)
	require.NoError(t, err)
	failed := make([]error, 8)
	var wait sync.WaitGroup
	for i := range failed {
		wait.Go(func() {
			got, err := ir.ReadData(fresh.output(packedOutput))
			if err == nil && !bytes.Equal(want, got) {
				err = errors.New("other bytes")
			}
			failed[i] = err
		})
	}
	wait.Wait()
	require.NoError(t, errors.Join(failed...))
	require.Equal(t, 3+8*3, w.reads-before, "three searches, and three blocks for each reader")
}

func TestQuantizationErrors(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, test := range []struct {
		name string
		w    func() *weights
		want string
	}{
		{"source", func() *weights { w := newWeights(ir.BF16, 4, 64); w.fail = broken; return w },
			"tensor layers.0.w: disk on fire"},
		{"short source", func() *weights { w := newWeights(ir.BF16, 4, 64); w.bytes = w.bytes[:100]; return w },
			"tensor layers.0.w: unexpected EOF"},
		{"not finite", func() *weights {
			w := newWeights(ir.F32, 2, 3, 64)
			binary.LittleEndian.PutUint32(w.bytes[4*(64*4+5):], math.Float32bits(float32(math.Inf(1))))
			return w
		}, "tensor layers.0.w, rows from 3: "},
	} {
		for _, method := range []quantize.Method{quantize.MinMax, quantize.HQQ} {
			q, err := newQuantization("layers.0.w", test.w(), quantize.Scheme{Method: method, Bits: 4, GroupSize: 32})
			require.NoError(t, err)
			err = q.Produce(func(int, int64, []byte) error { return nil })
			require.ErrorContains(t, err, test.want)
			_, err = ir.ReadData(q.output(scalesOutput))
			require.ErrorContains(t, err, test.want)
		}
	}
	q, err := newQuantization("w", newWeights(ir.BF16, 4, 64), *minMax(4, 32))
	require.NoError(t, err)
	require.ErrorIs(t, q.Produce(func(int, int64, []byte) error { return broken }), broken,
		"the writer's error stops the computation")
	for _, d := range []ir.DType{ir.I32, ir.F64, ir.U8} {
		_, err := newQuantization("w", ir.Bytes(d, []int64{1, 32}, make([]byte, 32*d.Size())), *minMax(4, 32))
		require.EqualError(t, err, fmt.Sprintf("tensor w [1 32]: %s, want bf16, f16 or f32 to quantize", d))
	}
}

// TestQuantizedWeightsCompute: a quantized linear is near the dense one, and its parts are those of the file.
func TestQuantizedWeightsCompute(t *testing.T) {
	for _, o := range []Options{{Recipe: DefaultRecipe(minMax(8, 32), minMax(8, 32))},
		{Recipe: DefaultRecipe(minMax(4, 32), nil)}} {
		dense, quantized := parse(t, withoutSampler), parse(t, withoutSampler)
		require.NoError(t, Run(dense, &Options{}))
		require.NoError(t, Run(quantized, &o))
		a, b := evaluate(t, dense, eval.FP32, 3), evaluate(t, quantized, eval.FP32, 3)
		tolerance := 0.1
		if o.Recipe.Rules[len(o.Recipe.Rules)-1].Scheme.Bits == 4 {
			tolerance = 2
		}
		for i := range a[0].Tensor.F {
			require.InDelta(t, a[0].Tensor.F[i], b[0].Tensor.F[i], tolerance)
		}
		require.NotEqual(t, a[0].Tensor.F, b[0].Tensor.F)
	}
}

// TestWeightsWithoutBytes: a module without weights, parsed from text, stays as it is.
func TestWeightsWithoutBytes(t *testing.T) {
	m := parse(t, decoder)
	m.Constants[1].Data = nil
	apply(t, "quantize", m, &Options{Recipe: DefaultRecipe(minMax(4, 32), nil)})
	require.Equal(t, decoder, m.String())
}

// TestRoundConstants: every constant but exact ones and integers becomes the nearest bf16.
func TestRoundConstants(t *testing.T) {
	m := parse(t, `module {
  constant @rounded : f32[3]
  constant @kept : f32[3]
  constant @half : f16[3]
  constant @count : i64[]
  constant @bytes : bf16[2]
  entry forward(%x: f32[3]) {
    %0 = add(a=%x, b=@rounded) : f32[3]
    %1 = add(a=%0, b=@kept) : f32[3]
    %2 = add(a=@half, b=@count) : f16[3]
    return %1: f32[3], %2: f32[3]
  }
}
`)
	m.Constants[0].Data = ir.Float32s([]int64{3}, 1.001, -3, 1e30)
	m.Constants[1].Data = ir.Exact(ir.Float32s([]int64{3}, 1.001, 2, 3))
	before := m.Constants[4].Data
	apply(t, "round-constants", m, &Options{})
	require.Contains(t, m.String(), "constant @rounded : bf16[3]\n  constant @kept : f32[3]\n  constant @half : bf16[3]\n  constant @count : i64[]\n")
	require.Contains(t, m.String(), "add(a=@half, b=@count) : bf16[3]")
	p, err := ir.ReadData(m.Constants[0].Data)
	require.NoError(t, err)
	require.Equal(t, binary.LittleEndian.AppendUint16(nil, numeric.F32ToBF16(1.001)), p[:2])
	require.Equal(t, before, m.Constants[4].Data, "what is bf16 keeps its provenance")
}
