package passes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/passes/quantize"
)

// TestQuantizationMemory: a worker needs what its blocks take and not what the weight does; only hqq shares more.
func TestQuantizationMemory(t *testing.T) {
	need := func(method quantize.Method, shape ...int64) (worker, shared int64) {
		q, err := newQuantization("w", &weights{name: "w", dtype: ir.BF16, shape: shape},
			quantize.Scheme{Method: method, Bits: 4, GroupSize: 64})
		require.NoError(t, err)
		require.Equal(t, []ir.Data{q.source}, q.From())
		return q.WorkerBytes(), q.SharedBytes()
	}
	small, none := need(quantize.MinMax, 1024, 2048)
	large, still := need(quantize.MinMax, 1024*1024, 2048)
	require.Equal(t, small, large)
	require.Zero(t, none)
	require.Zero(t, still)
	require.Greater(t, small, int64(blockBytes))
	require.Less(t, small, int64(4*blockBytes))
	_, shared := need(quantize.HQQ, 1024, 2048)
	_, more := need(quantize.HQQ, 2048, 2048)
	require.Equal(t, int64(hqqFitBytes*1024*32), shared)
	require.Equal(t, 2*shared, more)
	_, stacked := need(quantize.HQQ, 100, 1024, 2048)
	require.Equal(t, shared, stacked, "what is shared is that of a matrix")
}

// TestSkip: what hqq keeps for a matrix goes when its blocks have been computed or are not needed.
func TestSkip(t *testing.T) {
	w := newWeights(ir.BF16, 2, 2048, 1024)
	q, err := newQuantization("w", w, quantize.Scheme{Method: quantize.HQQ, Bits: 4, GroupSize: 64})
	require.NoError(t, err)
	blocks := q.matrixBlocks()
	require.Equal(t, 2, blocks)
	emit := func(int, int64, []byte) error { return nil }
	require.NoError(t, q.ProduceBlock(blocks, emit))
	require.NotNil(t, q.searches[1].fits.Load())
	q.Skip(0)
	require.NotNil(t, q.searches[1].fits.Load(), "the block is of another matrix")
	q.Skip(blocks + 1)
	require.Nil(t, q.searches[1].fits.Load())
	minmax, err := newQuantization("w", w, quantize.Scheme{Method: quantize.MinMax, Bits: 4, GroupSize: 64})
	require.NoError(t, err)
	minmax.Skip(0)
}
