package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// content says what a buffer holds before the measurement.
type content int

const (
	zeros   content = iota
	codes           // random words, of which there are as many as rotate
	scales          // bf16 around 0.01, which rotate
	values          // f32 of a normal distribution
	halves          // the same in bf16
	numbers         // i32 as given
)

// memory is a buffer of a case.
type memory struct {
	content content
	bytes   int
	ints    []int32
}

// arguments are the buffers of a kernel.
type arguments = kernels.Arguments[*memory]

// variant is a tuning.
type variant struct {
	label   string
	launch  kernels.Launch
	product *device.Product // cuBLAS instead of the launch
	of      []*memory       // which that takes
}

// testCase is a kernel at a shape. The first variant is the default.
type testCase struct {
	name      string
	arguments arguments
	result    *memory // the buffer with the results
	half      bool
	flops     float64
	bytes     float64
	variants  func(m kernels.Machine) ([]variant, error)
}

// buffers are what a variant takes, in its order.
func (c testCase) buffers(v variant) []*memory {
	if v.product != nil {
		return v.of
	}
	list, _ := kernels.List(v.launch, c.arguments)
	return list
}

// memory is what variants take in all.
func (c testCase) memory(variants []variant) (all []*memory) {
	for _, v := range variants {
		for _, m := range c.buffers(v) {
			if !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	return all
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
	rotating, list := 0, c.memory(variants)
	for _, m := range list {
		if m.content == codes || m.content == scales {
			rotating += m.bytes
		}
	}
	copies := min(max(1, (o.rotate+rotating-1)/max(rotating, 1)), o.dispatches)
	buffers, err := allocate(d, list, copies)
	defer func() {
		for _, b := range buffers {
			for _, x := range b {
				x.Close()
			}
		}
	}()
	if err != nil {
		return err
	}
	var results []measurement
	var want []float64
	compiled := compileAll(d, variants)
	for i, v := range variants {
		m, got := c.try(d, v, compiled[i], buffers, copies, o)
		compiled[i].close()
		if m.err == nil && want == nil {
			want = got
		}
		m.diff = difference(want, got)
		results = append(results, m)
	}
	c.print(w, results, o.top)
	return nil
}

// allocate makes buffers, those that rotate copies times.
func allocate(d device.Device, list []*memory, copies int) (map[*memory][]device.Buffer, error) {
	r := rand.New(rand.NewPCG(1, 2))
	out := map[*memory][]device.Buffer{}
	for _, m := range list {
		n := 1
		if m.content == codes || m.content == scales {
			n = copies
		}
		for range n {
			b, err := d.NewBuffer(m.bytes)
			if err != nil {
				return out, err
			}
			out[m] = append(out[m], b)
			if m.content == zeros {
				continue
			}
			for at, block := 0, m.block(r); at < m.bytes; at += len(block) {
				if err := b.Write(at, block[:min(len(block), m.bytes-at)]); err != nil {
					return out, err
				}
			}
		}
	}
	return out, d.Wait()
}

// block is the content of a buffer, or a part of it to repeat.
func (m *memory) block(r *rand.Rand) []byte {
	const most = 4 << 20
	var out []byte
	for i := 0; len(out) < min(m.bytes, most); i++ {
		switch m.content {
		case codes:
			out = binary.LittleEndian.AppendUint32(out, r.Uint32())
		case scales:
			out = binary.LittleEndian.AppendUint16(out, uint16(0x3c00+r.IntN(0x80)))
		case values:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(r.NormFloat64())))
		case halves:
			out = binary.LittleEndian.AppendUint16(out, uint16(math.Float32bits(float32(r.NormFloat64()))>>16))
		default:
			out = binary.LittleEndian.AppendUint32(out, uint32(m.ints[i]))
		}
	}
	return out
}

// try measures a variant and gives its results on the first copy of the weights.
func (c testCase) try(d device.Device, v variant, k compiled, buffers map[*memory][]device.Buffer, copies int, o options) (m measurement, results []float64) {
	m.label = v.label
	fail := func(err error) (measurement, []float64) {
		m.err = err
		return m, nil
	}
	if k.err != nil {
		return fail(k.err)
	}
	record := func(n int) (device.Sequence, error) {
		var list []device.Dispatch
		for i := range n {
			x := device.Dispatch{Label: v.label, Kernel: k.kernel, Groups: v.launch.Groups, Threads: v.launch.Threads, Memory: v.launch.Memory, Barrier: true}
			for _, m := range c.buffers(v) {
				x.Arguments = append(x.Arguments, device.Argument{Binding: device.Binding{Buffer: buffers[m][i%copies%len(buffers[m])]}})
			}
			if v.launch.Params != nil {
				x.Arguments = append(x.Arguments, device.Argument{Bytes: v.launch.Params})
			}
			list = append(list, x)
		}
		return d.Record(list)
	}
	run := func(s device.Sequence) (time.Duration, error) {
		start := time.Now()
		if err := s.Submit(); err != nil {
			return 0, err
		}
		err := d.Wait()
		return time.Since(start), err
	}
	one, err := record(1)
	if err != nil {
		return fail(err)
	}
	defer one.Close()
	if _, err := run(one); err != nil {
		return fail(err)
	}
	if results, err = c.read(buffers[c.result][0]); err != nil {
		return fail(err)
	}
	many, err := record(o.dispatches)
	if err != nil {
		return fail(err)
	}
	defer many.Close()
	var times []time.Duration
	for range o.repeat + 1 {
		t, err := run(many)
		if err != nil {
			return fail(err)
		}
		times = append(times, t/time.Duration(o.dispatches))
	}
	times = times[1:] // the first one warms up
	slices.Sort(times)
	m.time = times[len(times)/2]
	return m, results
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
func (c testCase) read(b device.Buffer) ([]float64, error) {
	raw := make([]byte, min(b.Size(), 1<<20))
	if err := b.Read(0, raw); err != nil {
		return nil, err
	}
	var out []float64
	for len(raw) >= 4 {
		if c.half {
			out = append(out, float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw))<<16)))
			raw = raw[2:]
			continue
		}
		out = append(out, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
		raw = raw[4:]
	}
	return out, nil
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
		fmt.Fprintf(w, "  %s %-64s %9.2f us %7.0f GB/s %7.1f TFLOP/s  diff %.1e\n", mark, m.label, s*1e6, c.bytes/s/1e9, c.flops/s/1e12, m.diff)
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
