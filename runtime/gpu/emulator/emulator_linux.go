//go:build amd64 || arm64

package emulator

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// ThreadgroupMemory is the threadgroup memory that every Metal device has, in bytes.
const ThreadgroupMemory = 32 << 10

type emulator struct {
	compiler *compiler
	options  Options
	random   *rand.Rand
	queue    []func() error
	err      error // of a sequence: nothing runs after it until Recover
}

// Open makes an emulator. Its error wraps device.ErrUnavailable where the machine has no C++ compiler.
func Open(options Options) (device.Device, error) {
	c, err := newCompiler(options.Cache)
	if err != nil {
		return nil, err
	}
	return &emulator{compiler: c, options: options, random: rand.New(rand.NewPCG(uint64(options.Schedule), 0))}, nil
}

func (d *emulator) Name() string { return "emulator" }

func (d *emulator) Info() device.Info {
	return device.Info{
		Description: fmt.Sprintf("emulator on %s/%s, schedule %d", runtime.GOOS, runtime.GOARCH, d.options.Schedule),
		Machine: kernels.Machine{
			Target: kernels.CPU, Cores: cmp.Or(d.options.Cores, runtime.NumCPU()),
			TransferMemory: d.options.TransferMemory, TransferLeast: d.options.TransferLeast,
			Groups: d.options.Groups, Lanes: d.options.Lanes,
		},
		Memory: 64 << 30, ThreadgroupMemory: ThreadgroupMemory, MaxThreads: 1024, Unified: true,
	}
}

// enqueue puts a function after those that wait to be run; Wait runs them in order.
func (d *emulator) enqueue(f func() error) { d.queue = append(d.queue, f) }

func (d *emulator) Wait() error {
	for _, f := range d.queue {
		if d.err == nil {
			d.err = f()
		}
	}
	d.queue = d.queue[:0]
	return d.err
}

// Recover drops what was to come after the error, too.
func (d *emulator) Recover() error {
	_ = d.Wait()
	d.err = nil
	return nil
}

func (d *emulator) Close() error { return d.Wait() }

// command is a dispatch with its arguments as addresses.
type command struct {
	device.Dispatch
	kernel *kernel
	args   []unsafe.Pointer
}

type sequence struct {
	device *emulator
	groups [][]command // between barriers
}

func (d *emulator) Record(dispatches []device.Dispatch) (device.Sequence, error) {
	s := &sequence{device: d}
	for i, x := range dispatches {
		if err := device.CheckDispatch(i, x, d.Info()); err != nil {
			return nil, fmt.Errorf("emulator: %w", err)
		}
		k, ok := x.Kernel.(*kernel)
		if !ok {
			return nil, fmt.Errorf("emulator: dispatch %d (%s): kernel %s is of another device", i,
				x.Label, x.Kernel.Name())
		}
		if len(x.Arguments) != k.arguments {
			return nil, fmt.Errorf("emulator: dispatch %d (%s): %d arguments, kernel %s has %d", i, x.Label,
				len(x.Arguments), k.name, k.arguments)
		}
		c := command{x, k, make([]unsafe.Pointer, len(x.Arguments))}
		for j, a := range x.Arguments {
			if a.Bytes != nil {
				c.args[j] = unsafe.Pointer(unsafe.SliceData(bytes.Clone(a.Bytes)))
				continue
			}
			b, ok := a.Buffer.(*buffer)
			if !ok || b.device != d {
				return nil, fmt.Errorf("emulator: dispatch %d (%s): argument %d is a buffer of another device", i,
					x.Label, j)
			}
			c.args[j] = unsafe.Pointer(&b.memory[a.Offset])
		}
		if x.Barrier || len(s.groups) == 0 {
			s.groups = append(s.groups, nil)
		}
		last := &s.groups[len(s.groups)-1]
		*last = append(*last, c)
	}
	return s, nil
}

func (s *sequence) Submit() error {
	s.device.enqueue(s.run)
	return s.device.err
}

// run runs the dispatches between two barriers in the order of the schedule.
func (s *sequence) run() error {
	for _, group := range s.groups {
		order := make([]int, len(group))
		for i := range order {
			order[i] = i
			if s.device.options.Schedule == 1 {
				order[i] = len(group) - 1 - i
			}
		}
		if s.device.options.Schedule > 1 {
			s.device.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		for _, i := range order {
			if err := group[i].run(s.device.options.Schedule); err != nil {
				return err
			}
		}
	}
	return nil
}

// Times runs the dispatches in the order given.
func (s *sequence) Times() ([]time.Duration, error) {
	if err := s.device.Wait(); err != nil {
		return nil, err
	}
	var out []time.Duration
	for _, group := range s.groups {
		for i := range group {
			start := time.Now()
			if err := group[i].run(s.device.options.Schedule); err != nil {
				s.device.err = err
				return nil, err
			}
			out = append(out, time.Since(start))
		}
	}
	return out, nil
}

func (s *sequence) Close() error { return nil }

func (c *command) run(schedule uint32) error {
	var shape [6]uint32
	for i := range 3 {
		shape[i], shape[3+i] = uint32(c.Groups[i]), uint32(c.Threads[i])
	}
	text := make([]byte, 400)
	failed, _, _ := purego.SyscallN(c.kernel.library.launch, c.kernel.entry, c.kernel.info,
		uintptr(unsafe.Pointer(unsafe.SliceData(c.args))), uintptr(len(c.args)), uintptr(unsafe.Pointer(&shape)),
		uintptr(schedule), ThreadgroupMemory, uintptr(c.Memory), uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)))
	runtime.KeepAlive(c)
	if int32(failed) == 0 {
		return nil
	}
	text, _, _ = bytes.Cut(text, []byte{0})
	return fmt.Errorf("emulator: dispatch %s, kernel %s: %s", c.Label, c.kernel.name, text)
}
