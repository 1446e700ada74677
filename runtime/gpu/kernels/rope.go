package kernels

import (
	"errors"
	"fmt"
	"math"
)

// RopeAngles computes the table of angles that Rope reads: (cos, sin) of (position + t)·Scale·inverse[i], where inverse
// has the reciprocals of the Dims/2 frequencies; 0 leaves a pair unrotated. All layers of a call share one table.
type RopeAngles struct {
	Dims  int
	Scale float32
}

// Launch is the dispatch for up to tokens tokens. It takes RopeAnglesArguments: Inverse f32 [Dims/2],
// Angles f32 [T, Dims/2, 2].
func (r RopeAngles) Launch(tokens int) (Launch, error) {
	if r.Dims <= 0 || r.Dims%2 != 0 {
		return Launch{}, fmt.Errorf("rope of %d dims, want an even number from 2 on", r.Dims)
	}
	return Launch{
		File: "rope", Kernel: "rope_angles", Case: r.newCase,
		Defines: append(Rope{D: 32, Dims: r.Dims, QHeads: 1}.defines(), define("ROPE_SCALE", r.Scale)...),
		Groups:  [3]int{ceil(tokens*r.Dims/2, 256), 1, 1}, Threads: [3]int{256, 1, 1},
	}, nil
}

// Reference computes what the kernel does, at a position.
func (r RopeAngles) Reference(tokens, position int, inverse, angles []float32) {
	half := r.Dims / 2
	for i := range tokens * half {
		at := (float32(i/half) + float32(position)) * r.Scale
		sin, cos := math.Sincos(float64(float32(at * inverse[i%half])))
		angles[2*i], angles[2*i+1] = float32(cos), float32(sin)
	}
}

// RowAngles is RopeAngles for rows that have a position each: (cos, sin) of position·Scale·inverse[i].
type RowAngles struct {
	Dims  int
	Scale float32
}

// Launch is the dispatch for up to rows rows. It takes RopeRowAnglesArguments: Inverse f32 [Dims/2], Positions i32 [R],
// Angles f32 [R, Dims/2, 2].
func (r RowAngles) Launch(rows int) (Launch, error) {
	l, err := RopeAngles(r).Launch(rows)
	l.Kernel, l.Case = "rope_row_angles", r.newCase
	return l, err
}

// Reference computes what the kernel does.
func (r RowAngles) Reference(positions []int32, inverse, angles []float32) {
	for i, p := range positions {
		RopeAngles(r).Reference(1, int(p), inverse, angles[i*r.Dims:])
	}
}

// HeadNorm is the norm of a head before it is rotated.
type HeadNorm int

// The norms of a head: none, RMS without a weight, RMS with a weight.
const (
	NoHeadNorm HeadNorm = iota
	PlainHeadNorm
	WeightedHeadNorm
)

// Rope rotates the heads of queries and keys (Su et al., RoFormer, 2021), after their norm if they have one, and writes
// keys and values to their caches. Without KVHeads it only rotates queries.
type Rope struct {
	// D is the width of a head, a multiple of 32. The first Dims of it are rotated, in pairs (i, i + Dims/2),
	// or (2i, 2i+1) where Traditional.
	D, Dims         int
	Traditional     bool
	QHeads, KVHeads int
	// Q, K and V are the layouts of the operands, which may be parts of one projection.
	Q, K, V             Rows
	QNorm, KNorm, VNorm HeadNorm
	Eps                 float32
	// Weight is the dtype of the weights of the norms.
	Weight DType
	// Cache is the dtype of the caches, Slots their number of positions. Ring says that position p lies in slot p mod
	// Slots.
	Cache DType
	Slots int
	Ring  bool
	// Blocks says where the positions of rows of many sequences lie in block-wise caches. Its Rows is 0 where caches
	// are not block-wise. Its Cache is that of Rope.
	Blocks Blocks
}

// ropeSimdgroups is the number of heads of a threadgroup.
const ropeSimdgroups = 4

func (r Rope) defines() []Define {
	q, k, v := r.Q.or(r.QHeads, r.D), r.K.or(r.KVHeads, r.D), r.V.or(r.KVHeads, r.D)
	cache := r.Cache
	if cache == None {
		cache = F32
	}
	return define("ROPE_D", r.D, "ROPE_DIMS", r.Dims, "ROPE_TRADITIONAL", r.Traditional,
		"ROPE_Q_HEADS", r.QHeads, "ROPE_KV_HEADS", r.KVHeads, "ROPE_Q_TOKEN", q.Token, "ROPE_Q_HEAD", q.Row,
		"ROPE_K_TOKEN", k.Token, "ROPE_K_HEAD", k.Row, "ROPE_V_TOKEN", v.Token, "ROPE_V_HEAD", v.Row,
		"ROPE_Q_NORM", int(r.QNorm), "ROPE_K_NORM", int(r.KNorm), "ROPE_V_NORM", int(min(r.VNorm, PlainHeadNorm)),
		"ROPE_EPS", r.Eps,
		"ROPE_SLOTS", max(r.Slots, 1), "ROPE_RING", r.Ring, "ROPE_BLOCK_ROWS", r.Blocks.Rows, "ROPE_COLUMNS",
		max(r.Blocks.Columns, 1), "ROPE_WEIGHT_T", r.Weight.text(), "ROPE_CACHE_T", cache.text(),
		"ROPE_SIMDGROUPS", ropeSimdgroups)
}

func (r Rope) check() error {
	switch {
	case r.D <= 0 || r.D%32 != 0 || r.D > 1024:
		return fmt.Errorf("heads of %d elements, want a multiple of 32 up to 1024", r.D)
	case r.Dims <= 0 || r.Dims%2 != 0 || r.Dims > r.D:
		return fmt.Errorf("%d dims are rotated, want an even number from 2 to %d", r.Dims, r.D)
	case r.QHeads < 0 || r.KVHeads < 0 || r.QHeads+r.KVHeads == 0:
		return fmt.Errorf("%d heads of queries and %d of keys", r.QHeads, r.KVHeads)
	case r.VNorm == WeightedHeadNorm:
		return errors.New("values have no weight of their norm")
	}
	if r.KVHeads > 0 {
		if err := r.Blocks.check(); r.Blocks.Rows > 0 && err != nil {
			return err
		}
		if r.Blocks.Rows == 0 && r.Slots <= 0 {
			return fmt.Errorf("a cache of %d slots", r.Slots)
		}
		return needFloat("the cache", r.Cache)
	}
	return nil
}

// Launch is the dispatch for up to tokens tokens. It takes RopeArguments: QWeight and KWeight [D], Angles of
// RopeAngles, QOut f32 [T, QHeads, D], KCache and VCache [KVHeads, Slots, D]. With Blocks these are [KVHeads, units,
// Rows, D], and there are Positions and Sequences i32 [T] and Blocks i32 [sequences, Columns].
func (r Rope) Launch(tokens int) (Launch, error) {
	if err := r.check(); err != nil {
		return Launch{}, fmt.Errorf("rope: %w", err)
	}
	return Launch{
		File: "rope", Kernel: "rope", Case: r.newCase,
		Defines: append(r.defines(), define("ROPE_SCALE", float32(1))...),
		Groups:  [3]int{ceil(tokens*(r.QHeads+2*r.KVHeads), ropeSimdgroups), 1, 1},
		Threads: [3]int{ropeSimdgroups * 32, 1, 1},
	}, nil
}

// Reference computes what the kernel does, at a position.
func (r Rope) Reference(tokens, position int, q, k, v, qWeight, kWeight, angles, qOut, kCache, vCache []float32) {
	slots := r.Slots
	r.reference(tokens, slots, func(t int) int {
		if r.Ring {
			return (position + t) % slots
		}
		return position + t
	}, q, k, v, qWeight, kWeight, angles, qOut, kCache, vCache)
}

// ReferenceInBlocks computes what the kernel computes with Blocks, in caches of units units.
func (r Rope) ReferenceInBlocks(units int, positions, sequences, blocks []int32, q, k, v, qWeight, kWeight, angles,
	qOut, kCache, vCache []float32) {
	r.reference(len(positions), units*r.Blocks.Rows, func(t int) int {
		if positions[t] < 0 {
			return -1
		}
		return r.Blocks.row(blocks, sequences[t], positions[t])
	}, q, k, v, qWeight, kWeight, angles, qOut, kCache, vCache)
}

// reference computes what the kernel computes. place returns the row of a head's cache, out of slots rows, for a
// token's keys and values; it is negative where they are not written.
func (r Rope) reference(tokens, slots int, place func(t int) int, q, k, v, qWeight, kWeight, angles, qOut,
	kCache, vCache []float32) {
	head := make([]float64, r.D)
	read := func(x []float32, at int, norm HeadNorm, weight []float32) {
		for i := range head {
			head[i] = float64(x[at+i])
		}
		if norm != NoHeadNorm {
			f := inverseRMS(head, r.Eps)
			for i := range head {
				if head[i] *= f; norm == WeightedHeadNorm {
					head[i] *= float64(weight[i])
				}
			}
		}
	}
	half := r.Dims / 2
	rotate := func(t int) {
		for i := range half {
			a, b := i, i+half
			if r.Traditional {
				a, b = 2*i, 2*i+1
			}
			cos, sin := float64(angles[2*(t*half+i)]), float64(angles[2*(t*half+i)+1])
			head[a], head[b] = head[a]*cos-head[b]*sin, head[a]*sin+head[b]*cos
		}
	}
	qs, ks, vs := r.Q.or(r.QHeads, r.D), r.K.or(r.KVHeads, r.D), r.V.or(r.KVHeads, r.D)
	for t := range tokens {
		for h := range r.QHeads {
			read(q, qs.at(t, h), r.QNorm, qWeight)
			rotate(t)
			for i, x := range head {
				qOut[(t*r.QHeads+h)*r.D+i] = float32(x)
			}
		}
		slot := place(t)
		if slot < 0 {
			continue
		}
		for h := range r.KVHeads {
			read(k, ks.at(t, h), r.KNorm, kWeight)
			rotate(t)
			for i, x := range head {
				kCache[(h*slots+slot)*r.D+i] = r.Cache.store(float32(x))
			}
			read(v, vs.at(t, h), r.VNorm, nil)
			for i, x := range head {
				vCache[(h*slots+slot)*r.D+i] = r.Cache.store(float32(x))
			}
		}
	}
}

// CacheWrite copies rows to positions of a cache [Heads, Slots, D].
type CacheWrite struct {
	D, Heads int
	X        Rows
	Cache    DType
	Slots    int
	// Ring says that position p lies in slot p mod Slots.
	Ring bool
}

// Launch is the dispatch for up to tokens tokens. It takes CacheWriteArguments.
func (c CacheWrite) Launch(tokens int) (Launch, error) {
	if c.D <= 0 || c.Heads <= 0 || c.Slots <= 0 {
		return Launch{}, fmt.Errorf("cache write: a cache [%d, %d, %d]", c.Heads, c.Slots, c.D)
	}
	if err := needFloat("the cache", c.Cache); err != nil {
		return Launch{}, fmt.Errorf("cache write: %w", err)
	}
	r := Rope{D: c.D, Dims: 2, QHeads: 1, KVHeads: c.Heads, K: c.X, Cache: c.Cache, Slots: c.Slots, Ring: c.Ring}
	return Launch{
		File: "rope", Kernel: "cache_write", Case: c.newCase,
		Defines: append(r.defines(), define("ROPE_SCALE", float32(1))...),
		Groups:  [3]int{ceil(tokens*c.Heads*c.D, 256), 1, 1}, Threads: [3]int{256, 1, 1},
	}, nil
}

// Reference computes what the kernel does, at a position.
func (c CacheWrite) Reference(tokens, position int, x, cache []float32) {
	rows := c.X.or(c.Heads, c.D)
	for t := range tokens {
		slot := position + t
		if c.Ring {
			slot %= c.Slots
		}
		for h := range c.Heads {
			for d := range c.D {
				cache[(h*c.Slots+slot)*c.D+d] = c.Cache.store(x[rows.at(t, h)+d])
			}
		}
	}
}
