package cpu

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/cpu/kernel"
)

// keyBlock is the number of keys whose scores are computed at a time. They and their values stay in a CPU cache between
// the two products.
const keyBlock = 256

// queryBlock is the number of tokens of a chunk that a thread takes at a time.
const queryBlock = 16

// attention is cached_attention bound to a plan: online softmax (Milakov and Gimelshein, 2018) over blocks
// of keys (Dao et al., FlashAttention, 2022).
type attention struct {
	q, out         *value
	k, v           *state
	position       *value
	scale          float32
	window         int
	heads, kvHeads int
	queries, slots int
	width, vWidth  int
	keys, values   []kernel.Matrix // for each row of the batch and each head of the cache

	// For single tokens the keys are divided among threads. These are the partial results of the parts.
	parts                  int
	partialOut, partialMax *slot
	partialSum             *slot

	ended func() bool // reports whether the call has ended; blocks over many keys take long
}

func bindAttention(b *binder) bool {
	attrs, q := ir.Attrs[ir.CachedAttentionAttrs](b.Op), b.Input("q")
	kv, vv := b.Input("k"), b.Input("v")
	a := &attention{q: q, k: cacheOf(b, "k"), v: cacheOf(b, "v"), position: b.register("position"), scale: attrs.Scale,
		window: attrs.Window, ended: b.x.ended}
	if q == nil || !q.isFloats() || len(q.shape) != 4 || q.shape[3] > 1 && q.stride[3] != 1 || a.k == nil ||
		a.v == nil || a.position == nil {
		return false
	}
	batch := q.shape[0]
	a.heads, a.queries, a.width = q.shape[1], q.shape[2], q.shape[3]
	a.kvHeads, a.slots, a.vWidth = kv.shape[1], kv.shape[2], vv.shape[3]
	if a.kvHeads == 0 || a.heads%a.kvHeads != 0 || kv.shape[0] != batch || vv.shape[0] != batch ||
		vv.shape[1] != a.kvHeads ||
		vv.shape[2] != a.slots || kv.shape[3] != a.width || a.queries == 0 {
		return false
	}
	// The result is stored token by token, as the projection after it reads it.
	shape := []int{batch, a.heads, a.queries, a.vWidth}
	stride := []int{a.queries * a.heads * a.vWidth, a.vWidth, a.heads * a.vWidth, 1}
	if dims, ok := b.Dims(b.Op.Result().Type); !ok || !slices.Equal(dims, shape) {
		return false
	}
	a.out = b.result(0, stride)
	for i := range batch * a.kvHeads {
		a.keys = append(a.keys, a.k.matrix(a.slots, a.width, i*a.slots*a.width))
		a.values = append(a.values, a.v.matrix(a.slots, a.vWidth, i*a.slots*a.vWidth))
	}
	if a.queries == 1 {
		a.bindToken(b)
	} else {
		a.bindChunk(b)
	}
	b.plan.steps[len(b.plan.steps)-1].cost = a.cost
	return true
}

// cost returns the bytes of caches that a call reads, and the operations of the products of queries with keys and of
// weights with values.
func (a *attention) cost() (bytes, flops int) {
	at, last := int(a.position.slot.n), int(a.position.slot.n)+a.queries-1
	first, _ := a.visible(at, last)
	for i := range a.queries {
		lo, hi := a.visible(at+i, last)
		flops += (hi - lo) * a.heads
	}
	of := func(m kernel.Matrix) int { return m.Bytes(last + 1 - first) }
	for i := range a.keys {
		bytes += of(a.keys[i]) + of(a.values[i])
	}
	return bytes, 2 * flops * (a.width + a.vWidth) * a.q.shape[0]
}

// cacheOf returns the state whose content the operand is, or nil.
func cacheOf(b *binder, operand string) *state {
	v := b.Input(operand)
	load := b.Op.Input(operand)
	for load.Def != nil && load.Def.Def.Name == "astype" {
		load = load.Def.Input("x")
	}
	if v == nil || v.kind != dense || load.Def == nil || load.Def.Def.Name != "load" ||
		!b.InPlaceLoads[load.Def] || len(v.shape) != 4 {
		return nil
	}
	s := b.x.states[load.Def.Buffer]
	if !s.dtype.IsFloat() && s.words == nil || v.slot != s.slot {
		return nil
	}
	return s
}

// check returns an error for a position outside the cache, as the reference kernel does.
func (a *attention) check() error {
	if err := eval.CheckCache(int(a.position.slot.n), a.queries, a.slots, a.window); err != nil {
		return fmt.Errorf("cached_attention: %w", err)
	}
	return nil
}

// visible returns the positions [lo, hi) that a query at a position attends to and that are still in the cache.
func (a *attention) visible(at, last int) (lo, hi int) {
	lo = max(0, last-a.slots+1)
	if a.window > 0 {
		lo = max(lo, at-a.window+1)
	}
	return lo, at + 1
}

// eachRun splits positions [lo, hi) into runs that are contiguous in the slots.
func (a *attention) eachRun(lo, hi int, f func(position, slot, n int)) {
	for lo < hi {
		slot := lo % a.slots
		n := min(hi-lo, a.slots-slot)
		f(lo, slot, n)
		lo += n
	}
}

// work is the scratch memory of one call of a loop body.
type work struct {
	query, scores, max, sum, acc []float32
	half                         []byte
	rows                         []float32 // decoded rows of a cache with 8-bit codes
	queries                      kernel.Activations
	delta                        kernel.DeltaRun
}

var spareWork struct {
	sync.Mutex
	list []*work
}

func getWork() *work {
	spareWork.Lock()
	defer spareWork.Unlock()
	if n := len(spareWork.list); n > 0 {
		w := spareWork.list[n-1]
		spareWork.list = spareWork.list[:n-1]
		return w
	}
	return &work{}
}

func putWork(w *work) {
	spareWork.Lock()
	spareWork.list = append(spareWork.list, w)
	spareWork.Unlock()
}

func grow(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n)
	}
	return s[:n]
}

// manyQueries is the number of queries from which on the keys of a block are multiplied as a matrix.
const manyQueries = 32

// start prepares w for a number of queries.
func (w *work) start(queries, width, vWidth int) {
	w.query, w.acc = grow(w.query, queries*width), grow(w.acc, queries*vWidth)
	w.scores = grow(w.scores, queries*keyBlock)
	w.max, w.sum = grow(w.max, queries), grow(w.sum, queries)
	clear(w.acc)
	clear(w.sum)
	for i := range w.max {
		w.max[i] = float32(math.Inf(-1))
	}
}

// add adds n ≤ keyBlock keys, from a slot on, to the sums of the queries. bounds returns which of the keys a query
// attends to, as a range of their numbers.
func (a *attention) add(w *work, queries, head, slot, n int, bounds func(query int) (lo, hi int)) {
	scores := w.scores[:queries*n]
	if queries >= manyQueries {
		// With this many queries it pays to unpack the keys for the tiled product.
		keys := a.keys[head].Slice(slot, slot+n)
		kernel.MatMul(scores, n, &keys, &w.queries, 0, n)
	} else {
		kernel.AttentionScores(scores, n, w.query, a.width, queries, &a.keys[head], slot, slot+n)
	}
	w.weigh(scores, n, queries, a.vWidth, bounds)
	kernel.AttentionValues(w.acc, a.vWidth, scores, n, queries, &a.values[head], slot, slot+n)
}

// weigh turns the scores [queries, n] of some keys into weights, relative to the highest score so far. If the highest
// score rises, it rescales the sums of earlier keys. bounds returns which of the keys a query attends to.
func (w *work) weigh(scores []float32, n, queries, vWidth int, bounds func(query int) (lo, hi int)) {
	for i := range queries {
		lo, hi := bounds(i)
		lo, hi = min(max(lo, 0), n), max(min(hi, n), 0)
		row := scores[i*n : (i+1)*n]
		if lo >= hi {
			clear(row)
			continue
		}
		clear(row[:lo])
		clear(row[hi:])
		seen := row[lo:hi]
		if high := kernel.Max(seen); high > w.max[i] {
			if w.sum[i] != 0 {
				// The exponential of a difference is computed by the vector function on one element, so that it is
				// rounded like all others.
				shift := [1]float32{w.max[i]}
				kernel.Exp(shift[:], shift[:], high)
				w.sum[i] *= shift[0]
				acc := w.acc[i*vWidth : (i+1)*vWidth]
				kernel.Scale(acc, acc, shift[0])
			}
			w.max[i] = high
		}
		w.sum[i] += kernel.Exp(seen, seen, w.max[i])
	}
}

// bindChunk divides the cache's heads and blocks of tokens among the threads.
func (a *attention) bindChunk(b *binder) {
	group, batch := a.heads/a.kvHeads, a.q.shape[0]
	blocks := (a.queries + queryBlock - 1) / queryBlock
	// The last blocks attend to the most keys, so they start first.
	run := b.parallel(batch*a.kvHeads*blocks, 1, func(lo, hi int) {
		w := getWork()
		for i := lo; i < hi; i++ {
			a.block(w, i%(batch*a.kvHeads), blocks-1-i/(batch*a.kvHeads), group)
		}
		putWork(w)
	})
	b.step("attention", func() error {
		if err := a.check(); err != nil {
			return err
		}
		run()
		return nil
	})
}

// block computes a group of query heads of one cache head for a block of tokens.
func (a *attention) block(w *work, head, block, group int) {
	first := block * queryBlock
	tokens := min(queryBlock, a.queries-first)
	queries := tokens * group
	w.start(queries, a.width, a.vWidth)
	in, n := a.q.floats(), head/a.kvHeads
	for i := range tokens {
		for g := range group {
			from := n*a.q.stride[0] + (head%a.kvHeads*group+g)*a.q.stride[1] + (first+i)*a.q.stride[2]
			kernel.Scale(w.query[(i*group+g)*a.width:][:a.width], in[from:from+a.width], a.scale)
		}
	}
	if queries >= manyQueries {
		w.queries.Reset(kernel.Layout{Path: kernel.Exact, Format: kernel.F32}, queries, a.width)
		w.queries.Fill(w.query, a.width, 0, queries)
	}
	position := int(a.position.slot.n)
	last := position + a.queries - 1
	lo, _ := a.visible(position+first, last)
	_, hi := a.visible(position+first+tokens-1, last)
	a.eachRun(lo, hi, func(at, slot, count int) {
		for k := 0; k < count && !a.ended(); k += keyBlock {
			from := at + k
			a.add(w, queries, head, slot+k, min(keyBlock, count-k), func(query int) (int, int) {
				lo, hi := a.visible(position+first+query/group, last)
				return lo - from, hi - from
			})
		}
	})
	out := a.out.slot.f
	for i := range tokens {
		for g := range group {
			at := i*group + g
			to := n*a.out.stride[0] + (head%a.kvHeads*group+g)*a.out.stride[1] + (first+i)*a.out.stride[2]
			kernel.Scale(out[to:to+a.vWidth], w.acc[at*a.vWidth:(at+1)*a.vWidth], 1/w.sum[at])
		}
	}
}

// tokenPart is the number of keys in a thread's part for a single token.
const tokenPart = 2 * keyBlock

// bindToken divides the cache's heads and parts of the keys among the threads. Partial results are then added in the
// order of the parts.
func (a *attention) bindToken(b *binder) {
	group, batch := a.heads/a.kvHeads, a.q.shape[0]
	heads := batch * a.kvHeads
	// A part for every tokenPart slots, and one more for a ring that wraps around.
	a.parts = (a.slots+tokenPart-1)/tokenPart + 1
	a.partialOut, a.partialMax, a.partialSum = b.scratch(heads*a.parts*group*a.vWidth), b.scratch(heads*a.parts*group),
		b.scratch(heads*a.parts*group)
	var parts int
	run := func(lo, hi int) {
		w := getWork()
		for i := lo; i < hi; i++ {
			a.part(w, i%heads, i/heads, group)
		}
		putWork(w)
	}
	join := func(lo, hi int) {
		for head := lo; head < hi; head++ {
			a.join(head, parts, group)
		}
	}
	each := b.x.run
	b.step("attention", func() error {
		if err := a.check(); err != nil {
			return err
		}
		parts = a.count()
		each(heads*parts, 1, run)
		each(heads, max(1, (8<<10)/(parts*group*a.vWidth)), join)
		return nil
	})
}

// count returns the number of parts that the keys of a single token are divided into.
func (a *attention) count() int {
	position := int(a.position.slot.n)
	lo, hi := a.visible(position, position)
	return max(1, (hi-lo+tokenPart-1)/tokenPart)
}

// part computes a group of query heads over a part of the keys.
func (a *attention) part(w *work, head, part, group int) {
	w.start(group, a.width, a.vWidth)
	in, n := a.q.floats(), head/a.kvHeads
	for g := range group {
		from := n*a.q.stride[0] + (head%a.kvHeads*group+g)*a.q.stride[1]
		kernel.Scale(w.query[g*a.width:][:a.width], in[from:from+a.width], a.scale)
	}
	position := int(a.position.slot.n)
	lo, hi := a.visible(position, position)
	lo, hi = lo+part*tokenPart, min(hi, lo+(part+1)*tokenPart)
	a.eachRun(lo, hi, func(_, slot, count int) {
		for k := 0; k < count; k += keyBlock {
			n := min(keyBlock, count-k)
			a.add(w, group, head, slot+k, n, func(int) (int, int) { return 0, n })
		}
	})
	at := (head*a.parts + part) * group
	copy(a.partialOut.f[at*a.vWidth:], w.acc)
	copy(a.partialMax.f[at:], w.max)
	copy(a.partialSum.f[at:], w.sum)
}

// join adds up the parts of a head.
func (a *attention) join(head, parts, group int) {
	n, out := head/a.kvHeads, a.out.slot.f
	for g := range group {
		high := float32(math.Inf(-1))
		for p := range parts {
			high = max(high, a.partialMax.f[(head*a.parts+p)*group+g])
		}
		to := n*a.out.stride[0] + (head%a.kvHeads*group+g)*a.out.stride[1]
		row := out[to : to+a.vWidth]
		clear(row)
		var sum float32
		for p := range parts {
			at := (head*a.parts+p)*group + g
			share := [1]float32{a.partialMax.f[at]}
			kernel.Exp(share[:], share[:], high)
			sum += float32(share[0] * a.partialSum.f[at])
			kernel.Axpy(row, share[0], a.partialOut.f[at*a.vWidth:(at+1)*a.vWidth])
		}
		kernel.Scale(row, row, 1/sum)
	}
}
