package kernel

// Panels hold columns [lo, hi) of rows [row, row+rows) of a matrix, width rows wide; where rows < width the
// rest of the panel is zero.

// packFloats writes panel[k-lo][r] = element (row+r, k).
func packFloats(panel []float32, width int, w *Matrix, row, rows, lo, hi int) {
	done := 0
	if rows == width && active.packFloats != nil {
		done = active.packFloats(panel, w, row, lo, hi)
	}
	packFloatsGeneric(panel[done*width:], width, w, row, rows, lo+done, hi)
}

// packCodes writes panel[(k-lo)/4][r][k%4] = code (row+r, k) of 8-bit codes. Of every 8 codes of 4 bits the
// 4 even ones come first, as of the vectors (tileCodeBlock).
func packCodes(panel []byte, width int, w *Matrix, row, rows, lo, hi int) {
	done := 0
	if rows == width && active.packCodes != nil {
		done = active.packCodes(panel, w, row, lo, hi)
	}
	packCodesGeneric(panel[done*width:], width, w, row, rows, lo+done, hi)
}

func packFloatsGeneric(panel []float32, width int, w *Matrix, row, rows, lo, hi int) {
	if lo == hi {
		return
	}
	var buffer [floatDepth]float32
	elements := buffer[:hi-lo]
	for r := range width {
		if r < rows {
			w.elements(elements, row+r, lo)
		} else {
			clear(elements)
		}
		for k, v := range elements {
			panel[k*width+r] = v
		}
	}
}

func packCodesGeneric(panel []byte, width int, w *Matrix, row, rows, lo, hi int) {
	block := 1
	if w.Format == Q4 {
		block = tileCodeBlock
	}
	for k := lo; k < hi; k++ {
		at := blockPlace(k-lo, block)
		column := panel[at/4*4*width+at%4:]
		for r := range width {
			column[4*r] = 0
			if r < rows {
				column[4*r] = w.code(row+r, k)
			}
		}
	}
}

// packScales writes scales[g-lo][r] and biases[g-lo][r] of groups [lo, hi).
func packScales(scales, biases []float32, width int, w *Matrix, row, rows, lo, hi int) {
	for r := range width {
		for g := lo; g < hi; g++ {
			var scale, bias float32
			if r < rows {
				scale, bias = w.scale(row+r, g)
			}
			scales[(g-lo)*width+r], biases[(g-lo)*width+r] = scale, bias
		}
	}
}
