package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// product is what MatMul defines, in float64, and the sum of the magnitudes of its terms. On the integer
// path the activations are those that quantizeGeneric gives.
func product(w *Matrix, path Path, x []float32, vectors int) (y, size []float64) {
	y, size = make([]float64, vectors*w.Rows), make([]float64, vectors*w.Rows)
	v := make([][]float64, vectors)
	for i := range v {
		if path == Integer && w.Layout(path).Format.Quantized() {
			v[i] = rounded(x[i*w.Cols:][:w.Cols], w.Group)
			continue
		}
		v[i] = make([]float64, w.Cols)
		for k := range v[i] {
			v[i][k] = float64(x[i*w.Cols+k])
		}
	}
	for r := range w.Rows {
		row := decode(w, r)
		for i := range v {
			y[i*w.Rows+r], size[i*w.Rows+r] = row.dot(v[i])
		}
	}
	return y, size
}

// decoded is a row of a matrix. Element k is code[k], or scale[g]·code[k] + bias[g] in group g of group elements.
// more[k] is what else counts for the magnitude of its product.
type decoded struct {
	code, scale, bias, more []float64
	group                   int
}

// decode reads row r of a matrix, once for all vectors.
func decode(w *Matrix, r int) decoded {
	d := decoded{code: make([]float64, w.Cols), group: w.Group}
	if w.Format.Quantized() {
		for k := range d.code {
			d.code[k] = float64(w.code(r, k))
		}
		for g := range w.groups() {
			scale, bias := w.scale(r, g)
			d.scale, d.bias = append(d.scale, float64(scale)), append(d.bias, float64(bias))
		}
		return d
	}
	row := make([]float32, w.Cols)
	w.Row(row, r)
	for k, c := range row {
		d.code[k] = float64(c)
	}
	if w.Format == MXFP4 { // made a code and a bias of the same size at most
		d.more = make([]float64, w.Cols)
		for k := range d.more {
			d.more[k] = 12 * float64(e8m0Values[w.Scales[r*w.groups()+k/32]])
		}
	}
	return d
}

// dot returns the product of a row and a vector, and the sum of the magnitudes of its terms.
func (d decoded) dot(v []float64) (y, size float64) {
	for g, scale := range d.scale {
		bias, at := d.bias[g], g*d.group
		for k, c := range d.code[at : at+d.group] {
			x := v[at+k]
			scaled, biased := x*scale*c, x*bias
			y = y + scaled + biased
			size = size + math.Abs(scaled) + math.Abs(biased)
		}
	}
	if d.scale == nil {
		for k, c := range d.code {
			y += v[k] * c
			size += math.Abs(v[k] * c)
		}
	}
	for k, m := range d.more {
		size += math.Abs(v[k]) * m
	}
	return y, size
}

// rounded is x as the codes of 8 bits have it.
func rounded(x []float32, group int) []float64 {
	codes, scales, sums := make([]int8, len(x)), make([]float32, len(x)/group), make([]float32, len(x)/group)
	quantizeGeneric(codes, scales, sums, x, group, 1)
	out := make([]float64, len(x))
	for i, c := range codes {
		out[i] = float64(c) * float64(scales[i/group])
	}
	return out
}

// tolerance of sums of products, as a part of the sum of magnitudes: what doc.go promises.
const tolerance = 1e-5

func TestMatMul(t *testing.T) {
	shapes := []struct{ rows, cols, group int }{
		{1, 32, 32}, {3, 128, 64}, {5, 96, 32}, {7, 160, 32}, {33, 192, 64}, {64, 512, 64},
		{32, 2048, 64}, {35, 1344, 64},
		{40, 640, 128}, {32, 2048 + 1152, 128}, {31, 2080, 32}, {64, 544, 32}, {2, 5376, 64}, {32, 4224, 128},
		{9, 768, 64}, {23, 384, 32},
	}
	r := rand.New(rand.NewPCG(1, 2))
	for _, format := range []Format{Q4, Q8, BF16, F32, MXFP4, MXFP8, NVFP4} {
		for _, shape := range shapes {
			for variant := range 4 {
				scales, symmetric := []Format{BF16, F32}[variant/2], variant%2 == 1
				if !format.Quantized() && variant > 0 {
					break
				}
				w := randomMatrix(r, format, scales, shape.rows, shape.cols, shape.group, symmetric)
				require.NoError(t, w.Check())
				for _, vectors := range []int{1, 2, 3, 4, 5, 8, 9, 13, 25, 53} {
					if format.SmallFloats() && (vectors == 2 || vectors == 4 || vectors == 5 || vectors == 13) {
						continue // they are multiplied as q8 and bf16 are
					}
					if vectors > 5 && shape.rows*shape.cols > 1<<14 || vectors > 25 && shape.rows%32 > 3 ||
						vectors > 1 && variant == 2 {
						continue
					}
					for _, path := range []Path{Exact, Integer} {
						checkMatMul(t, r, w, path, vectors)
					}
				}
				release()
			}
		}
	}
}

func checkMatMul(t *testing.T, r *rand.Rand, w *Matrix, path Path, vectors int) {
	t.Helper()
	x := floats(r, vectors*w.Cols)
	want, size := product(w, path, x, vectors)
	seed := r.Uint64()
	atEachLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		what := fmt.Sprintf("%s, path %d, %d vectors", w.describe(), path, vectors)
		var a Activations
		a.Reset(w.Layout(path), vectors, w.Cols)
		a.Fill(x, w.Cols, 0, vectors)
		y := floats(r, vectors*w.Rows)
		MatMul(y, w.Rows, w, &a, 0, w.Rows)
		requireClose(t, want, size, y, tolerance, what)

		// In parts, into wider rows, the same bits; what lies beside stays.
		stride := w.Rows + 3
		parts := floats(r, vectors*stride)
		beside := append([]float32(nil), parts...)
		for lo := 0; lo < w.Rows; {
			hi := min(w.Rows, lo+1+r.IntN(40))
			MatMul(parts, stride, w, &a, lo, hi)
			lo = hi
		}
		for i := range vectors {
			require.Equal(t, y[i*w.Rows:][:w.Rows], parts[i*stride:][:w.Rows], what)
			require.Equal(t, beside[i*stride+w.Rows:][:3], parts[i*stride+w.Rows:][:3], what)
		}
	})
}

// Few vectors have the bits that they have among many, whose rows are unpacked into panels.
func TestMatMulFew(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		if active.fewVectors == 0 {
			t.Skip("this level unpacks rows for two vectors as for many")
		}
		r := rand.New(rand.NewPCG(11, 12))
		for _, shape := range []struct{ rows, cols, group int }{
			{32, 32, 32}, {64, 704, 64}, {96, 2048 + 128, 128}, {75, 4096 + 96, 32}, {33, 192, 64},
		} {
			for _, format := range []Format{Q4, Q8} {
				for variant := range 4 {
					w := randomMatrix(r, format, []Format{BF16, F32}[variant/2], shape.rows, shape.cols, shape.group,
						variant%2 == 1)
					for _, vectors := range []int{2, 3, 4, 5, 6, 7, 8, 9, fewLimit} {
						var a Activations
						a.Reset(w.Layout(Integer), vectors, w.Cols)
						a.Fill(floats(r, vectors*w.Cols), w.Cols, 0, vectors)
						require.Equal(t, format == Q4 || w.Group <= 64, a.isFew(w))
						if !a.isFew(w) {
							continue
						}
						few, many := make([]float32, vectors*w.Rows), make([]float32, vectors*w.Rows)
						matMulFew(few, w.Rows, w, &a)
						matMulInteger(many, w.Rows, w, &a)
						require.Equal(t, many, few, "%s, %d vectors", w.describe(), vectors)
					}
				}
			}
		}
	})
}

// A row does not depend on the rows around it, nor a vector on those beside it as long as it is multiplied in
// the same way.
func TestMatMulOfExpert(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		r := rand.New(rand.NewPCG(3, 4))
		for _, format := range []Format{Q4, Q8, BF16, MXFP4, MXFP8, NVFP4} {
			w := randomMatrix(r, format, BF16, 4*64, 256, 64, false)
			expert := w.Slice(2*64, 3*64)
			require.NoError(t, expert.Check())
			for _, path := range []Path{Exact, Integer} {
				x := floats(r, 20*256)
				var all, some Activations
				all.Reset(w.Layout(path), 20, 256)
				all.Fill(x, 256, 0, 7)
				all.Fill(x[7*256:], 256, 7, 20)
				for _, rows := range [][]int32{{3, 17, 4, 4, 0, 19, 1, 2, 9}, {5}, {8, 1}, {}} {
					some.Reset(w.Layout(path), len(rows), 256)
					some.Gather(&all, rows, 0, len(rows))
					got := make([]float32, len(rows)*64)
					MatMul(got, 64, &expert, &some, 0, 64)
					gathered := make([]float32, 0, len(rows)*256)
					for _, row := range rows {
						gathered = append(gathered, x[row*256:][:256]...)
					}
					want, size := product(&expert, path, gathered, len(rows))
					requireClose(t, want, size, got, tolerance, fmt.Sprintf("%v path %d rows %v", format, path, rows))
				}
			}
		}
	})
}

// A vector of Alone has the bits of one that comes alone, however many there are and however rows are cut.
func TestMatMulAlone(t *testing.T) {
	const vectors = 53
	atEachLevel(t, func(t *testing.T) {
		defer release()
		r := rand.New(rand.NewPCG(5, 6))
		for _, format := range []Format{Q4, Q8, BF16, F32, MXFP4, MXFP8, NVFP4} {
			w := randomMatrix(r, format, BF16, 75, 512, 64, false)
			x := floats(r, vectors*w.Cols)
			for _, path := range []Path{Exact, Integer} {
				l := w.Layout(path)
				l.Alone = true
				var all, one Activations
				all.Reset(l, vectors, w.Cols)
				all.Fill(x, w.Cols, 0, vectors)
				y, want := make([]float32, vectors*w.Rows), make([]float32, w.Rows)
				MatMul(y, w.Rows, w, &all, 0, 30)
				MatMul(y, w.Rows, w, &all, 30, w.Rows)
				for i := range vectors {
					alone := []Layout{l}
					if !l.tiled() {
						alone = append(alone, w.Layout(path)) // is multiplied by the same kernel
					}
					for _, layout := range alone {
						one.Reset(layout, 1, w.Cols)
						one.Fill(x[i*w.Cols:], w.Cols, 0, 1)
						MatMul(want, w.Rows, w, &one, 0, w.Rows)
						require.Equal(t, want, y[i*w.Rows:][:w.Rows], "%s, path %d, vector %d", w.describe(), path, i)
					}
				}
			}
		}
	})
}

// Tiles of floats add to sums of any distance, times a factor.
func TestTileFloat(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(9, 10))
		width := active.panelRows
		for vectors := 1; vectors <= active.tileVectors; vectors++ {
			for depth := range 10 {
				for i, format := range []Format{BF16, F32} {
					keep := []float32{1, 0.75, 0}[r.IntN(3)]
					stride, xStride, panelBytes := width+r.IntN(3), depth+r.IntN(3), (width+r.IntN(3))*format.Bits()/8
					sums, x := floats(r, (vectors-1)*stride+width), floats(r, (vectors-1)*xStride+depth)
					panel := encode(format, floats(r, max((depth-1)*panelBytes*8/format.Bits()+width, 0)))
					want, size := make([]float64, len(sums)), make([]float64, len(sums))
					for at, v := range sums {
						want[at] = float64(v)
						if at%stride < width {
							want[at] *= float64(keep)
						}
						size[at] = math.Abs(want[at])
					}
					for v := range vectors {
						for k := range depth {
							for c := range width {
								p := float64(x[v*xStride+k]) * float64(stored(panel[k*panelBytes:], format, c))
								want[v*stride+c] += p
								size[v*stride+c] += math.Abs(p)
							}
						}
					}
					active.tileFloat[i](sums, stride, panel, panelBytes, x, xStride, vectors, depth, keep)
					requireClose(t, want, size, sums, 1e-6,
						fmt.Sprintf("%v, %d vectors, depth %d, keep %v", format, vectors, depth, keep))
				}
			}
			release()
		}
	})
}

func TestMatMulDoesNotAllocate(t *testing.T) {
	atEachLevel(t, func(t *testing.T) {
		defer release()
		r := rand.New(rand.NewPCG(5, 6))
		for _, format := range []Format{Q4, BF16} {
			w := randomMatrix(r, format, BF16, 64, 256, 64, false)
			for _, path := range []Path{Exact, Integer} {
				for _, vectors := range []int{1, 13} {
					x, y := floats(r, vectors*256), make([]float32, vectors*64)
					var a Activations
					require.Zero(t, testing.AllocsPerRun(5, func() {
						a.Reset(w.Layout(path), vectors, 256)
						a.Fill(x, 256, 0, vectors)
						MatMul(y, 64, w, &a, 0, 64)
					}))
				}
			}
		}
	})
}

func TestMatrixCheck(t *testing.T) {
	good := func() *Matrix {
		return &Matrix{Format: Q4, Rows: 2, Cols: 64, Group: 32, ScaleFormat: BF16, Data: make([]byte, 64),
			Scales: make([]byte, 8), Biases: make([]byte, 8)}
	}
	require.NoError(t, good().Check())
	for _, c := range []struct {
		want string
		set  func(w *Matrix)
	}{
		{"format 0", func(w *Matrix) { w.Format = 0 }},
		{"-1 × 64", func(w *Matrix) { w.Rows = -1 }},
		{"× 4611686018427387904", func(w *Matrix) { w.Cols = 1 << 62 }},
		{"groups of 16", func(w *Matrix) { w.Group = 16 }},
		{"groups of 128 in rows of 64", func(w *Matrix) { w.Group = 128 }},
		{"q8 scales", func(w *Matrix) { w.ScaleFormat = Q8 }},
		{"6 bytes of scales and 8 of biases, want 8", func(w *Matrix) { w.Scales = w.Scales[:6] }},
		{"8 bytes of scales and 0 of biases", func(w *Matrix) { w.Biases = w.Biases[:0] }},
		{"63 bytes, want 64", func(w *Matrix) { w.Data = w.Data[:63] }},
	} {
		w := good()
		c.set(w)
		require.ErrorContains(t, w.Check(), c.want)
	}
}

func TestMatMulRefusesWhatDoesNotFit(t *testing.T) {
	w := &Matrix{Format: F32, Rows: 2, Cols: 3, Data: make([]byte, 24)}
	var a Activations
	a.Reset(w.Layout(Exact), 2, 3)
	a.Fill(make([]float32, 6), 3, 0, 2)
	y := make([]float32, 4)
	MatMul(y, 2, w, &a, 0, 2)
	require.Panics(t, func() { MatMul(y, 2, w, &a, 0, 3) })
	require.Panics(t, func() { MatMul(y[:3], 2, w, &a, 0, 2) })
	require.Panics(t, func() { MatMul(y, 1, w, &a, 0, 2) })
	require.Panics(t, func() { a.Fill(make([]float32, 5), 3, 0, 2) })
	require.Panics(t, func() { a.Fill(make([]float32, 9), 3, 0, 3) })
	var other Activations
	other.Reset(Layout{Path: Integer, Format: Q4, Group: 64}, 2, 64)
	require.Panics(t, func() { MatMul(y, 2, w, &other, 0, 2) })
	require.Panics(t, func() { other.Gather(&a, []int32{0, 1}, 0, 2) })
	require.Panics(t, func() { other.Gather(&other, []int32{0, 2}, 0, 2) })
	require.Panics(t, func() { other.Reset(Layout{Path: Integer, Format: Q4, Group: 64}, 2, 65) })
}
