package quantize

import (
	"math"

	"github.com/etc-ml/etc/ir/numeric/dot"
)

// walkCols is the number of neighbouring columns whose codes one walk moves. Its time grows with the columns of a row,
// where that of a walk over all of them would grow with their square.
const walkCols = 256

// Limits of a walk: the moves that it makes, the moves without a better result after which it ends, and the moves for
// which a code that has moved stays where it is.
const (
	walkMoves    = 256
	walkPatience = 64
	walkTenure   = 10
)

// walk lowers the squared error of the output by a walk over the codes of each row, walkCols columns at a time.
// [solverTile.sweep] ends where no code can be changed alone for the better; a walk finds codes that are better when
// several of them change.
func (t *solverTile) walk() {
	size := t.scheme.GroupSize
	for first := 0; first < t.cols; first += walkCols {
		n := min(walkCols, t.cols-first)
		slopes := dot.Dense(resized(t.slopes, t.rows*n), t.rows, n)
		t.slopes = slopes.Values
		dot.Multiply(slopes, t.change, t.moments.Part(first, 0, n, t.cols))
		own := t.moments.Part(first, first, n, n)
		for r := range t.rows {
			codes := t.codes[r*t.cols+first:][:n]
			t.walker.start(codes, slopes.Row(r), own, t.scales[t.groupAt(r, first):], size)
			if !t.walker.run(own, t.levels) {
				continue
			}
			w, change := t.w.Row(r)[first:first+n], t.change.Row(r)[first:first+n]
			for i, q := range t.walker.best {
				g := t.groupAt(r, first+i/size*size)
				codes[i] = uint8(q)
				change[i] = float32(t.scales[g]*q) + t.biases[g] - w[i]
			}
		}
	}
}

// walker is a walk over codes of a row.
type walker struct {
	// Each has an element for every code of the row.
	slope []float32 // half the derivative of the squared error by the quantized weight
	scale []float32 // the scale of the weight's group
	own   []float32 // half of what a step of the code adds to the squared error where the slope is 0
	codes []float32 // the codes now
	best  []float32 // the codes with the least error so far
	until []int     // the number of the move from which on the code may move again
}

// start prepares a walk from codes, in groups of size with the given scales. own are the moments of the codes' columns.
func (x *walker) start(codes []uint8, slope []float32, own dot.Matrix, scales []float32, size int) {
	n := len(codes)
	x.slope, x.scale, x.own = slope, resized(x.scale, n), resized(x.own, n)
	x.codes, x.best, x.until = resized(x.codes, n), resized(x.best, n), resized(x.until, n)
	for i, q := range codes {
		scale := scales[i/size]
		x.scale[i] = scale
		x.own[i] = float32(0.5 * float32(float32(scale*scale)*own.Row(i)[i]))
		x.codes[i], x.until[i] = float32(q), 0
	}
	copy(x.best, x.codes)
}

// run is a tabu search (Glover, 1989): the code whose step up or down is best takes it, even where the error grows, and
// then stays for some moves. It reports whether best is better than what the walk began with.
func (x *walker) run(own dot.Matrix, levels float32) bool {
	now, least, leastAt := float32(0), float32(0), 0 // halves of squared errors, less that of the beginning
	at, change := x.next(own.Row(0), 0, 1, 0, levels)
	for move := 1; at >= 0 && move <= walkMoves && move <= leastAt+walkPatience; move++ {
		step := x.scale[at]
		if float32(x.slope[at]*step) > 0 {
			step = -step
			x.codes[at]--
		} else {
			x.codes[at]++
		}
		now += change
		x.until[at] = move + walkTenure
		if now < least {
			least, leastAt = now, move
			copy(x.best, x.codes)
		}
		at, change = x.next(own.Row(at), step, move+1, least-now, levels)
	}
	return leastAt > 0
}

// next counts a step of the code whose moments are given, and gives the code that the next move is for, with what that
// adds to half the squared error; -1 where none can move. A code goes against its slope, up to levels. One that has to
// stay moves all the same where that adds less than record.
func (x *walker) next(moments []float32, step float32, move int, record, levels float32) (at int, least float32) {
	at, least = -1, math.MaxFloat32
	n := len(moments)
	slope, scale, own := x.slope[:n], x.scale[:n], x.own[:n]
	for i, m := range moments {
		s := slope[i] + float32(m*step)
		slope[i] = s
		d := float32(s * scale[i])
		e := own[i] - math.Float32frombits(math.Float32bits(d)&^(1<<31))
		if e < least && (x.until[i] <= move || e < record) &&
			(d > 0 && x.codes[i] > 0 || d <= 0 && x.codes[i] < levels) {
			at, least = i, e
		}
	}
	return at, least
}
