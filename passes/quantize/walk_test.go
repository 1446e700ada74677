package quantize

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir/numeric/dot"
)

// squaredError is that of a tile's outputs for the inputs that its moments are of.
func (t *solverTile) squaredError() float64 {
	sum := 0.0
	for r := range t.rows {
		change := t.change.Row(r)
		for i, d := range change {
			sum += float64(d) * float64(dot.Product(t.moments.Row(i), change))
		}
	}
	return sum
}

// mixed are inputs most of which lies in a few directions that have nothing to do with the columns, as in models.
func mixed(rows, cols int, seed uint64) []float32 {
	z, turn := normal(rows*cols, seed), normal(cols*cols, 17)
	for i := range z {
		z[i] = float32(z[i]*256) / float32(1+i%cols)
	}
	x := make([]float32, rows*cols)
	dot.Rows(x, cols, z, rows, turn, cols, cols)
	return x
}

// testTile is a tile of rows after error feedback.
func testTile(t *testing.T, rows, cols, group int) *solverTile {
	t.Helper()
	m := NewMoments(cols)
	m.Add(mixed(1024, cols, 1), 1024, serially)
	v, err := NewSolver(m, Scheme{Method: Learned, Bits: 4, GroupSize: group}, serially)
	require.NoError(t, err)
	tile, groups := &solverTile{}, rows*cols/group
	tile.reset(v, normal(rows*cols, 1), rows, make([]float32, groups), make([]float32, groups))
	require.Nil(t, tile.feedback())
	return tile
}

// TestWalkGain pins what walks gain where coordinate descent finds nothing more to do.
func TestWalkGain(t *testing.T) {
	for _, cols := range []int{192, 320} { // less than a walk's columns, and more
		tile := testTile(t, 48, cols, 64)
		for range 20 {
			tile.sweep()
		}
		before := tile.squaredError()
		tile.sweep()
		require.InEpsilon(t, before, tile.squaredError(), 0.001, "coordinate descent has come to its end")
		tile.walk()
		after := tile.squaredError()
		t.Logf("%d columns: a walk leaves %.4f of the squared error", cols, after/before)
		require.Less(t, after, 0.99*before)
		for r := range tile.rows { // the changes are those of the codes
			for i, d := range tile.change.Row(r) {
				g := tile.groupAt(r, i/64*64)
				q := float32(tile.codes[r*cols+i])
				require.LessOrEqual(t, q, tile.levels)
				require.Equal(t, float32(tile.scales[g]*q)+tile.biases[g]-tile.w.Row(r)[i], d)
			}
		}
	}
}

// TestWalkNextCode holds the choice of a walk's next code to its rules.
func TestWalkNextCode(t *testing.T) {
	x := walker{slope: []float32{4, -3, 2, -1}, scale: []float32{1, 1, 1, 1}, own: []float32{1, 1, 1, 1},
		codes: []float32{5, 5, 5, 5}, until: make([]int, 4)}
	next := func() [2]float32 {
		at, change := x.next([]float32{0, 0, 0, 0}, 1, 7, -3.5, 15)
		return [2]float32{float32(at), change}
	}
	require.Equal(t, [2]float32{0, -3}, next(), "the steepest")
	x.codes[0] = 0
	require.Equal(t, [2]float32{1, -2}, next(), "there is no code below 0")
	x.codes[1] = 15
	require.Equal(t, [2]float32{2, -1}, next(), "nor above the last one")
	x.until[2] = 8
	require.Equal(t, [2]float32{3, 0}, next(), "a code that has moved stays")
	x.slope[2] = 5
	require.Equal(t, [2]float32{2, -4}, next(), "unless that leads below the record")
	x.codes = []float32{0, 15, 0, 15}
	at, _ := x.next([]float32{0, 0, 0, 0}, 1, 7, -3.5, 15)
	require.Equal(t, -1, at)
	x.next([]float32{1, 2, 3, 4}, -0.5, 7, -3.5, 15)
	require.Equal(t, []float32{3.5, -4, 3.5, -3}, x.slope, "slopes after a step")
}
