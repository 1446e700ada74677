package kernel

// A few vectors on the integer path, as those of a handful of sequences or of drafts: a level may multiply them with
// stored rows, which it turns in registers. To unpack a panel costs more than their products.

// fewRows is how many rows fewInteger multiplies at a time.
const fewRows = 16

// isFew reports whether the vectors of a are multiplied with stored rows of w.
func (a *Activations) isFew(w *Matrix) bool {
	return active.fewVectors > 0 && a.vectors <= fewLimit && w.Group <= fewGroup(w.Format) && w.Rows >= active.panelRows
}

// fewGroup is the largest group of codes of a format that fewInteger takes.
func fewGroup(f Format) int { return 512 / f.Bits() }

// fewLimit is the largest number of vectors for which it costs less to turn rows anew for every fewVectors of them than
// to unpack a panel: 6.0 and 5.6 GB/s of a matrix from memory with 24 vectors, 4.5 and 4.9 with 32, on two cores of an
// EPYC (docs/notes/measured-cpu.md).
const fewLimit = 24

// matMulFew is matMulInteger for few vectors, with the same bits. Rows at the end that are fewer than a panel has go to
// matMulInteger itself.
func matMulFew(y []float32, stride int, w *Matrix, a *Activations) {
	s := getScratch(a.vectors)
	width, multiply := active.panelRows, active.fewInteger[w.bitsIndex()][w.scaleIndex()]
	whole := w.Rows / width * width
	for row := 0; row < whole; row += width {
		clear(s.sums)
		for lo := 0; lo < w.Cols; lo += integerDepth {
			hi := min(lo+integerDepth, w.Cols)
			s.packScales(w, row, width, lo/w.Group, hi/w.Group)
			for r := 0; r < width; r += fewRows {
				data := w.Data[(row+r)*w.rowBytes()+lo*w.Format.Bits()/8:]
				for i, n := 0, 0; i < a.vectors; i += n {
					n = tileSize(a.vectors-i, active.fewVectors)
					at := i*a.groupStride + lo/w.Group
					multiply(s.sums[i*width+r:], data, w.rowBytes(), s.scales[r:], s.biases[r:],
						a.codes[i*a.codeStride+lo:], a.codeStride, a.scales[at:], a.sums[at:], a.groupStride, n,
						(hi-lo)/w.Group, w.Group)
				}
			}
		}
		s.store(y[row:], stride, 0, a.vectors, width)
	}
	putScratch(s)
	if whole < w.Rows {
		rest := w.Slice(whole, w.Rows)
		matMulInteger(y[whole:], stride, &rest, a)
	}
}
