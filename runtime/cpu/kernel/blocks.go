package kernel

// A level with a matrix unit multiplies blocks of 16 vectors with 16 rows at a time. Rows are unpacked as they
// are, and it is the vectors that are turned, once for all matrices.
const (
	blockSize = 16
	// blockDepth is how many columns are unpacked at a time, so that rows stay in the first cache for all
	// blocks of vectors; a multiple of every group.
	blockDepth = 512
	// blockVectors is the least number of vectors that are multiplied in blocks: for fewer, tiles are as
	// fast and need no turning.
	blockVectors = 48
)

// blocked says that the codes of a are in blocks.
func (a *Activations) blocked() bool {
	return a.layout.Path == Integer && !a.layout.Alone && a.vectors >= blockVectors && active.blockInteger != nil
}

// blockPiece returns the number of columns that one instruction of the unit multiplies.
func blockPiece(group int) int { return min(group, 64) }

// resetBlocks makes room for blocks; the vectors that the last one lacks are zero.
func (a *Activations) resetBlocks() {
	blocks, groups := (a.vectors+blockSize-1)/blockSize, a.cols/a.layout.Group
	a.blocks = grow(a.blocks, blocks*a.cols*blockSize)
	a.blockScales = grow(a.blockScales, blocks*groups*blockSize)
	a.blockSums = grow(a.blockSums, blocks*groups*blockSize)
	if a.vectors%blockSize != 0 {
		last := blocks - 1
		clear(a.blocks[last*a.cols*blockSize:])
		clear(a.blockScales[last*groups*blockSize:])
		clear(a.blockSums[last*groups*blockSize:])
	}
}

// turn puts vectors [lo, hi) of codes, scales and sums into their blocks: blocks[b][k/4][i][k%4] of block b and
// vector i of it, blockScales[b][g][i] and blockSums[b][g][i].
func (a *Activations) turn(lo, hi int) {
	groups := a.cols / a.layout.Group
	for i := lo; i < hi; i++ {
		b, at := i/blockSize, i%blockSize
		scales, sums := a.blockScales[b*groups*blockSize+at:], a.blockSums[b*groups*blockSize+at:]
		for g := range groups {
			scales[g*blockSize] = a.scales[i*a.groupStride+g]
			sums[g*blockSize] = a.sums[i*a.groupStride+g]
		}
		codes, block := a.codes[i*a.codeStride:][:a.cols], a.blocks[b*a.cols*blockSize:][:a.cols*blockSize]
		for k := 0; k < len(codes); k += 4 {
			copy(block[k*blockSize+4*at:][:4], codes[k:k+4])
		}
	}
}

// matMulBlocks is MatMul of all rows of w for codes in blocks.
func matMulBlocks(y []float32, stride int, w *Matrix, a *Activations) {
	const height = 2 * blockSize // rows that meet the vectors while they are in the first cache
	blocks, groups, piece := (a.vectors+blockSize-1)/blockSize, a.cols/w.Group, blockPiece(w.Group)
	s := getScratch(blocks * blockSize)
	for row := 0; row < w.Rows; row += height {
		end := min(row+height, w.Rows)
		clear(s.sums)
		for lo := 0; lo < w.Cols; lo += blockDepth {
			hi := min(lo+blockDepth, w.Cols)
			s.packScales(w, row, end-row, lo/w.Group, hi/w.Group)
			for r := row; r < end; r += blockSize {
				data := w.Data[r*w.rowBytes()+lo*w.Format.Bits()/8:]
				active.blockRows[w.bitsIndex()](s.codes[(r-row)*blockDepth:], data, w.rowBytes(),
					min(blockSize, end-r), (hi-lo)/piece, piece)
			}
			at := lo / w.Group * blockSize
			active.blockInteger(s.sums, s.codes, a.blocks[lo*blockSize:], s.scales, s.biases,
				a.blockScales[at:], a.blockSums[at:],
				(end-row+blockSize-1)/blockSize, blockSize*blockDepth, active.panelRows, blocks, a.cols*blockSize,
				groups*blockSize, (hi-lo)/w.Group, w.Group)
		}
		for b := range blocks {
			for r := row; r < end; r += blockSize {
				active.blockStore(y[b*blockSize*stride+r:], stride, s.sums[(b*height+r-row)*blockSize:],
					min(blockSize, a.vectors-b*blockSize), min(blockSize, end-r))
			}
		}
	}
	putScratch(s)
}
