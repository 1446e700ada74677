package kernels

import "fmt"

// Tuning says how a product of a few vectors with a stored weight is divided. Zero fields are filled in.
type Tuning struct {
	// Rows is the number of rows of a lane; 4 unless there are many vectors.
	Rows int
	// Lanes is the number of lanes that share rows: 8, 16 or 32. Fewer suit short rows.
	Lanes int
	// Split is the number of simdgroups that share rows. Sets is the number of such sets of simdgroups in a
	// threadgroup.
	Split, Sets int
	// Bytes is the number of bytes of a row that a lane reads at once: 8, 16 or 32.
	Bytes int
	// Chunk is the number of columns that are in threadgroup memory at a time.
	Chunk int
	// Permute says that codes of 4 bits are converted to floats with byte permutations, which are one instruction on
	// NVIDIA.
	Permute bool
	// Direct says that nothing is staged in threadgroup memory: every lane reads the columns of the vector that it
	// multiplies. It is for one vector that fits into the registers of a few lanes, and requires that the norm's
	// weights start at a multiple of 16 bytes.
	Direct bool
	// Tiles, if not 0, has tensor cores multiply tiles of 16 rows of weights with 2 to 8 vectors. It is the number of
	// simdgroups of a threadgroup. The other fields are not used then.
	Tiles int
	// Once, if not zero, has the first product of a mixture of experts read an expert's weights once for all tokens.
	// The other fields are not used then.
	Once Once
	// Stream, if not zero, divides the product in another way. The other fields are not used then.
	Stream Stream
}

// The forms of a product. Those from byStream on have fields of their own in a Tuning, and use no other ones.
const (
	byLanes = iota
	byDirect
	byStream
	byOnce
	byTiles
)

// form returns the form of the product.
func (t Tuning) form() int {
	switch {
	case t.Stream != (Stream{}):
		return byStream
	case t.Once != (Once{}):
		return byOnce
	case t.Tiles != 0:
		return byTiles
	case t.Direct:
		return byDirect
	}
	return byLanes
}

// Near reports whether t and o differ in one respect: the rows of a lane, the lanes that share a row (with the same
// sets or simdgroups), the size of the threadgroup, or the bytes read at a time. All streamed variants are near each
// other. So are all variants with Tiles, and all with Once. Direct variants are near direct ones only.
func (t Tuning) Near(o Tuning) bool {
	form := t.form()
	if form != o.form() {
		return false
	}
	if form >= byStream {
		return true
	}
	n := 0
	for _, differ := range []bool{t.Rows != o.Rows, t.Bytes != o.Bytes, t.Chunk != o.Chunk, t.Permute != o.Permute} {
		if differ {
			n++
		}
	}
	switch {
	case t.Lanes == o.Lanes && t.Split == o.Split && t.Sets == o.Sets:
	case t.Lanes == o.Lanes && t.Split == o.Split, t.Sets == o.Sets, t.Split*t.Sets == o.Split*o.Sets:
		n++
	default:
		n += 2
	}
	return n == 1
}

func (t Tuning) block() int   { return t.Rows * (32 / t.Lanes) * t.Sets }
func (t Tuning) threads() int { return t.Split * t.Sets * 32 }

// tunings returns the variants worth measuring for a product with rows rows of K columns on a target, the default
// first. experts is 1, or the number of stacked matrices that share the columns. It is long because it is a list of
// variants, with the reason for each group of them.
func (v Vectors) tunings(target Target, rows, experts int) []Tuning {
	bytes := v.bytes()
	columns := bytes * 8 / v.Bits
	first := Tuning{Rows: max(1, min(4, 16/v.M)), Lanes: 32, Split: 1, Sets: 4, Bytes: bytes, Permute: target == CUDA}
	for first.Lanes > 8 && columns*first.Lanes >= 2*v.K {
		first.Lanes /= 2
	}
	if target == CUDA {
		first = v.cuda(first, rows)
	}
	var out []Tuning
	seen := map[Tuning]bool{}
	add := func(t Tuning) {
		if full, err := v.tune(t, 2, experts); err == nil && !seen[full] {
			seen[full] = true
			out = append(out, t)
		}
	}
	add(first)
	try := func(bytes, rows, split, simds int) {
		add(Tuning{Rows: rows, Lanes: first.Lanes, Split: split, Sets: max(1, simds/split), Bytes: bytes,
			Permute: first.Permute})
	}
	allRows, splits, allSimds := []int{1, 2, 4, 8}, []int{1, 2, 4}, []int{4, 8, 16}
	// Variants that differ from the default in one respect come first, since a tuner may have little time: it compiles
	// some ten kernels a second.
	for _, rows := range allRows[:3] {
		try(first.Bytes, rows, first.Split, first.Split*first.Sets)
	}
	for _, split := range splits {
		try(first.Bytes, first.Rows, split, first.Split*first.Sets)
	}
	for _, lanes := range []int{32, 16, 8} {
		t := first
		t.Lanes = lanes
		add(t)
	}
	for _, simds := range allSimds {
		try(first.Bytes, first.Rows, first.Split, simds)
	}
	// Other numbers of simdgroups give grids that multiprocessors can run all at once, or that are distributed evenly
	// over them.
	var between []int
	if target == CUDA {
		between = []int{6, 12, 10, 5, 7, 9}
	}
	tryBetween := func(bytes, rows, split int) {
		for _, simds := range between {
			if split <= 2 && simds%split == 0 {
				try(bytes, rows, split, simds)
			}
		}
	}
	tryBetween(first.Bytes, first.Rows, first.Split)
	for _, bytes := range []int{bytes, bytes / 2} {
		for _, rows := range allRows {
			for _, split := range splits {
				for _, simds := range allSimds {
					try(bytes, rows, split, simds)
				}
				tryBetween(bytes, rows, split)
			}
		}
	}
	if v.Bits == 4 {
		first.Permute = !first.Permute
		add(first)
	}
	return out
}

// mostDirect is the largest number of columns, of the vector and the rows together, that a lane has in registers at
// once.
const mostDirect = 160

// directs returns the variants without staging worth measuring for a product with rows rows in all, the default first.
// If there are few rows, most time is spent waiting: for the kernel before, for the vector, for other threads. They are
// for NVIDIA only, where a kernel can start before the one before it ends, so that everything but the vector is loaded
// when the vector arrives.
func (v Vectors) directs(target Target, planes, rows int) (out []Tuning) {
	if target != CUDA || rows > 1<<10 || v.K > 1<<12 {
		return nil
	}
	// The fewer columns a lane reads next to each other, the fewer cache lines a read touches. The default has the
	// fewest columns. It has all of a row at once if eight simdgroups suffice for that, and two rows to a threadgroup.
	least := max(8, v.Bits)
	for _, bytes := range []int{least, 2 * least} {
		for _, rows := range []int{2, 1} {
			for _, sets := range []int{1, 2} {
				for _, split := range []int{8, 4, 2, 1} {
					t := Tuning{Rows: rows, Lanes: 32, Split: split, Sets: sets, Bytes: bytes,
						Permute: true, Direct: true}
					if _, err := v.tune(t, planes, 1); err == nil && bytes*8/v.Bits*t.Lanes*split < 2*v.K {
						out = append(out, t)
					}
				}
			}
		}
	}
	return out
}

// cuda returns the default on NVIDIA, as found with the command bench on an H100 and an H200: few rows a lane, so that
// many reads are in flight on each of some 130 multiprocessors; and split rows where there are too few rows.
func (v Vectors) cuda(t Tuning, rows int) Tuning {
	if v.M > 2 {
		return v.cudaSeveral(t, rows)
	}
	simds := 16 // of a threadgroup
	if v.K > 4096 {
		simds = 8
	}
	switch {
	case rows >= 1<<16 && v.K <= 4096:
		t.Rows, simds = max(1, 8/v.M), 4
	case rows >= 1<<16:
		t.Rows = max(1, 4/v.M)
	// Qwen's router takes 2.8 µs so, and 5.1 without a split.
	case v.M == 2 && rows <= 512 && t.Bytes*8/v.Bits*t.Lanes*2 <= v.K:
		t.Rows, t.Split, simds = 1, 2, 12
	case rows <= 512:
		t.Rows = 1
	case v.M == 1 && rows <= 1<<12 && v.K <= 4096:
		t.Rows = 1
	case v.M == 1 && rows >= 1<<13 && v.K <= 2048:
		t.Rows, t.Lanes = 1, min(t.Lanes, 16)
	case v.M == 2:
		t.Rows, simds = 4, 8
	default:
		t.Rows = 2
	}
	columns := t.Bytes * 8 / v.Bits * t.Lanes
	for v.M == 1 && t.Split < 4 && (rows/t.Rows*t.Split < 4096 || v.K > 8192) && columns*t.Split*2 <= v.K {
		t.Split *= 2
	}
	if t.Split == 4 {
		simds = 16
	}
	t.Sets = simds / t.Split
	return t
}

// cudaSeveral is cuda for more than two vectors.
func (v Vectors) cudaSeveral(t Tuning, rows int) Tuning {
	const simds = 8
	switch {
	case rows <= 512: // blocks of eight rows, where there are too few for blocks of 32; of four for more vectors
		t.Rows, t.Split = 2, 2
		if v.M > 4 {
			t.Split = 4
		}
		for t.Split > 1 && t.Bytes*8/v.Bits*t.Lanes*t.Split > v.K {
			t.Split /= 2
		}
	default:
		t.Rows = 4
		if v.M > 4 && v.Quantized() {
			t.Bytes = 8
		}
	}
	t.Sets = simds / t.Split
	return t
}

// bytes returns the number of bytes that a lane should read at once: 16, or 32 for eight float32.
func (v Vectors) bytes() int {
	switch {
	case v.Bits == 32:
		return 32
	case v.Floats && v.Group == 16: // the columns of a lane are in one group
		return 8
	}
	return 16
}

// stageBytes is the threadgroup memory for the vectors: half of what a Metal device has, so that two threadgroups can
// share a core.
const stageBytes = 14 << 10

// tune fills in a tuning and checks it. planes is the number of weights of a lane.
func (v Vectors) tune(t Tuning, planes, experts int) (Tuning, error) {
	t = v.filled(t)
	return t, v.checkTuning(t, planes, experts)
}

// filled returns a tuning with zero fields filled in.
func (v Vectors) filled(t Tuning) Tuning {
	fill := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	fill(&t.Rows, max(1, min(4, 16/max(v.M, 1))))
	fill(&t.Lanes, 32)
	fill(&t.Split, 1)
	fill(&t.Sets, 4)
	fill(&t.Bytes, v.bytes())
	columns := t.Bytes * 8 / v.Bits
	at := columns * t.Lanes * t.Split // columns of one step
	if t.Direct {
		fill(&t.Chunk, v.K)
	}
	if t.Chunk == 0 {
		chunks := ceil(v.K*v.M*4, stageBytes)
		t.Chunk = min(ceil(ceil(v.K, chunks), at)*at, ceil(v.K, columns)*columns)
		if t.Chunk*v.M*4 > stageBytes*3/2 {
			t.Chunk = max(columns, stageBytes/(4*v.M)/columns*columns)
		}
	}
	return t
}

// checkTuning returns an error for a complete tuning that no kernel can have.
func (v Vectors) checkTuning(t Tuning, planes, experts int) error {
	columns := t.Bytes * 8 / v.Bits
	switch {
	case v.M < 1 || v.M > 8:
		return fmt.Errorf("%d vectors at once, want 1 to 8", v.M)
	case t.Lanes != 8 && t.Lanes != 16 && t.Lanes != 32:
		return fmt.Errorf("tuning: %d lanes for a row, want 8, 16 or 32", t.Lanes)
	case t.Rows < 1 || t.Rows*v.M > t.Lanes:
		return fmt.Errorf("tuning: %d rows of %d vectors do not fit %d lanes", t.Rows, v.M, t.Lanes)
	case t.Split < 1 || t.Sets < 1 || t.threads() > 1024:
		return fmt.Errorf("tuning: %d sets of %d simdgroups, want 1 to 32 simdgroups", t.Sets, t.Split)
	case t.Bytes != 8 && t.Bytes != 16 && t.Bytes != 32 || columns < 8 || v.Quantized() && columns > v.Group ||
		v.K/experts%columns != 0:
		return fmt.Errorf("tuning: %d bytes a lane do not suit rows of %d columns of %s",
			t.Bytes, v.K/experts, v.Format)
	case t.Chunk < columns || t.Chunk%columns != 0:
		return fmt.Errorf("tuning: chunks of %d columns, want a multiple of %d", t.Chunk, columns)
	}
	if t.Direct {
		if err := v.checkDirect(t, planes, experts); err != nil {
			return err
		}
	}
	if used := v.memory(t, planes); used+32 > 32<<10 {
		return fmt.Errorf("tuning: %d bytes of threadgroup memory, there are %d", used, 32<<10)
	}
	return nil
}

// checkDirect is checkTuning for tunings without staging.
func (v Vectors) checkDirect(t Tuning, planes, experts int) error {
	columns := t.Bytes * 8 / v.Bits
	all := ceil(v.K, columns*t.Lanes*t.Split) * columns
	switch {
	case v.M != 1 || experts != 1 || t.Chunk != v.K:
		return fmt.Errorf("tuning: %d of %d columns of %d vectors of %d parts are read directly, want all of one "+
			"vector of one part", t.Chunk, v.K, v.M, experts)
	case all*(1+planes*t.Rows) > mostDirect:
		return fmt.Errorf("tuning: %d columns of the vector and of %d rows are a lane's at once, want at "+
			"most %d in all", all, planes*t.Rows, mostDirect)
	}
	return nil
}

// memory returns the threadgroup memory of a product, in bytes.
func (v Vectors) memory(t Tuning, planes int) int {
	columns := t.Bytes * 8 / v.Bits
	stage := v.M * (columns + 1) * (t.Chunk/columns + 1)
	if t.Direct {
		stage = 1
	}
	shared := t.Split * t.Sets * (planes*t.Rows*v.M*(32/t.Lanes) + v.M)
	return 4 * (stage + shared)
}
