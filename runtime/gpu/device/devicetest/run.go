package devicetest

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// Run runs the conformance test on devices that open makes, one for each part.
func Run(t *testing.T, open func(testing.TB) device.Device) {
	for _, part := range []struct {
		name string
		run  func(*bench)
	}{
		{"zeros", zeros},
		{"write and read", writeAndRead},
		{"ranges", ranges},
		{"copy and add", copyAndAdd},
		{"host memory", hostMemory},
		{"bindings", bindings},
		{"grids", grids},
		{"threadgroup memory", threadgroupMemory},
		{"transfers", transfers},
		{"chains and fans", chainsAndFans},
		{"wrapped memory", wrappedMemory},
		{"wrapped file", wrappedFile},
		{"big offsets", bigOffsets},
		{"two in flight", twoInFlight},
		{"fetches", fetches},
		{"aheads", aheads},
		{"recovery", recovery},
		{"times", times},
		{"refused", refused},
		{"libraries side by side", sideBySide},
		{"matrix products", matrixProducts},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(newBench(t, open)) })
	}
}

func zeros(b *bench) {
	for _, n := range []int{1, 3, 1000, 1 << 19} {
		buffer := b.words(n)
		require.Equal(b.t, make([]uint32, n), b.read(buffer, 0, n))
	}
}

func writeAndRead(b *bench) {
	const n = 3 << 20 // more than any host stages at once
	want := numbers(n, 7)
	buffer := b.words(n, want...)
	require.NoError(b.t, buffer.Write(5, []byte{1, 2, 3}))
	require.NoError(b.t, buffer.Write(4*n-1, []byte{9}))
	require.NoError(b.t, buffer.Write(8, nil))
	raw := encode(want...)
	copy(raw[5:], []byte{1, 2, 3})
	raw[len(raw)-1] = 9
	require.Equal(b.t, decode(raw), b.read(buffer, 0, n))
	odd := make([]byte, 5)
	require.NoError(b.t, buffer.Read(3, odd))
	require.Equal(b.t, raw[3:8], odd)
	// beside what runs
	require.NoError(b.t, buffer.Place(4, encode(21, 22)))
	require.Equal(b.t, []uint32{21, 22}, b.read(buffer, 1, 2))
	require.NoError(b.t, buffer.Place(4, nil))
	require.ErrorContains(b.t, buffer.Place(0, make([]byte, device.MaxPlaced+4)), "at most 4096 are possible")
	// bytes are taken at once
	taken := encode(11, 12)
	require.NoError(b.t, buffer.Write(0, taken))
	clear(taken)
	require.Equal(b.t, []uint32{11, 12}, b.read(buffer, 0, 2))
}

func ranges(b *bench) {
	buffer := b.words(4)
	eight := make([]byte, 8)
	require.ErrorContains(b.t, buffer.Write(12, eight), "bytes 12 to 20 of a buffer of 16")
	require.ErrorContains(b.t, buffer.Read(-1, eight), "bytes -1 to 7 of a buffer of 16")
	require.ErrorContains(b.t, buffer.Place(12, eight), "bytes 12 to 20 of a buffer of 16")
	_, err := buffer.Fetch(16, 4)
	require.ErrorContains(b.t, err, "bytes 16 to 20 of a buffer of 16")
	for _, size := range []int{0, -1, 1 << 60} {
		_, err := b.device.NewBuffer(size)
		require.Error(b.t, err, size)
	}
	_, err = b.device.Wrap(nil)
	require.Error(b.t, err)
}

// hostMemory has kernels write to memory of the host, where the device can.
func hostMemory(b *bench) {
	w, ok := b.device.(device.HostWriter)
	if !ok {
		return
	}
	const n = 100
	for _, size := range []int{0, -1, 4097} {
		_, err := w.NewHostBuffer(size)
		require.Error(b.t, err, size)
	}
	x := b.words(n, numbers(n, 3)...)
	y, err := w.NewHostBuffer(4 * n)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, y.Close()) })
	require.Equal(b.t, make([]uint32, n), b.read(y, 0, n))
	require.ErrorContains(b.t, y.Write(0, encode(1)), "write to a buffer of the host's memory")
	require.ErrorContains(b.t, y.Place(0, encode(1)), "write to a buffer of the host's memory")
	s := b.record(dispatch(b.kernel("copy_words"), n, false, at(x, 0), at(y, 0)))
	b.submit(s)
	require.Equal(b.t, numbers(n, 3), b.read(y, 0, n))
	// as it is after what was submitted
	require.NoError(b.t, x.Write(8, encode(77)))
	b.submit(s)
	f, err := y.Fetch(4, 8)
	require.NoError(b.t, err)
	got, err := f.Bytes()
	require.NoError(b.t, err)
	require.Equal(b.t, encode(uint32(3+1), 77), got)
}

func copyAndAdd(b *bench) {
	const n = 1000
	x, y, z := b.words(n, numbers(n, 3)...), b.words(n), b.words(n+1)
	s := b.record(
		dispatch(b.kernel("copy_words"), n, false, at(x, 0), at(y, 0)),
		dispatch(b.kernel("add_words"), n, true, at(x, 0), at(y, 0), at(z, 0)))
	b.submit(s)
	want := make([]uint32, n+1)
	for i := range n {
		want[i] = 2 * (uint32(i)*3 + 1)
	}
	require.Equal(b.t, want, b.read(z, 0, n+1))
	// again, over other numbers
	require.NoError(b.t, x.Write(0, encode(500)))
	b.submit(s)
	want[0] = 1000
	require.Equal(b.t, want, b.read(z, 0, n+1))
}

// bindings has kernels whose buffers and constants stand at other places than those of the one before.
func bindings(b *bench) {
	const n = 64
	x, y, z := b.words(n, numbers(n, 3)...), b.words(n, numbers(n, 5)...), b.words(n)
	add := dispatch(b.kernel("add_words"), n, true, at(x, 0), at(y, 0), at(z, 0))
	b.submit(b.record(add, dispatch(b.kernel("copy_words"), n, true, at(z, 0), at(y, 0)), add))
	want := make([]uint32, n)
	for i := range want {
		want[i] = 2*(uint32(i)*3+1) + uint32(i)*5 + 1
	}
	require.Equal(b.t, want, b.read(z, 0, n))
}

func grids(b *bench) {
	const x, y, z = 7, 3, 2
	out := b.words(x * y * z)
	k := b.kernel("place")
	b.submit(b.record(device.Dispatch{
		Label: "place", Kernel: k, Groups: [3]int{x, y, z}, Threads: [3]int{8, 2, 2},
		Arguments: []device.Argument{{Binding: at(out, 0)}},
	}))
	for i, bits := range b.read(out, 0, x*y*z) {
		require.Equal(b.t, float32(i%x+i/x%y*10+i/x/y*100), math.Float32frombits(bits), "threadgroup %d", i)
	}
}

func threadgroupMemory(b *bench) {
	const n = 64 * 50
	x, y := b.words(n, numbers(n, 5)...), b.words(n)
	d := dispatch(b.kernel("turn"), n, false, at(x, 0), at(y, 0))
	d.Arguments = d.Arguments[:2]
	b.submit(b.record(d))
	for i, got := range b.read(y, 0, n) {
		require.Equal(b.t, uint32(i/64*64+63-i%64)*5+1, got)
	}
}

// transfers streams more than 48 KB through large threadgroup memory, where the device has it, and in a chain of two.
func transfers(b *bench) {
	const groups, block = 5, 30720 / 4
	x, y := b.words(groups*4*block, numbers(groups*4*block, 5)...), b.words(groups*64)
	limit := b.device.Info().TransferMemory
	if limit == 0 {
		d := dispatch(b.kernel("turn"), 64, false, at(x, 0), at(y, 0))
		d.Arguments, d.Memory = d.Arguments[:2], 16
		_, err := b.device.Record([]device.Dispatch{d})
		require.ErrorContains(b.t, err, "dispatch 0 (turn): TG_MEMORY of 16 bytes, the device allows 0")
		return
	}
	k := b.kernel("sum_blocks")
	d := dispatch(k, groups*64, true, at(x, 0), at(y, 0))
	d.Arguments, d.Memory = d.Arguments[:2], limit+16
	_, err := b.device.Record([]device.Dispatch{d})
	require.ErrorContains(b.t, err, "dispatch 0 (sum_blocks): TG_MEMORY of")
	d.Memory = 2 * 4 * block
	z := b.words(groups * 64)
	again := d
	again.Arguments = []device.Argument{d.Arguments[0], {Binding: at(z, 0)}}
	add := dispatch(b.kernel("add_words"), groups*64, true, at(y, 0), at(z, 0), at(z, 0))
	b.submit(b.record(d, again, add))
	got := b.read(z, 0, groups*64)
	for i := range got {
		want := uint32(0)
		for j := i % 64; j < 4*block; j += 64 {
			want = want*3 + uint32(i/64*4*block+j)*5 + 1
		}
		require.Equal(b.t, 2*want, got[i], "thread %d of threadgroup %d", i%64, i/64)
	}
}

// chainsAndFans has dispatches that depend on one, on many, and on none before them.
func chainsAndFans(b *bench) {
	const n, width, depth = 70, 9, 20
	add, affine := b.kernel("add_words"), b.kernel("affine")
	steps := b.words(2*depth, numbers(2*depth, 2)...)
	rows := b.words(n*width + n)
	var list []device.Dispatch
	each := uint32(0)
	for i := range depth { // every row: row = row * odd + another, side by side; the order of levels matters
		for r := range width {
			list = append(list, dispatch(affine, n, i > 0 && r == 0, at(rows, n*r), at(rows, n*r), at(steps, 2*i)))
		}
		each = each*uint32(4*i+1) + uint32(4*i+3)
	}
	for r := range width { // the row after the last: their sum, one after another
		list = append(list, dispatch(add, n, true, at(rows, n*r), at(rows, n*width), at(rows, n*width)))
	}
	for r := range width { // then every row grows by the sum
		list = append(list, dispatch(add, n, r == 0, at(rows, n*r), at(rows, n*width), at(rows, n*r)))
	}
	b.submit(b.record(list...))
	for i, got := range b.read(rows, 0, n*(width+1)) {
		sum := each * width
		if i/n < width {
			sum += each
		}
		require.Equal(b.t, sum, got, "row %d, word %d", i/n, i%n)
	}
}

func wrappedMemory(b *bench) {
	const n = 5000
	raw := encode(numbers(n, 11)...)
	for _, skip := range []int{0, 4, 400} { // words that a page does not begin with
		wrapped := b.wrap(raw[4*skip:])
		y := b.words(n)
		b.submit(b.record(dispatch(b.kernel("copy_words"), n-skip-8, false, at(wrapped, 8), at(y, 0))))
		require.Equal(b.t, decode(raw[4*(skip+8):]), b.read(y, 0, n-skip-8))
		require.Equal(b.t, decode(raw[4*skip:]), b.read(wrapped, 0, n-skip))
		require.ErrorContains(b.t, wrapped.Write(0, []byte{1}), "wrapped memory")
	}
}

func wrappedFile(b *bench) {
	const n = 1 << 18
	path := filepath.Join(b.t.TempDir(), "weights")
	want := numbers(n, 13)
	require.NoError(b.t, os.WriteFile(path, encode(want...), 0o600))
	memory, closeFile := MapFile(b.t, path)
	b.t.Cleanup(closeFile)
	y := b.words(n)
	for _, start := range []int{0, 4096, 1 << 16} { // in words: pages of 4 and of 16 KB, and none of either
		wrapped := b.wrap(memory[4*start+16:])
		count := n - start - 4
		b.submit(b.record(dispatch(b.kernel("copy_words"), count, false, at(wrapped, 0), at(y, 0))))
		require.Equal(b.t, want[start+4:], b.read(y, 0, count))
	}
}

// bigOffsets addresses what lies past 4 GiB, on devices that have so much.
func bigOffsets(b *bench) {
	if b.device.Info().Memory < 8<<30 {
		b.t.Skipf("the device has %d bytes of memory, this part wants 8 GiB", b.device.Info().Memory)
	}
	const far = 1<<30 + 77 // words
	big := b.words(far + 200)
	require.NoError(b.t, big.Write(4*far, encode(numbers(100, 17)...)))
	b.submit(b.record(dispatch(b.kernel("copy_words"), 100, false, at(big, far), at(big, far+100))))
	require.Equal(b.t, numbers(100, 17), b.read(big, far+100, 100))
	require.Equal(b.t, make([]uint32, 100), b.read(big, 77+100, 100), "2^32 bytes before")
}

// twoInFlight submits steps without a wait; each sees the numbers written just before it.
func twoInFlight(b *bench) {
	const n, steps = 100, 200 // more than any host has places for small writes
	x, step := b.words(n, numbers(n, 1)...), b.words(2)
	s := b.record(dispatch(b.kernel("affine"), n, false, at(x, 0), at(x, 0), at(step, 0)))
	want := numbers(n, 1)
	for i := range uint32(steps) {
		require.NoError(b.t, step.Write(0, encode(2*i+3, 7*i))) // odd: nothing is forgotten modulo 2^32
		b.submit(s)
		for j := range want {
			want[j] = want[j]*(2*i+3) + 7*i
		}
	}
	require.Equal(b.t, want, b.read(x, 0, n))
	// a large write is in order too
	large := b.words(1<<17, numbers(1<<17, 3)...)
	next := b.record(dispatch(b.kernel("copy_words"), n, false, at(large, 0), at(x, 0)))
	b.submit(next)
	require.NoError(b.t, large.Write(0, make([]byte, 4<<17)))
	require.Equal(b.t, numbers(n, 3), b.read(x, 0, n))
	require.NoError(b.t, b.device.Wait())
}

// fetches reads the token of a step while the next is submitted; steps leave theirs in turn in two places.
func fetches(b *bench) {
	state, tokens, step := b.words(1, 1), b.words(2), b.words(2)
	affine, copyWords := b.kernel("affine"), b.kernel("copy_words")
	var steps [2]device.Sequence
	for i := range steps {
		steps[i] = b.record(
			dispatch(affine, 1, false, at(state, 0), at(state, 0), at(step, 0)),
			dispatch(copyWords, 1, true, at(state, 0), at(tokens, i)))
	}
	b.inTurn(steps, tokens, func(i uint32) error { return step.Write(0, encode(3, i)) })
}

// inTurn submits two steps in turn, each before the token of the one before it is read. Step i makes 3·t + i of the
// token t, from 1 on, once prepare has told it i, and leaves it in the one of two places that is its turn's.
func (b *bench) inTurn(steps [2]device.Sequence, tokens device.Buffer, prepare func(i uint32) error) {
	want := uint32(1)
	var pending device.Fetch
	for i := range uint32(30) {
		require.NoError(b.t, prepare(i))
		b.submit(steps[i%2])
		next, err := tokens.Fetch(int(i%2)*4, 4)
		require.NoError(b.t, err)
		if pending != nil {
			got, err := pending.Bytes()
			require.NoError(b.t, err)
			require.Equal(b.t, encode(want), got, "step %d", i-1)
		}
		pending = next
		want = want*3 + i
	}
	got, err := pending.Bytes()
	require.NoError(b.t, err)
	require.Equal(b.t, encode(want), got)
}

// aheads submits a step before the one before it was read, as a token's successor is: what they read of the host lies
// in two places in turn, one of which is set while the other is used, and the token goes to the next step's place.
func aheads(b *bench) {
	var places [2]device.Buffer
	for i := range places {
		places[i] = b.words(3) // of affine: its factor, what it adds; the token
	}
	affine := b.kernel("affine")
	tokens := b.words(2)
	var steps [2]device.Sequence
	for i := range steps {
		steps[i] = b.record(
			dispatch(affine, 1, false, at(places[i], 2), at(places[1-i], 2), at(places[i], 0)),
			dispatch(b.kernel("copy_words"), 1, true, at(places[1-i], 2), at(tokens, i)))
	}
	require.NoError(b.t, b.device.Wait()) // the zeros of new buffers may be on their way
	b.inTurn(steps, tokens, func(i uint32) error {
		if i == 0 {
			return places[0].Write(0, encode(3, 0, 1))
		}
		return places[i%2].Place(0, encode(3, i))
	})
}

// recovery recovers where nothing has failed: all that was submitted and written is done. What fails is each device's
// own.
func recovery(b *bench) {
	const n = 100
	x, step := b.words(n, numbers(n, 1)...), b.words(2, 3, 0)
	s := b.record(dispatch(b.kernel("affine"), n, false, at(x, 0), at(x, 0), at(step, 0)))
	b.submit(s)
	require.NoError(b.t, step.Write(0, encode(5, 1))) // beside what runs
	require.NoError(b.t, b.device.Recover())
	b.submit(s)
	want := numbers(n, 1)
	for i := range want {
		want[i] = want[i]*3*5 + 1
	}
	require.Equal(b.t, want, b.read(x, 0, n))
}

func times(b *bench) {
	const n = 64
	x, step := b.words(n, numbers(n, 1)...), b.words(2, 2, 0)
	affine := b.kernel("affine")
	s := b.record(
		dispatch(affine, n, false, at(x, 0), at(x, 0), at(step, 0)),
		dispatch(affine, n, true, at(x, 0), at(x, 0), at(step, 0)))
	timed, ok := s.(device.Timed)
	if !ok {
		return
	}
	got, err := timed.Times()
	require.NoError(b.t, err)
	require.Len(b.t, got, 2)
	for _, d := range got {
		require.GreaterOrEqual(b.t, int64(d), int64(0))
	}
	require.Equal(b.t, uint32(4), b.read(x, 0, 1)[0])
}

func refused(b *bench) {
	source := Source(b.device.Info().Target)
	source.Text += "\nkernel void broken(device float* x [[buffer(0)]]) { x[0] = nonsense; }\n"
	_, err := b.device.Compile(source)
	require.ErrorContains(b.t, err, "programs.metal")
	require.ErrorContains(b.t, err, "nonsense")
	_, err = b.library.Kernel("absent")
	require.ErrorContains(b.t, err, "programs.metal")
	require.ErrorContains(b.t, err, "absent")

	x := b.words(64)
	k := b.kernel("copy_words")
	require.Equal(b.t, 64, k.MaxThreads())
	for _, c := range []struct {
		change func(*device.Dispatch)
		want   string
	}{
		{func(d *device.Dispatch) { d.Threads = [3]int{64, 2, 1} }, "128 threads, kernel copy_words allows 64"},
		{func(d *device.Dispatch) { d.Groups[0] = 0 }, "every number must be at least 1"},
		{func(d *device.Dispatch) { d.Arguments[1].Offset = 256 }, "argument 1 is at offset 256 of a buffer of 256"},
		{func(d *device.Dispatch) { d.Arguments[0].Buffer = foreign{x} }, "argument 0 is a buffer of another device"},
		{func(d *device.Dispatch) { d.Kernel = foreignKernel{k} }, "kernel copy_words is of another device"},
		{func(d *device.Dispatch) { d.Arguments = d.Arguments[:2] }, "2 arguments, kernel copy_words has 3"},
	} {
		d := dispatch(k, 32, false, at(x, 0), at(x, 32))
		c.change(&d)
		_, err := b.device.Record([]device.Dispatch{d})
		require.ErrorContains(b.t, err, c.want)
		require.ErrorContains(b.t, err, "dispatch 0 (copy_words)")
	}
}

type (
	foreign       struct{ device.Buffer }
	foreignKernel struct{ device.Kernel }
)

func sideBySide(b *bench) {
	const n = 4
	var group sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		group.Go(func() {
			library, err := b.device.Compile(Source(b.device.Info().Target))
			if err == nil {
				err = library.Close()
			}
			errs[i] = err
		})
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(b.t, err)
	}
}

// matrixProducts checks products of small whole numbers, which bf16 and fp32 hold exactly.
func matrixProducts(b *bench) {
	multiplier, ok := b.device.(device.MatrixMultiplier)
	if !ok {
		return
	}
	for _, p := range []device.Product{
		{M: 5, N: 16, K: 24, Float32: true}, {M: 64, N: 128, K: 256}, {M: 3, N: 8, K: 16, Float32: true, Batch: 3},
	} {
		k, err := multiplier.MatrixProduct(p)
		if errors.Is(err, device.ErrUnavailable) {
			b.t.Skip(err)
		}
		require.NoError(b.t, err)
		b.t.Cleanup(func() { require.NoError(b.t, k.Close()) })
		batch := max(1, p.Batch)
		value := func(i int) float32 { return float32(i*7%5 - 2) }
		operand := func(n int) (device.Buffer, []float32) {
			values, raw := make([]float32, n), []byte(nil)
			for i := range values {
				values[i] = value(i * i)
				raw = binary.LittleEndian.AppendUint16(raw, uint16(math.Float32bits(values[i])>>16))
			}
			buffer := b.words((n + 1) / 2)
			require.NoError(b.t, buffer.Write(0, raw))
			return buffer, values
		}
		x, xs := operand(batch * p.M * p.K)
		w, ws := operand(batch * p.N * p.K)
		size := 2
		if p.Float32 {
			size = 4
		}
		count := batch * p.M * p.N
		y := b.words((count*size + 3) / 4)
		b.submit(b.record(device.Dispatch{Label: "product", Kernel: k, Groups: [3]int{1, 1, 1},
			Threads:   [3]int{1, 1, 1},
			Arguments: []device.Argument{{Binding: at(x, 0)}, {Binding: at(w, 0)}, {Binding: at(y, 0)}}}))
		raw := make([]byte, count*size)
		require.NoError(b.t, y.Read(0, raw))
		for i := range count {
			batch, m, n := i/(p.M*p.N), i/p.N%p.M, i%p.N
			var want float32
			for j := range p.K {
				want += xs[(batch*p.M+m)*p.K+j] * ws[(batch*p.N+n)*p.K+j]
			}
			var got float32
			if p.Float32 {
				got = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
			} else {
				got = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16)
				want = round(want)
			}
			require.Equal(b.t, want, got, "%+v: element %d", p, i)
		}
	}
}

// round rounds to bf16, to even.
func round(f float32) float32 {
	u := math.Float32bits(f)
	return math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
}
