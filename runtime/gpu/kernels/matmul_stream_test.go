package kernels_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/kernels/kerneltest"
)

// TestMatMulStream multiplies 1 to 8 vectors with streamed weights: with strips that end early, of 16 rows and more, in
// one and several segments of columns, with one stage and several copied early.
func TestMatMulStream(t *testing.T) {
	t.Parallel()
	symmetric, affine8 := affine4, kernels.Format{Bits: 8, Group: 64}
	symmetric.Symmetric = true
	symmetric8 := affine8
	symmetric8.Symmetric = true
	four := func(f kernels.Format, k int) kernels.Matrices {
		return kernels.Matrices{Format: f, K: k, Packed: kernels.InLanes}
	}
	stream := func(groups, simdgroups, strip, columns, stages int) kernels.Stream {
		return kernels.Stream{Groups: groups, Simdgroups: simdgroups, Strip: strip, Columns: columns, Stages: stages}
	}
	for i, c := range []struct {
		m               kernels.MatMul
		tile            kernels.Tile
		tokens, written int
	}{
		{kernels.MatMul{Matrices: four(affine4, 512), N: 100, Epilogue: kernels.AddMatrix},
			kernels.Tile{BM: 2, Ahead: 1, Stream: stream(2, 2, 16, 512, 2)}, 2, 2},
		{kernels.MatMul{Matrices: four(affine4, 1024), N: 70, Epilogue: kernels.AddVector},
			kernels.Tile{BM: 4, Ahead: 2, Stream: stream(1, 2, 32, 256, 3)}, 4, 3},
		{kernels.MatMul{Matrices: four(symmetric, 1024), N: 40, Epilogue: kernels.Softcap, Cap: 2},
			kernels.Tile{BM: 8, Ahead: 1, Stream: stream(1, 2, 16, 512, 2)}, 8, 7},
		{kernels.MatMul{Matrices: four(affine4, 1536), N: 100},
			kernels.Tile{BM: 6, Ahead: 3, Stream: stream(2, 3, 48, 384, 4)}, 11, 10},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 768, Half: true, Packed: kernels.InLanes}, N: 256},
			kernels.Tile{BM: 8, Ahead: 1, Stream: stream(3, 6, 16, 768, 2)}, 9, 9},
		{kernels.MatMul{Matrices: four(affine8, 512), N: 100, Epilogue: kernels.AddMatrix},
			kernels.Tile{BM: 8, Ahead: 1, Stream: stream(2, 1, 16, 128, 3)}, 14, 13},
		{kernels.MatMul{Matrices: four(symmetric8, 256), N: 64},
			kernels.Tile{BM: 4, Ahead: 1, Stream: stream(4, 2, 16, 256, 2)}, 4, 1},
		{kernels.MatMul{Matrices: kernels.Matrices{Format: affine4, K: 256, Half: true, Lanes: true,
			Packed: kernels.InLanes}, N: 256}, kernels.Tile{BM: 8, Ahead: 1, Stream: stream(4, 1, 32, 128, 4)}, 8, 7},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			oneOfThree(t)
			t.Parallel()
			l, err := c.m.Launch(c.tile, c.tokens)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: c.written, Capacity: c.tokens}))
			l, err = kernels.MatMulGLU{Matrices: c.m.Matrices, N: c.m.N, Activation: kernels.SiLU}.Launch(c.tile, c.tokens)
			require.NoError(t, err)
			kerneltest.Check(t, l.Case(kernels.Sizes{Whole: true, Tokens: c.written, Capacity: c.tokens}))
		})
	}
}
