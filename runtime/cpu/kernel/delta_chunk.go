package kernel

import (
	"sync"
	"unsafe"
)

// Many tokens of the gated delta rule, in chunks (Yang et al., Gated Delta Networks, 2025, section 3.3; the
// WY form of Yang et al., Parallelizing Linear Transformers with the Delta Rule, 2024). With Γ_t the product
// of the decays of tokens 1 to t of a chunk, and S the state before it,
//
//	A_ti = β_t (Γ_t/Γ_i) (k_t · k_i)  for i < t,   M_ti = (Γ_t/Γ_i) (q_t · k_i)  for i ≤ t
//	u = (I + A)⁻¹ r  with  r_t = β_t (v_t − Γ_t S k_t)
//	y_t = Γ_t S q_t + Σ_{i≤t} M_ti u_i
//	S ← Γ_C S + Σ_t (Γ_C/Γ_t) u_t k_tᵀ
//
// A step reads the state for each token; here products with it are matrix products, in tiles of tileFloat.
// Quotients of Γ are made as products of decays, and no decay is divided by: each row is the one before it
// times one decay, as the step rounds it. So decays of 0, and those that multiply up to less than a float32
// holds, need no care, and no logarithm is taken.

// deltaChunk is the number of tokens of a chunk, a multiple of every panelRows. Products within a chunk grow
// with it, and so do the sums that a pass over the state is shared by.
const deltaChunk = 32

// deltaNone is the magnitude below which a product of decays counts as 0. What is left of such an old state is
// far below the rounding of anything that is added to it, and products with subnormal numbers are slow.
const deltaNone = 0x1p-100

// chunks is DeltaRule in chunks.
func (d *DeltaRun) chunks() {
	s := getDeltaScratch(d)
	width, at := active.panelRows, 0
	for i := range d.Heads {
		h := &d.Heads[i]
		for r := 0; r < h.Rows; r += width {
			rows := min(width, h.Rows-r)
			panel := s.states[at:][:d.Keys*width]
			if rows < width {
				clear(panel)
			}
			turn(panel, width, h.State[r*d.Keys:], d.Keys, rows, d.Keys)
			at += len(panel)
		}
	}
	for first := 0; first < d.Tokens; first += deltaChunk {
		n := min(deltaChunk, d.Tokens-first)
		s.multiplyKeys(d, first, n)
		at = 0
		for i := range d.Heads {
			size := panelled(d.Heads[i].Rows) * d.Keys
			s.chunk(d, &d.Heads[i], s.states[at:at+size], first, n)
			at += size
		}
	}
	at = 0
	for i := range d.Heads {
		h := &d.Heads[i]
		for r := 0; r < h.Rows; r += width {
			turn(h.State[r*d.Keys:], d.Keys, s.states[at:], width, d.Keys, min(width, h.Rows-r))
			at += d.Keys * width
		}
	}
	putDeltaScratch(s)
}

// panelled returns a number of rows rounded up to whole panels.
func panelled(rows int) int {
	return (rows + active.panelRows - 1) / active.panelRows * active.panelRows
}

// deltaScratch is the scratch memory of one call. States are stored transposed, panel by panel. Fields of shape
// [deltaChunk, deltaChunk] have a column for each token whose key is used.
type deltaScratch struct {
	states           []float32 // [panels, keys, panelRows]
	q, k             []float32 // [deltaChunk, keys], without strides
	pastQ, pastK     []float32 // Γ_t q_t and −β_t Γ_t k_t
	turned           []float32 // kᵀ [keys, deltaChunk]
	qk, kk           []float32 // q_t · k_i and k_t · k_i
	m, minusA, solve []float32 // M, −A and (I + A)⁻¹
	r, u, y          []float32 // [deltaChunk, rows]

	quotients         [deltaChunk]float32 // Γ_t/Γ_i of the last t
	past, beta, minus [deltaChunk]float32 // Γ_t, β_t, −β_t Γ_t
}

var spareDelta struct {
	sync.Mutex
	list []*deltaScratch
}

// getDeltaScratch returns scratch for d; it allocates only when more calls than ever run at once, or larger ones.
func getDeltaScratch(d *DeltaRun) *deltaScratch {
	spareDelta.Lock()
	var s *deltaScratch
	if n := len(spareDelta.list); n > 0 {
		s, spareDelta.list = spareDelta.list[n-1], spareDelta.list[:n-1]
	}
	spareDelta.Unlock()
	if s == nil {
		s = &deltaScratch{}
	}
	rows, most := 0, 0
	for _, h := range d.Heads {
		rows, most = rows+panelled(h.Rows), max(most, panelled(h.Rows))
	}
	s.states = grow(s.states, rows*d.Keys)
	for _, x := range []*[]float32{&s.q, &s.k, &s.pastQ, &s.pastK, &s.turned} {
		*x = grow(*x, deltaChunk*d.Keys)
	}
	for _, x := range []*[]float32{&s.qk, &s.kk, &s.m, &s.minusA, &s.solve} {
		*x = grow(*x, deltaChunk*deltaChunk)
	}
	for _, x := range []*[]float32{&s.r, &s.u, &s.y} {
		*x = grow(*x, deltaChunk*most)
	}
	return s
}

func putDeltaScratch(s *deltaScratch) {
	spareDelta.Lock()
	spareDelta.list = append(spareDelta.list, s)
	spareDelta.Unlock()
}

// multiplyKeys makes what a chunk of n tokens has for all value heads: q, k, kᵀ and their products.
func (s *deltaScratch) multiplyKeys(d *DeltaRun, first, n int) {
	keys := d.Keys
	for t := range n {
		copy(s.q[t*keys:][:keys], d.Q[(first+t)*d.QStride:])
		copy(s.k[t*keys:][:keys], d.K[(first+t)*d.KStride:])
	}
	// Columns of tokens that the chunk lacks hold what they held: nothing reads the products with them.
	turn(s.turned, deltaChunk, s.k, keys, n, keys)
	clear(s.qk)
	clear(s.kk)
	for c := 0; c < n; c += active.panelRows {
		tiles(s.qk[c:], deltaChunk, s.turned[c:], deltaChunk, s.q, keys, n, keys, 1)
		tiles(s.kk[c:], deltaChunk, s.turned[c:], deltaChunk, s.k, keys, n, keys, 1)
	}
}

// chunk runs n tokens for one value head, whose state is in panels.
func (s *deltaScratch) chunk(d *DeltaRun, h *DeltaHead, state []float32, first, n int) {
	keys, rows, width := d.Keys, panelled(h.Rows), active.panelRows
	s.weigh(d, h, first, n)
	s.invert(n)
	active.scaleRows(s.pastQ, keys, s.q, keys, s.past[:n], keys)
	active.scaleRows(s.pastK, keys, s.k, keys, s.minus[:n], keys)
	clear(s.u[:n*rows])
	clear(s.y[:n*rows])
	if rows > h.Rows { // what fills up a panel is 0, as nothing costs less
		clear(s.r[:n*rows])
	}
	active.scaleRows(s.r, rows, h.V[first*d.VStride:], d.VStride, s.beta[:n], h.Rows)
	// A panel of the state stays in the first cache for its three products.
	for c := 0; c < rows; c += width {
		r, u, y, panel := s.r[c:], s.u[c:], s.y[c:], state[c*keys:][:width*keys]
		tiles(r, rows, panel, width, s.pastK, keys, n, keys, 1)
		tiles(y, rows, panel, width, s.pastQ, keys, n, keys, 1)
		lowerTiles(u, rows, r, rows, s.solve, deltaChunk, n)
		lowerTiles(y, rows, u, rows, s.m, deltaChunk, n)
		active.scaleRows(u, rows, u, rows, s.quotients[:n], width)
		tiles(panel, width, u, rows, s.turned, deltaChunk, keys, n, s.past[n-1])
	}
	for t := range n {
		copy(h.Y[(first+t)*d.YStride:][:h.Rows], s.y[t*rows:])
	}
}

// weigh makes M and −A, the factors of the tokens, and leaves Γ_n/Γ_i in quotients.
func (s *deltaScratch) weigh(d *DeltaRun, h *DeltaHead, first, n int) {
	const size = deltaChunk
	quotients := s.quotients[:]
	clear(quotients)
	past, none := float32(1), 0
	for t := range n {
		decay, beta := h.Decay[(first+t)*d.DecayStride], h.Beta[(first+t)*d.BetaStride]
		active.scale(quotients, quotients, decay)
		// The oldest are the smallest, as long as no decay is above 1.
		for none < t && isNone(quotients[none]) {
			quotients[none] = 0
			none++
		}
		active.scaleMul(s.minusA[t*size:][:size], quotients, s.kk[t*size:][:size], -beta)
		quotients[t] = 1
		active.mul(s.m[t*size:][:size], quotients, s.qk[t*size:][:size])
		if past *= decay; isNone(past) {
			past = 0
		}
		s.past[t], s.beta[t], s.minus[t] = past, beta, -beta*past
	}
}

func isNone(x float32) bool { return -deltaNone < x && x < deltaNone }

// invert computes (I + A)⁻¹ by forward substitution: row t is row t of I plus Σ_{i<t} −A_ti times row i. The sums over
// rows before the current block of rows are computed as one tile.
func (s *deltaScratch) invert(n int) {
	const size = deltaChunk
	tile, width, block := active.tileFloat[1], active.panelRows, min(active.tileVectors, 8)
	clear(s.solve)
	for t := range n {
		s.solve[t*size+t] = 1
	}
	for b := 0; b < n; b += block {
		for c := 0; c < b; c += width {
			tile(s.solve[b*size+c:], size, bytesOf(s.solve[c:]), 4*size, s.minusA[b*size:], size, min(block, n-b), b, 1)
		}
		for t := b + 1; t < min(b+block, n); t++ {
			for c := 0; c < t; c += width {
				tile(s.solve[t*size+c:], size, bytesOf(s.solve[b*size+c:]), 4*size, s.minusA[t*size+b:], size, 1, t-b,
					1)
			}
		}
	}
}

// tiles is sums[i][r] = keep·sums[i][r] + Σ_k x[i][k]·panel[k][r] for i < n, k < depth and r < panelRows; rows
// lie a stride apart.
func tiles(sums []float32, stride int, panel []float32, panelStride int, x []float32, xStride, n,
	depth int, keep float32) {
	size := tileSize(n, active.tileVectors)
	for i := 0; i < n; i += size {
		active.tileFloat[1](sums[i*stride:], stride, bytesOf(panel), 4*panelStride, x[i*xStride:], xStride,
			min(size, n-i), depth, keep)
	}
}

// lowerTiles is tiles for x that is 0 where k > i.
func lowerTiles(sums []float32, stride int, panel []float32, panelStride int, x []float32, xStride, n int) {
	size := tileSize(n, active.tileVectors)
	for i := 0; i < n; i += size {
		end := min(i+size, n)
		active.tileFloat[1](sums[i*stride:], stride, bytesOf(panel), 4*panelStride, x[i*xStride:],
			xStride, end-i, end, 1)
	}
}

// turn transposes: dst[k][r] = src[r][k] for r < rows and k < cols. Rows are a stride apart.
func turn(dst []float32, dstStride int, src []float32, srcStride, rows, cols int) {
	wholeRows, wholeCols := 0, 0
	if p := active.packRows; p > 0 {
		wholeRows, wholeCols = rows-rows%p, cols-cols%p
		for r := 0; r < wholeRows && wholeCols > 0; r += p {
			active.packDense[1](bytesOf(dst[r:]), 4*dstStride, bytesOf(src[r*srcStride:]), 4*srcStride, wholeCols/p)
		}
	}
	for r := range rows {
		k := 0
		if r < wholeRows {
			k = wholeCols
		}
		for ; k < cols; k++ {
			dst[k*dstStride+r] = src[r*srcStride+k]
		}
	}
}

// bytesOf returns the memory of x, as panels are passed.
func bytesOf(x []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))
}
