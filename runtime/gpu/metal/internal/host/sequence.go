//go:build darwin || linux

package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

var (
	selCommandBuffer = sel("commandBufferWithUnretainedReferences")
	selEncoder       = sel("computeCommandEncoderWithDispatchType:")
	selWaitFence     = sel("waitForFence:")
	selUpdateFence   = sel("updateFence:")
	selSetPipeline   = sel("setComputePipelineState:")
	selSetBuffer     = sel("setBuffer:offset:atIndex:")
	selSetBytes      = sel("setBytes:length:atIndex:")
	selBarrier       = sel("memoryBarrierWithScope:")
	selDispatch      = sel("dispatchThreadgroups:threadsPerThreadgroup:")
	selEndEncoding   = sel("endEncoding")
	selWait          = sel("waitUntilCompleted")
	selStatus        = sel("status")
	selError         = sel("error")
	selStart         = sel("GPUStartTime")
	selEnd           = sel("GPUEndTime")
)

// maxRunning is how many sequences may be on their way; a Submit beyond waits for the oldest. The queue itself
// allows 64.
const maxRunning = 8

// maxWrite is the largest Write that is put before a sequence: what setBytes takes.
const maxWrite = device.MaxBytes

// write is a Write that comes before the next sequence.
type write struct {
	to     *buffer
	offset int
	from   []byte
}

// writeText is the kernel that carries out a write.
const writeText = `#include <metal_stdlib>
using namespace metal;
struct WriteRange {
  uint start;
  uint count;
};
[[max_total_threads_per_threadgroup(64)]]
kernel void put_bytes(device uchar* to [[buffer(0)]], constant uchar* from [[buffer(1)]], constant WriteRange& range [[buffer(2)]],
                      uint i [[thread_position_in_grid]]) {
  if (i < range.count) to[range.start + i] = from[i];
}
`

// argument is a buffer of Metal's with an offset, or bytes.
type argument struct {
	buffer id
	offset uintptr
	bytes  []byte
}

// command is a dispatch as it is encoded.
type command struct {
	label           string
	pipeline        id
	arguments       []argument
	groups, threads [3]uintptr
	barrier         bool
}

type sequence struct {
	device   *gpu
	commands []command
}

func (d *gpu) Record(dispatches []device.Dispatch) (device.Sequence, error) {
	s := &sequence{d, make([]command, len(dispatches))}
	for i, x := range dispatches {
		if err := device.CheckDispatch(i, x, d.info); err != nil {
			return nil, fmt.Errorf("metal: %w", err)
		}
		k, ok := x.Kernel.(*kernel)
		if !ok || k.device != d {
			return nil, fmt.Errorf("metal: dispatch %d (%s): kernel %s is of another device", i,
				x.Label, x.Kernel.Name())
		}
		if len(x.Arguments) != k.arguments {
			return nil, fmt.Errorf("metal: dispatch %d (%s): %d arguments, kernel %s has %d", i, x.Label,
				len(x.Arguments), k.name, k.arguments)
		}
		c := command{label: x.Label, pipeline: k.id, arguments: make([]argument, len(x.Arguments)), barrier: x.Barrier}
		for j := range 3 {
			c.groups[j], c.threads[j] = uintptr(x.Groups[j]), uintptr(x.Threads[j])
		}
		for j, a := range x.Arguments {
			if a.Bytes != nil {
				c.arguments[j].bytes = bytes.Clone(a.Bytes)
				continue
			}
			b, ok := a.Buffer.(*buffer)
			if !ok || b.device != d {
				return nil, fmt.Errorf("metal: dispatch %d (%s): argument %d is a buffer of another device", i, x.Label,
					j)
			}
			object, offset := b.at(a.Offset)
			c.arguments[j] = argument{buffer: object, offset: uintptr(offset)}
		}
		s.commands[i] = c
	}
	return s, nil
}

func (s *sequence) Close() error { return nil }

func (s *sequence) Submit() error {
	d := s.device
	if err := d.collect(); err != nil {
		return err
	}
	if len(d.running) >= maxRunning {
		if err := d.waitFor(d.completed + 1); err != nil {
			return err
		}
	}
	writes := d.writes
	d.writes = nil
	_, err := d.submit(func(e *encoder) {
		for _, w := range writes {
			e.encode(w.command(d.write))
		}
		for i := range s.commands {
			c := &s.commands[i]
			e.barrier = e.barrier || i == 0 && len(writes) > 0
			e.encode(c)
		}
	})
	return err
}

// command returns the dispatch of a write. It waits for those before it, which may be to the same place.
func (w write) command(k *kernel) *command {
	object, offset := w.to.at(w.offset)
	start := offset % 16
	limits := binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, uint32(start)),
		uint32(len(w.from)))
	return &command{
		label: "write", pipeline: k.id, barrier: true,
		arguments: []argument{{buffer: object, offset: uintptr(offset - start)}, {bytes: w.from}, {bytes: limits}},
		groups:    [3]uintptr{uintptr(len(w.from)+63) / 64, 1, 1}, threads: [3]uintptr{64, 1, 1},
	}
}

// encoder remembers what is bound, so that nothing is bound twice.
type encoder struct {
	id       id
	count    int // of dispatches
	barrier  bool
	pipeline id
	buffers  [31]id
	offsets  [31]uintptr
}

func (e *encoder) encode(c *command) {
	if e.count > 0 && (c.barrier || e.barrier) {
		send(e.id, selBarrier, scopeBuffers)
	}
	e.barrier = false
	e.count++
	if e.pipeline != c.pipeline {
		send(e.id, selSetPipeline, uintptr(c.pipeline))
		e.pipeline = c.pipeline
	}
	for i := range c.arguments {
		a := &c.arguments[i]
		switch {
		case a.bytes != nil:
			send(e.id, selSetBytes, uintptr(unsafe.Pointer(unsafe.SliceData(a.bytes))),
				uintptr(len(a.bytes)), uintptr(i))
			e.buffers[i] = 0
		case e.buffers[i] != a.buffer || e.offsets[i] != a.offset:
			send(e.id, selSetBuffer, uintptr(a.buffer), a.offset, uintptr(i))
			e.buffers[i], e.offsets[i] = a.buffer, a.offset
		}
	}
	sendSizes(e.id, selDispatch, &c.groups, &c.threads)
}

// submit encodes a command buffer, after all others, and commits it.
func (d *gpu) submit(encode func(*encoder)) (commands id, err error) {
	err = pool(func() error {
		if d.residencyChanged {
			send(d.residency, selCommit)
			send(d.residency, selRequest)
			d.residencyChanged = false
		}
		commands = id(send(d.queue, selCommandBuffer))
		if commands == 0 {
			return errors.New("metal: commandBufferWithUnretainedReferences gives none")
		}
		e := &encoder{id: id(send(commands, selEncoder, dispatchOverlap))}
		if e.id == 0 {
			return errors.New("metal: computeCommandEncoderWithDispatchType gives none")
		}
		send(e.id, selWaitFence, uintptr(d.fence))
		encode(e)
		send(e.id, selUpdateFence, uintptr(d.fence))
		send(e.id, selEndEncoding)
		send(commands, selRetain)
		send(commands, selCommit)
		d.running = append(d.running, commands)
		d.submitted++
		return nil
	})
	return commands, err
}

// collect drops the command buffers that are done, without a wait.
func (d *gpu) collect() error {
	for d.err == nil && len(d.running) > 0 && send(d.running[0], selStatus) >= statusCompleted {
		if err := d.waitFor(d.completed + 1); err != nil {
			return err
		}
	}
	return d.err
}

// waitFor waits until the first n command buffers of the timeline are done.
func (d *gpu) waitFor(n int) error {
	for d.completed < n {
		commands := d.running[0]
		d.running = d.running[1:]
		d.completed++
		err := pool(func() error { // what the system does meanwhile may autorelease
			send(commands, selWait)
			if send(commands, selStatus) == statusError {
				return &device.FaultError{Err: fmt.Errorf("metal: command buffer %d: %w", d.completed,
					nsError(id(send(commands, selError))))}
			}
			return nil
		})
		if d.err == nil {
			d.err = err
		}
		release(commands)
	}
	return d.err
}

func (d *gpu) Wait() error {
	if err := d.waitFor(d.submitted); err != nil {
		return err
	}
	for _, w := range d.writes {
		copy(w.to.memory[w.offset:], w.from)
	}
	d.writes = nil
	return nil
}

// Recover forgets the error of a command buffer, which says nothing about the next one, and the writes that were to
// come after it.
func (d *gpu) Recover() error {
	if d.Wait() != nil {
		d.err, d.writes = nil, nil
	}
	return nil
}

// Times gives every dispatch a command buffer of its own, which is what Metal has times of.
func (s *sequence) Times() ([]time.Duration, error) {
	d := s.device
	if err := d.Wait(); err != nil {
		return nil, err
	}
	var out []time.Duration
	for i := range s.commands {
		commands, err := d.submit(func(e *encoder) { e.encode(&s.commands[i]) })
		if err != nil {
			return nil, err
		}
		send(commands, selRetain)
		err = d.Wait()
		start, end := seconds(commands, selStart), seconds(commands, selEnd)
		release(commands)
		if err != nil {
			return nil, err
		}
		out = append(out, time.Duration((end-start)*1e9))
	}
	return out, nil
}
