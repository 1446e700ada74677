package kernel

import "sync"

// Products with many vectors go panel by panel: panelRows rows are unpacked for a range of columns, in the
// order in which a tile reads them, and multiplied by all vectors, tileVectors at a time. Partial sums are
// kept in scratch until the last columns.

// Columns of a panel. A float panel is to stay in the first cache beside the vectors of a tile, an integer
// panel in the second.
const (
	floatDepth   = 256
	integerDepth = 2048 // a multiple of every group
)

// scratch is the scratch memory of one call.
type scratch struct {
	sums           []float32 // [vectors, panelRows]
	floats         []byte    // [floatDepth, panelRows] float32
	codes          []byte    // [integerDepth/4, panelRows, 4]
	row            []float32 // [floatDepth]
	scales, biases []float32 // [groups, panelRows]; a little more may be written
}

// spare holds scratch that is not in use.
var spare struct {
	sync.Mutex
	list []*scratch
}

// getScratch returns scratch for sums of a number of vectors; it allocates only when more calls than ever
// run at once, or larger ones.
func getScratch(vectors int) *scratch {
	spare.Lock()
	var s *scratch
	if n := len(spare.list); n > 0 {
		s, spare.list = spare.list[n-1], spare.list[:n-1]
	}
	spare.Unlock()
	if s == nil {
		s = &scratch{}
	}
	s.sums = grow(s.sums, vectors*active.panelRows)
	s.floats = grow(s.floats, 4*floatDepth*active.panelRows)
	s.row = grow(s.row, floatDepth)
	s.codes = grow(s.codes, integerDepth*active.panelRows)
	s.scales = grow(s.scales, (integerDepth/32+16)*active.panelRows)
	s.biases = grow(s.biases, (integerDepth/32+16)*active.panelRows)
	return s
}

func putScratch(s *scratch) {
	spare.Lock()
	spare.list = append(spare.list, s)
	spare.Unlock()
}

// matMulFloat is MatMul of all rows of w on the exact path.
func matMulFloat(y []float32, stride int, w *Matrix, a *Activations) {
	s := getScratch(a.vectors)
	width := active.panelRows
	for row := 0; row < w.Rows; row += width {
		rows := min(width, w.Rows-row)
		clear(s.sums)
		for lo := 0; lo < w.Cols; lo += floatDepth {
			hi := min(lo+floatDepth, w.Cols)
			s.packFloats(w, row, rows, lo, hi)
			for i, n := 0, 0; i < a.vectors; i += n {
				n = tileSize(a.vectors-i, active.tileVectors)
				active.tileFloat[1](s.sums[i*width:], width, s.floats, 4*width, a.values[i*a.valueStride+lo:],
					a.valueStride, n, hi-lo, 1)
				if hi == w.Cols {
					s.store(y[row:], stride, i, n, rows)
				}
			}
		}
	}
	putScratch(s)
}

// matMulInteger is MatMul of all rows of w on the integer path.
func matMulInteger(y []float32, stride int, w *Matrix, a *Activations) {
	s := getScratch(a.vectors)
	width, tile := active.panelRows, active.tileInteger[w.bitsIndex()][w.scaleIndex()]
	for row := 0; row < w.Rows; row += width {
		rows := min(width, w.Rows-row)
		clear(s.sums)
		for lo := 0; lo < w.Cols; lo += integerDepth {
			hi := min(lo+integerDepth, w.Cols)
			s.packCodes(w, row, rows, lo, hi)
			s.packScales(w, row, rows, lo/w.Group, hi/w.Group)
			for i, n := 0, 0; i < a.vectors; i += n {
				n = tileSize(a.vectors-i, active.tileCodeVectors)
				at := i*a.groupStride + lo/w.Group
				tile(s.sums[i*width:], s.codes, s.scales, s.biases, a.codes[i*a.codeStride+lo:], a.codeStride,
					a.scales[at:], a.sums[at:], a.groupStride, n, (hi-lo)/w.Group, w.Group)
				if hi == w.Cols {
					s.store(y[row:], stride, i, n, rows)
				}
			}
		}
	}
	putScratch(s)
}

// tileSize returns how many of n vectors the next tile takes: as many as possible without leaving a small tile at the
// end.
func tileSize(n, most int) int {
	tiles := (n + most - 1) / most
	return (n + tiles - 1) / tiles
}

// store copies the sums of a tile, the first rows rows of vectors [first, first+n), to y. Done right after
// the last product of the tile, it waits for memory while the next tile is computed.
func (s *scratch) store(y []float32, stride, first, n, rows int) {
	for i := first; i < first+n; i++ {
		copy(y[i*stride:][:rows], s.sums[i*active.panelRows:])
	}
}
