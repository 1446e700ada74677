package gpu

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/plan"
	"github.com/etc-ml/etc/runtime/program"
)

// TestDumpPlans writes what the plans of graphs hold to files in the directory ETC_PLAN_DUMP: every step, with its
// kernel, grid, constants and buffers. Two of these directories, of before and after a change, are compared with
// diff -r. ETC_PLAN_FILES names .pte files besides, between colons.
func TestDumpPlans(t *testing.T) {
	to := os.Getenv("ETC_PLAN_DUMP")
	if to == "" {
		t.Skip("ETC_PLAN_DUMP names no directory")
	}
	require.NoError(t, os.MkdirAll(to, 0o755))
	modules := map[string]func() *ir.Module{}
	for _, name := range fusetest.Names() {
		modules[name] = func() *ir.Module { return fusetest.Load(t, name) }
	}
	for _, path := range filepath.SplitList(os.Getenv("ETC_PLAN_FILES")) {
		modules[strings.TrimSuffix(filepath.Base(path), ".pte")] = func() *ir.Module {
			p, err := program.Open(path)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, p.Close()) })
			m, err := p.Module("forward")
			require.NoError(t, err)
			return m
		}
	}
	for name, load := range modules {
		m := load()
		for _, on := range dumpDevices {
			for named, precision := range map[string]eval.Precision{"fp32": eval.FP32, "mixed": eval.Mixed} {
				text := dumpPlans(t, m, on.info, precision, dumpTokens)
				file := fmt.Sprintf("%s.%s.%s.txt", name, on.name, named)
				require.NoError(t, os.WriteFile(filepath.Join(to, file), []byte(text), 0o644))
			}
		}
	}
}

// dumpTokens are the lengths of the chunks that plans are dumped of.
var dumpTokens = []int{1, 3, 9, 64, 200}

// dumpDevices are devices that plans are dumped for: as Describe takes them, and an H100, where products are streamed.
var dumpDevices = []dumpDevice{
	{"metal", device.Info{Machine: kernels.Machine{Target: kernels.Metal}}},
	{"cuda", device.Info{Machine: kernels.Machine{Target: kernels.CUDA}}},
	{"h100", device.Info{Machine: kernels.Machine{Target: kernels.CUDA, Cores: 132, TransferMemory: 232448,
		TransferLeast: 8 << 20}}},
	// The tiny models have no product that an H100 streams: one that streams all there are.
	{"streams", device.Info{Machine: kernels.Machine{Target: kernels.CUDA, Cores: 4,
		TransferMemory: 232448, TransferLeast: 1}}},
}

type dumpDevice struct {
	name string
	info device.Info
}

// dumpPlans tells the plans of a module on a device for calls of so many tokens, as text that is the same wherever the
// steps are.
func dumpPlans(t testing.TB, m *ir.Module, info device.Info, precision eval.Precision, tokens []int) string {
	t.Helper()
	var warnings []string
	open := func() (device.Device, error) {
		if info.Cores > 0 {
			return multiplyingPaper{inkPaper{paper{info}}}, nil
		}
		return inkPaper{paper{info}}, nil
	}
	e := Engine{Device: "paper", Open: open}
	exe, err := e.Compile(m, engine.Options{Precision: precision,
		Warn: func(text string) { warnings = append(warnings, text) }})
	require.NoError(t, err)
	defer exe.Close()
	x, ok := exe.(*executable)
	require.True(t, ok, warnings)
	made, err := x.NewInstance()
	require.NoError(t, err)
	defer made.Close()
	n := made.(*instance)
	var out bytes.Buffer
	for _, count := range tokens {
		p, err := n.bind(plan.Shapes(x.fused, count))
		if err != nil {
			fmt.Fprintf(&out, "\nplan of %d tokens: %v\n", count, err)
			continue
		}
		fmt.Fprintf(&out, "\nplan of %d tokens: %d bytes, %d cells, %d bytes of words\n", count, p.size,
			len(p.hostValues), p.uniforms.size)
		newPlanDump(n, p, &out).write()
	}
	for _, text := range warnings {
		fmt.Fprintln(&out, text)
	}
	return out.String()
}

// planDump writes a plan; slots have the numbers in which steps name them first.
type planDump struct {
	*boundPlan
	out     *bytes.Buffer
	states  map[*slot]string
	names   map[*slot]string
	numbers map[byte]int
}

func newPlanDump(n *instance, p *boundPlan, out *bytes.Buffer) *planDump {
	d := &planDump{boundPlan: p, out: out, states: map[*slot]string{}, names: map[*slot]string{},
		numbers: map[byte]int{}}
	for b, s := range n.states {
		if s.slot != nil {
			d.states[s.slot] = b.Name
		}
	}
	return d
}

func (d *planDump) write() {
	for i := range d.steps {
		s := &d.steps[i]
		if s.host != nil {
			fmt.Fprintf(d.out, "%d host %s\n", i, s.op.Def.Name)
			continue
		}
		l := s.launch
		if s.kernel != nil {
			l.Kernel = s.kernel.Name()
		}
		fmt.Fprintf(d.out, "%d %s of %s: %s\n", i, s.kind, s.op.Def.Name, l.Key())
		fmt.Fprintf(d.out, "  groups %v threads %v memory %d params %x, reads %d and %d, self-test %t, %s\n",
			l.Groups, l.Threads, l.Memory, l.Params, s.bytes, s.caches, l.Case != nil, d.variants(s))
		for j, o := range s.operands {
			fmt.Fprintf(d.out, "  %2d %s\n", j, d.operand(o))
		}
	}
	for i, v := range d.outputs {
		switch {
		case v.place == onDevice:
			fmt.Fprintf(d.out, "output %d: %s+%d of %v, strides %v\n", i, d.name(v.slot), v.at(), v.shape, v.stride)
		default:
			fmt.Fprintf(d.out, "output %d: on the host\n", i)
		}
	}
}

// variants are the launches that a tuner may choose from: their number, and a checksum.
func (d *planDump) variants(s *step) string {
	if s.variants == nil {
		return "no variants"
	}
	launches, sum := s.variants().Launches, crc32.NewIEEE()
	for _, l := range launches {
		fmt.Fprintln(sum, l.Key(), l.Groups, l.Threads, l.Memory)
	}
	return fmt.Sprintf("%d variants %08x", len(launches), sum.Sum32())
}

func (d *planDump) operand(o operand) string {
	text := fmt.Sprintf("%s+%d:%d", d.name(o.slot), o.at, o.size)
	if o.write {
		text += " written"
	}
	if o.then != nil {
		text += " then " + d.name(o.then)
	}
	if o.synthetic != nil {
		text += " with an example"
	}
	return text
}

// name is what a slot is called: a letter for what it is, a number, its size, and of a constant the checksum.
func (d *planDump) name(s *slot) string {
	if s == nil {
		return "none"
	}
	if name, ok := d.names[s]; ok {
		return name
	}
	letter, more := byte('t'), fmt.Sprint(s.Size) // in the arena
	switch {
	case s.state:
		letter, more = 's', d.states[s]
	case s.fixed:
		letter, more = 'c', fmt.Sprintf("%d/%08x", s.Size, s.buffer.(*inkSheet).sum)
	case s.buffer != nil:
		letter = 'w' // uniforms and results
	}
	name := fmt.Sprintf("%c%d(%s)", letter, d.numbers[letter], more)
	d.numbers[letter]++
	d.names[s] = name
	return name
}

// inkPaper is paper that keeps checksums of what is written to it.
type inkPaper struct{ paper }

func (inkPaper) NewBuffer(size int) (device.Buffer, error) {
	return &inkSheet{sheet: sheet{size: size}}, nil
}

func (inkPaper) Wrap(memory []byte) (device.Buffer, error) {
	return &inkSheet{sheet{size: len(memory)}, crc32.ChecksumIEEE(memory)}, nil
}

// inkSheet is a buffer of inkPaper.
type inkSheet struct {
	sheet
	sum uint32
}

func (s *inkSheet) Write(at int, p []byte) error {
	s.sum += crc32.ChecksumIEEE(p) * uint32(2*at+1)
	return nil
}

func (s *inkSheet) Place(at int, p []byte) error { return s.Write(at, p) }

// multiplyingPaper has a library of matrix products, too.
type multiplyingPaper struct{ inkPaper }

func (multiplyingPaper) MatrixProduct(p device.Product) (device.Kernel, error) {
	return paperProduct{p}, nil
}

// paperProduct is a kernel of that library.
type paperProduct struct{ device.Product }

func (p paperProduct) Name() string  { return fmt.Sprintf("product %+v", p.Product) }
func (paperProduct) MaxThreads() int { return 1024 }
func (paperProduct) Close() error    { return nil }
