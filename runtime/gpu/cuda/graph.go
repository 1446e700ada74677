//go:build (linux && !nocuda) || windows

package cuda

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// node is a node of a CUDA graph.
type node uintptr

// kernelNode is CUDA_KERNEL_NODE_PARAMS, version 1.
type kernelNode struct {
	function      uintptr
	groups        [3]uint32
	threads       [3]uint32
	dynamicShared uint32
	_             uint32
	arguments     *unsafe.Pointer
	extra         uintptr
}

// sequence is a graph that can be launched.
type sequence struct {
	device     *gpu
	dispatches []command
	executable uintptr
	words      hostWords
	early      map[node]bool // of the graph in the making: kernels that may start early, and let others
}

// command is a dispatch that was checked: of a kernel, or of a product.
type command struct {
	device.Dispatch
	kernel  *kernel
	product *product
	values  []uint64 // of buffers: addresses
}

// small reports whether c is a kernel of one threadgroup.
func (c *command) small() bool { return c.kernel != nil && c.Groups == [3]int{1, 1, 1} }

func (d *gpu) Record(dispatches []device.Dispatch) (device.Sequence, error) {
	s := &sequence{device: d, dispatches: make([]command, len(dispatches))}
	for i, x := range dispatches {
		c, err := d.check(i, x)
		if err != nil {
			return nil, fmt.Errorf("cuda: %w", err)
		}
		s.dispatches[i] = c
		for _, a := range x.Arguments {
			if a.Bytes == nil {
				s.words.see(a.Buffer.(*buffer), a.Offset)
			}
		}
	}
	err := d.do(func() error { return s.build() })
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// check checks a dispatch and takes copies of its arguments.
func (d *gpu) check(i int, x device.Dispatch) (command, error) {
	c := command{Dispatch: x}
	if err := device.CheckDispatch(i, x, d.info); err != nil {
		return c, err
	}
	want := 0
	switch k := x.Kernel.(type) {
	case *kernel:
		c.kernel, want = k, k.arguments
	case *product:
		c.product, want = k, 3
	}
	if c.kernel == nil && c.product == nil {
		return c, fmt.Errorf("dispatch %d (%s): kernel %s is of another device", i, x.Label, x.Kernel.Name())
	}
	if len(x.Arguments) != want {
		return c, fmt.Errorf("dispatch %d (%s): %d arguments, kernel %s has %d", i, x.Label,
			len(x.Arguments), x.Kernel.Name(), want)
	}
	c.values = make([]uint64, len(x.Arguments))
	for j, a := range x.Arguments {
		if a.Bytes != nil {
			continue
		}
		b, ok := a.Buffer.(*buffer)
		if !ok || b.device != d {
			return c, fmt.Errorf("dispatch %d (%s): argument %d is a buffer of another device", i, x.Label, j)
		}
		c.values[j] = uint64(b.address) + uint64(a.Offset)
	}
	if c.product != nil {
		return c, c.product.check(i, x)
	}
	return c, nil
}

// maxEdges is the largest number of edges that join the nodes before a barrier to those after it. If there were more,
// both sides are joined to an empty node instead.
const maxEdges = 64

// build makes the graph. Barriers divide the dispatches into stages. A dispatch depends on all of the stage before its
// own. Products by cuBLAS also depend on each other, since cuBLAS has one workspace. Where kernels start early, kernels
// of one threadgroup at the beginning of a stage depend on each other, too: that costs only a microsecond, and a graph
// without forks is launched faster. Larger kernels of a stage do not: if they did, 4 to 32 sequences of Qwen3.5-35B-A3B
// would be 1 % slower on an H100.
func (s *sequence) build() error {
	return s.instantiate(func(graph uintptr) error {
		var before, group []node
		var product node
		for i := range s.dispatches {
			c := &s.dispatches[i]
			chained := s.device.overlap && len(group) == 1 && c.small() && s.dispatches[i-1].small()
			if (c.Barrier || chained) && len(group) > 0 {
				before, group = group, nil
				width := 0
				for j := i; j < len(s.dispatches) && (j == i || !s.dispatches[j].Barrier); j++ {
					width++
				}
				if len(before)*width > maxEdges && len(before) > 1 {
					joined, err := s.device.emptyNode(graph, before)
					if err != nil {
						return err
					}
					before = []node{joined}
				}
				product = 0
			}
			after := before
			if c.product != nil && product != 0 {
				after = append(append([]node{}, before...), product)
			}
			n, err := s.add(graph, after, c, s.device.overlap)
			if err != nil {
				return err
			}
			if c.product != nil {
				product = n
			}
			group = append(group, n)
		}
		return nil
	}, &s.executable)
}

// instantiate makes an executable graph of what fill puts into a graph.
func (s *sequence) instantiate(fill func(graph uintptr) error, executable *uintptr) error {
	d := s.device
	s.early = map[node]bool{}
	defer func() { s.early = nil }()
	var graph uintptr
	if err := d.call("cuGraphCreate", uintptr(unsafe.Pointer(&graph)), 0); err != nil {
		return err
	}
	err := fill(graph)
	if err == nil {
		err = d.call("cuGraphInstantiateWithFlags", uintptr(unsafe.Pointer(executable)), graph, 0)
	}
	if err == nil {
		err = d.call("cuGraphUpload", *executable, d.stream)
	}
	return errors.Join(err, d.call("cuGraphDestroy", graph))
}

// add puts a dispatch into a graph, after other nodes; early lets a kernel start before they are done.
func (s *sequence) add(graph uintptr, after []node, c *command, early bool) (n node, err error) {
	d := s.device
	if c.product != nil {
		n, err = c.product.add(d, graph, after, c.values)
	} else {
		// The graph copies the values of the arguments.
		arguments := make([]unsafe.Pointer, len(c.Arguments)+1)
		for j, a := range c.Arguments {
			arguments[j] = unsafe.Pointer(&c.values[j])
			if a.Bytes != nil {
				arguments[j] = unsafe.Pointer(unsafe.SliceData(a.Bytes))
			}
		}
		if err := c.kernel.allow(c.Memory); err != nil {
			return 0, err
		}
		params := &kernelNode{function: c.kernel.function, dynamicShared: uint32(c.Memory),
			arguments: unsafe.SliceData(arguments)}
		for i := range 3 {
			params.groups[i], params.threads[i] = uint32(c.Groups[i]), uint32(c.Threads[i])
		}
		if !d.overlap {
			err = d.call("cuGraphAddKernelNode", uintptr(unsafe.Pointer(&n)), graph,
				uintptr(unsafe.Pointer(unsafe.SliceData(after))), uintptr(len(after)), uintptr(unsafe.Pointer(params)))
		} else {
			err = d.call("cuGraphAddKernelNode", uintptr(unsafe.Pointer(&n)), graph, 0, 0,
				uintptr(unsafe.Pointer(params)))
			if err == nil {
				err = s.depend(graph, n, after, early && c.kernel.early)
			}
			s.early[n] = c.kernel.early
		}
	}
	if err != nil {
		return 0, fmt.Errorf("%w (dispatch %s)", err, c.Label)
	}
	return n, nil
}

func (d *gpu) emptyNode(graph uintptr, after []node) (n node, err error) {
	err = d.call("cuGraphAddEmptyNode", uintptr(unsafe.Pointer(&n)), graph,
		uintptr(unsafe.Pointer(unsafe.SliceData(after))), uintptr(len(after)))
	return n, err
}

func (s *sequence) Submit() error {
	return s.device.do(s.launch)
}

func (s *sequence) launch() error {
	s.words.await()
	return s.device.call("cuGraphLaunch", s.executable, s.device.stream)
}

// Times runs a graph of its own: a chain of the dispatches with an event before and after each. An event
// costs the GPU about a microsecond, which is in the times.
func (s *sequence) Times() (out []time.Duration, err error) {
	err = s.device.do(func() error {
		out, err = s.times()
		return err
	})
	return out, err
}

func (s *sequence) times() (out []time.Duration, err error) {
	d := s.device
	s.words.await()
	events := make([]event, len(s.dispatches)+1)
	defer func() {
		for _, e := range events {
			err = errors.Join(err, e.close(d))
		}
	}()
	for i := range events {
		if err := events[i].open(d, eventTiming); err != nil {
			return nil, err
		}
	}
	var executable uintptr
	err = s.instantiate(func(graph uintptr) error {
		var after []node
		for i := range events {
			var n node
			err := d.call("cuGraphAddEventRecordNode", uintptr(unsafe.Pointer(&n)), graph,
				uintptr(unsafe.Pointer(unsafe.SliceData(after))), uintptr(len(after)), uintptr(events[i]))
			if err != nil {
				return err
			}
			after = []node{n}
			if i < len(s.dispatches) {
				if n, err = s.add(graph, after, &s.dispatches[i], false); err != nil {
					return err
				}
				after = []node{n}
			}
		}
		return nil
	}, &executable)
	if executable != 0 {
		defer func() { err = errors.Join(err, d.call("cuGraphExecDestroy", executable)) }()
	}
	if err == nil {
		err = d.call("cuGraphLaunch", executable, d.stream)
	}
	if err == nil {
		err = d.call("cuStreamSynchronize", d.stream)
	}
	for i := 0; err == nil && i < len(s.dispatches); i++ {
		var milliseconds float32
		err = d.call("cuEventElapsedTime", uintptr(unsafe.Pointer(&milliseconds)),
			uintptr(events[i]), uintptr(events[i+1]))
		out = append(out, time.Duration(float64(milliseconds)*1e6))
	}
	return out, err
}

func (s *sequence) Close() error {
	executable := s.executable
	s.executable = 0
	if executable == 0 {
		return nil
	}
	return s.device.do(func() error { return s.device.call("cuGraphExecDestroy", executable) })
}
