package kernel

import (
	"encoding/binary"
	"math"
)

// A panel holds columns [lo, hi) of rows [row, row+rows) of a matrix, panelRows rows wide; where there are
// fewer, the rest of it is zero. Functions of the level pack squares of packRows rows, the code here what
// is left at the edges.

// packFloats writes floats[k-lo][r] = element (row+r, k).
func (s *scratch) packFloats(w *Matrix, row, rows, lo, hi int) {
	width, done := active.panelRows, 0
	if w.Format.Quantized() {
		s.packScales(w, row, rows, lo/w.Group, (hi+w.Group-1)/w.Group)
	}
	if columns := 32 / w.Format.Bits() * active.packRows; columns > 0 && rows == width {
		chunks := (hi - lo) / columns
		done = chunks * columns
		for r := 0; r < width; r += active.packRows {
			panel, data := s.floats[4*r:], w.Data[(row+r)*w.rowBytes()+lo*w.Format.Bits()/8:]
			if w.Format.Quantized() {
				active.packQuantized[w.bitsIndex()](panel, 4*width, data, w.rowBytes(), chunks, s.scales[r:],
					s.biases[r:], width, w.Group)
			} else {
				active.packDense[floatIndex(w.Format)](panel, 4*width, data, w.rowBytes(), chunks)
			}
		}
	}
	if lo+done == hi {
		return
	}
	elements := s.row[:hi-lo-done]
	for r := range width {
		clear(elements)
		if r < rows {
			w.elements(elements, row+r, lo+done)
		}
		for k, v := range elements {
			binary.LittleEndian.PutUint32(s.floats[4*((done+k)*width+r):], math.Float32bits(v))
		}
	}
}

// packCodes writes codes[(k-lo)/4][r][k%4] = code (row+r, k) of 8 bits. Of every 8 codes of 4 bits the 4
// even ones come first, as in the vectors (tileCodeBlock).
func (s *scratch) packCodes(w *Matrix, row, rows, lo, hi int) {
	width, done, block := active.panelRows, 0, 1
	if w.Format == Q4 {
		block = tileCodeBlock
	}
	if columns := 32 / w.Format.Bits() * active.packRows; columns > 0 && rows == width {
		chunks := (hi - lo) / columns
		done = chunks * columns
		for r := 0; r < width; r += active.packRows {
			active.packCodes[w.bitsIndex()](s.codes[4*r:], 4*width, w.Data[(row+r)*w.rowBytes()+lo*w.Format.Bits()/8:],
				w.rowBytes(), chunks)
		}
	}
	for k := done; k < hi-lo; k++ {
		at := blockPlace(k, block)
		column := s.codes[at/4*4*width+at%4:]
		for r := range width {
			column[4*r] = 0
			if r < rows {
				column[4*r] = w.code(row+r, lo+k)
			}
		}
	}
}

// packScales writes scales[g-lo][r] and biases[g-lo][r] of groups [lo, hi).
func (s *scratch) packScales(w *Matrix, row, rows, lo, hi int) {
	width := active.panelRows
	if active.packRows > 0 && rows == width {
		for r := 0; r < width; r += active.packRows {
			at := (row+r)*w.scaleBytes() + lo*w.ScaleFormat.Bits()/8
			active.packScales[w.scaleIndex()](s.scales[r:], width, w.Scales[at:], w.scaleBytes(), hi-lo)
			if w.Biases != nil {
				active.packScales[w.scaleIndex()](s.biases[r:], width, w.Biases[at:], w.scaleBytes(), hi-lo)
			}
		}
		if w.Biases == nil {
			n := (hi - lo) * width
			active.scale(s.biases[:n], s.scales[:n], symmetricBias(w.Format.Bits(), 1))
		}
		return
	}
	for r := range width {
		for g := lo; g < hi; g++ {
			var scale, bias float32
			if r < rows {
				scale, bias = w.scale(row+r, g)
			}
			s.scales[(g-lo)*width+r], s.biases[(g-lo)*width+r] = scale, bias
		}
	}
}
