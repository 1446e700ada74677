package main

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// variant is a tuning: a launch, whose Case has it.
type variant struct {
	label  string
	launch kernels.Launch
	// cuBLAS instead of the launch, on the vectors and results of the first variant
	product *device.Product
	of      func([]*kernels.Buffer) *kernels.Buffer // the vectors among what that takes
}

// testCase is a kernel at a shape. The first variant is the default.
type testCase struct {
	name     string
	sizes    kernels.Sizes
	flops    float64
	bytes    float64
	variants func(m kernels.Machine) ([]variant, error)
}

// use is the case of a variant, and the launch in it that is measured.
type use struct {
	*kernels.Case
	launch kernels.CaseLaunch
	before []kernels.CaseLaunch // whose results it reads
}

// use makes the case of a variant, whole.
func (c testCase) use(v variant) (u use) {
	c.sizes.Whole = true
	u.Case = v.launch.Case(c.sizes)
	for i, l := range u.Launches {
		if l.Key() == v.launch.Key() {
			u.launch, u.before = l, u.Launches[:i]
			return u
		}
	}
	panic(fmt.Sprintf("bench: the case of %s has not its launch", v.launch.Key()))
}

// result is the buffer with the results: the last one of them that nothing else reads.
func (u use) result() (out *kernels.Buffer) {
	for i, b := range u.launch.Buffers {
		if u.launch.Written[i] && (out == nil || b.Content == kernels.Blank && (!b.Scratch || out.Scratch)) {
			out = b
		}
	}
	return out
}

// rotates reports whether there are several of a buffer, so that what a dispatch reads is in no cache.
func rotates(b *kernels.Buffer) bool {
	return b.Content == kernels.Codes || b.Content == kernels.Scales || b.Content == kernels.Kept
}

// measurement is what came of a variant.
type measurement struct {
	label string
	time  time.Duration
	diff  float64
	err   error
}

func (c testCase) measure(w io.Writer, d device.Device, o options) error {
	on := d.Info().Machine
	on.TransferLeast = 0 // it is of models
	variants, err := c.variants(on)
	if err != nil {
		return err
	}
	if first := variants[0].label; !o.all {
		variants = slices.DeleteFunc(variants, func(v variant) bool { return v.label != first && v.product == nil })
	}
	if some, err := regexp.Compile(cmp.Or(o.tunings, ".")); err != nil {
		return err
	} else if o.all {
		variants = slices.DeleteFunc(variants, func(v variant) bool { return !some.MatchString(v.label) })
	}
	if len(variants) == 0 {
		return nil
	}
	first := c.use(variants[0])
	m := memory{device: d, copies: first.copies(o), buffers: map[*kernels.Buffer][]device.Buffer{}}
	defer m.close()
	var results []measurement
	var want []float64
	compiled := compileAll(d, variants)
	for i, v := range variants {
		r, got := c.try(&m, v, compiled[i], first, o)
		compiled[i].close()
		if r.err == nil && want == nil {
			want = got
		}
		r.diff = difference(want, got)
		results = append(results, r)
	}
	c.print(w, results, o.top)
	return nil
}

// copies is how many there must be of what rotates.
func (u use) copies(o options) int {
	rotating := 0
	for _, b := range u.launch.Buffers {
		if rotates(b) {
			rotating += b.Size
		}
	}
	return min(max(1, (o.rotate+rotating-1)/max(rotating, 1)), o.dispatches)
}

// memory are the device's buffers of a variant's case.
type memory struct {
	device  device.Device
	copies  int
	buffers map[*kernels.Buffer][]device.Buffer
}

func (m *memory) close() {
	for _, list := range m.buffers {
		for _, b := range list {
			b.Close()
		}
	}
	clear(m.buffers)
}

// hold makes the buffers of a case, those that rotate several times, in place of the case before.
func (m *memory) hold(c *kernels.Case, more ...*kernels.Buffer) error {
	r := rand.New(rand.NewPCG(1, 2))
	m.close()
	for _, b := range append(slices.Clip(c.Buffers), more...) {
		n := 1
		if rotates(b) {
			n = m.copies
		}
		for range n {
			x, err := m.device.NewBuffer(b.Size)
			if err != nil {
				return err
			}
			m.buffers[b] = append(m.buffers[b], x)
			if err := fill(x, b, r); err != nil {
				return err
			}
		}
	}
	return m.device.Wait()
}

// fill writes what a buffer holds: what the case gives, or random numbers that repeat.
func fill(x device.Buffer, b *kernels.Buffer, r *rand.Rand) error {
	switch b.Content {
	case kernels.Zeros, kernels.Blank:
		return nil
	case kernels.Given:
		for _, p := range b.Parts() {
			if err := x.Write(p.At, p.Content); err != nil {
				return err
			}
		}
		return nil
	}
	for at, block := 0, random(b, r); at < b.Size; at += len(block) {
		if err := x.Write(at, block[:min(len(block), b.Size-at)]); err != nil {
			return err
		}
	}
	return nil
}

// random is the content of a buffer, or a part of it to repeat.
func random(b *kernels.Buffer, r *rand.Rand) []byte {
	const most = 4 << 20
	var out []byte
	for len(out) < min(b.Size, most) {
		switch number := math.Float32bits(float32(r.NormFloat64())); {
		case b.Content == kernels.Codes:
			out = binary.LittleEndian.AppendUint32(out, r.Uint32())
		case b.Content == kernels.Scales: // bf16 around 0.01
			out = binary.LittleEndian.AppendUint16(out, uint16(0x3c00+r.IntN(0x80)))
		case b.DType == kernels.BF16:
			out = binary.LittleEndian.AppendUint16(out, uint16(number>>16))
		default:
			out = binary.LittleEndian.AppendUint32(out, number)
		}
	}
	return out
}

// try measures a variant and gives its results on the first copy of the weights.
func (c testCase) try(m *memory, v variant, k compiled, first use, o options) (out measurement, results []float64) {
	out.label = v.label
	fail := func(err error) (measurement, []float64) {
		out.err = err
		return out, nil
	}
	if k.err != nil {
		return fail(k.err)
	}
	u, dispatch, err := c.prepare(m, v, k.kernel, first)
	if err != nil {
		return fail(err)
	}
	if _, err := m.run(dispatch, 1); err != nil {
		return fail(err)
	}
	result := u.result()
	if results, err = read(m.buffers[result][0], result.DType); err != nil {
		return fail(err)
	}
	var times []time.Duration
	for range o.repeat + 1 {
		t, err := m.run(dispatch, o.dispatches)
		if err != nil {
			return fail(err)
		}
		times = append(times, t/time.Duration(o.dispatches))
	}
	times = times[1:] // the first one warms up
	slices.Sort(times)
	out.time = times[len(times)/2]
	return out, results
}

// prepare fills memory for a variant, runs the launches before the one that is measured, and gives what makes dispatch
// i.
func (c testCase) prepare(m *memory, v variant, k device.Kernel, first use) (u use,
	dispatch func(i int) device.Dispatch, err error) {
	if p := v.product; p != nil {
		dense := &kernels.Buffer{DType: kernels.BF16, Size: 2 * p.N * p.K, Content: kernels.Random}
		list := []*kernels.Buffer{v.of(first.launch.Buffers), dense, first.result()}
		dispatch = func(i int) device.Dispatch { return m.dispatch(v.launch, k, list, i) }
		return first, dispatch, m.hold(first.Case, dense)
	}
	u = c.use(v)
	if err := m.hold(u.Case); err != nil {
		return u, nil, err
	}
	for _, l := range u.before {
		one := variant{launch: l.Launch}.compile(m.device)
		if one.err == nil {
			_, one.err = m.run(func(i int) device.Dispatch { return m.dispatch(l.Launch, one.kernel, l.Buffers, i) }, 1)
		}
		one.close()
		if one.err != nil {
			return u, nil, one.err
		}
	}
	return u, func(i int) device.Dispatch { return m.dispatch(v.launch, k, u.launch.Buffers, i) }, nil
}

// dispatch is that of a launch with copy i of what rotates.
func (m *memory) dispatch(l kernels.Launch, k device.Kernel, buffers []*kernels.Buffer, i int) device.Dispatch {
	x := device.Dispatch{Label: l.Kernel, Kernel: k, Groups: l.Groups, Threads: l.Threads,
		Memory: l.Memory, Barrier: true}
	for _, b := range buffers {
		list := m.buffers[b]
		x.Arguments = append(x.Arguments, device.Argument{Binding: device.Binding{Buffer: list[i%len(list)]}})
	}
	if l.Params != nil {
		x.Arguments = append(x.Arguments, device.Argument{Bytes: l.Params})
	}
	return x
}

// run runs n dispatches and gives the time that they took.
func (m *memory) run(dispatch func(i int) device.Dispatch, n int) (time.Duration, error) {
	var list []device.Dispatch
	for i := range n {
		list = append(list, dispatch(i))
	}
	s, err := m.device.Record(list)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	start := time.Now()
	if err := s.Submit(); err != nil {
		return 0, err
	}
	err = m.device.Wait()
	return time.Since(start), err
}

// compiled is the kernel of a variant, or why there is none.
type compiled struct {
	kernel  device.Kernel
	library device.Library
	err     error
}

func (k compiled) close() {
	if k.library != nil {
		k.library.Close()
	}
}

// compileAll compiles side by side.
func compileAll(d device.Device, variants []variant) []compiled {
	out := make([]compiled, len(variants))
	var group sync.WaitGroup
	limit := make(chan struct{}, runtime.NumCPU())
	for i, v := range variants {
		group.Go(func() {
			limit <- struct{}{}
			out[i] = v.compile(d)
			<-limit
		})
	}
	group.Wait()
	return out
}

func (v variant) compile(d device.Device) (out compiled) {
	if v.product != nil {
		multiplier, ok := d.(device.MatrixMultiplier)
		if !ok {
			out.err = device.ErrUnavailable
			return out
		}
		out.kernel, out.err = multiplier.MatrixProduct(*v.product)
		return out
	}
	text, err := v.launch.Source(d.Info().Target)
	if err != nil {
		out.err = err
		return out
	}
	if out.library, out.err = d.Compile(device.Source{Name: v.launch.File + ".metal", Text: text}); out.err == nil {
		out.kernel, out.err = out.library.Kernel(v.launch.Kernel)
	}
	return out
}

// read gives a sample of the results.
func read(b device.Buffer, d kernels.DType) ([]float64, error) {
	raw := make([]byte, min(b.Size(), 1<<20))
	if err := b.Read(0, raw); err != nil {
		return nil, err
	}
	return d.Numbers(raw), nil
}

// difference is the largest difference relative to the largest number; NaN where there is nothing to compare.
func difference(want, got []float64) float64 {
	if len(got) != len(want) || len(want) == 0 {
		return math.NaN()
	}
	size, most := 0.0, 0.0
	for i := range want {
		size = max(size, math.Abs(want[i]))
		most = max(most, math.Abs(want[i]-got[i]))
	}
	return most / size
}

// print prints the default and the best measurements of a case.
func (c testCase) print(w io.Writer, results []measurement, top int) {
	fmt.Fprintf(w, "\n%s (%.2f MB, %.3g GFLOP)\n", c.name, c.bytes/1e6, c.flops/1e9)
	line := func(mark string, m measurement) {
		if m.err != nil {
			text, _, _ := strings.Cut(m.err.Error(), "\n")
			if !errors.Is(m.err, device.ErrUnavailable) {
				fmt.Fprintf(w, "  %s %-64s %s\n", mark, m.label, text)
			}
			return
		}
		s := m.time.Seconds()
		fmt.Fprintf(w, "  %s %-64s %9.2f us %7.0f GB/s %7.1f TFLOP/s  diff %.1e\n", mark, m.label, s*1e6, c.bytes/s/1e9,
			c.flops/s/1e12, m.diff)
	}
	line("*", results[0])
	rest := slices.Clone(results[1:])
	slices.SortStableFunc(rest, func(a, b measurement) int {
		if (a.err == nil) != (b.err == nil) {
			if a.err == nil {
				return -1
			}
			return 1
		}
		return int(a.time - b.time)
	})
	for i, m := range rest {
		if i < top || m.err == nil && strings.HasPrefix(m.label, "cuBLAS") {
			line(" ", m)
		}
	}
}
