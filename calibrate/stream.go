package calibrate

import (
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
)

// call is one call of the module's entry, with its values that later segments read.
type call struct {
	tokens, position int
	items            map[*ir.Value]*item
}

// window is a part of a text that is run by itself: its calls in order, and the buffers that they share.
type window struct {
	calls   []*call
	buffers map[*ir.Buffer]*eval.Tensor
}

// stream computes a module over windows of tokens. A window that is longer than the module's longest call takes
// several calls.
type stream struct {
	module      *ir.Module
	activations *activations
	windows     []*window
	// quantized says that the stream computes with the quantized weights.
	quantized bool
}

// shape is the size of a call.
type shape struct{ tokens, position int }

// callShapes returns the calls that a window of n tokens takes.
func callShapes(m *ir.Module, n int) (out []shape) {
	_, most := m.Entry.Params[0].Type.Shape[1].Bounds()
	longest := int(min(most, int64(n)))
	for at := 0; at < n; at += longest {
		out = append(out, shape{min(longest, n-at), at})
	}
	return out
}

// newStream returns a stream over windows, none of them empty.
func newStream(m *ir.Module, a *activations, windows [][]int, quantized bool) (*stream, error) {
	s := &stream{module: m, activations: a, quantized: quantized}
	for _, ids := range windows {
		w := &window{buffers: map[*ir.Buffer]*eval.Tensor{}}
		for _, part := range callShapes(m, len(ids)) {
			tokens, positions := make([]int64, part.tokens), make([]int64, part.tokens)
			for i := range tokens {
				tokens[i], positions[i] = int64(ids[part.position+i]), int64(part.position+i)
			}
			c := &call{part.tokens, part.position, map[*ir.Value]*item{}}
			for i, t := range []*eval.Tensor{eval.Ints(ir.I64, []int{1, part.tokens}, tokens),
				eval.Ints(ir.I64, []int{part.tokens}, positions)} {
				x, err := a.put(m.Entry.Params[i], eval.Value{Tensor: t})
				if err != nil {
					return nil, err
				}
				c.items[m.Entry.Params[i]] = x
			}
			w.calls = append(w.calls, c)
		}
		s.windows = append(s.windows, w)
	}
	return s, nil
}

// calls returns the calls of windows in order.
func calls(windows []*window) (out []*call) {
	for _, w := range windows {
		out = append(out, w.calls...)
	}
	return out
}

// copyOf returns a stream that goes on from the values that some windows have here, with buffers of its own.
func (s *stream) copyOf(windows []*window, l *ledger) *stream {
	out := &stream{module: s.module, activations: s.activations, quantized: s.quantized}
	for _, w := range windows {
		n := &window{buffers: map[*ir.Buffer]*eval.Tensor{}}
		for b, t := range w.buffers {
			n.buffers[b] = t.Clone()
			l.take(tensorBytes(t))
		}
		for _, c := range w.calls {
			items := maps.Clone(c.items)
			for v, x := range items {
				items[v] = s.activations.share(x)
			}
			n.calls = append(n.calls, &call{c.tokens, c.position, items})
		}
		out.windows = append(out.windows, n)
	}
	return out
}

// drop drops values from all calls.
func (s *stream) drop(values []*ir.Value) {
	for _, c := range calls(s.windows) {
		for _, v := range values {
			if x := c.items[v]; x != nil {
				s.activations.drop(x)
				delete(c.items, v)
			}
		}
	}
}

// table is a value of several calls as one matrix, whose columns are the value's last dim.
type table struct {
	activations *activations
	items       []*item
	starts      []int // by item, the number of its first row
	rows, cols  int
}

// newTable returns the table of a value of floats.
func newTable(s *activations, calls []*call, v *ir.Value) (*table, error) {
	t := &table{activations: s}
	for _, c := range calls {
		x := c.items[v]
		if x == nil || x.value.Tensor == nil || !x.value.Tensor.DType.IsFloat() || len(x.value.Tensor.Shape) == 0 {
			return nil, fmt.Errorf("a linear's input is no tensor of floats")
		}
		t.cols = x.value.Tensor.Shape[len(x.value.Tensor.Shape)-1]
		t.items, t.starts = append(t.items, x), append(t.starts, t.rows)
		t.rows += x.length() / max(t.cols, 1)
	}
	return t, nil
}

// read sets dst to rows [first, first+n).
func (t *table) read(dst []float32, first, n int) error {
	at := sort.SearchInts(t.starts, first+1) - 1
	for n > 0 {
		end := t.rows
		if at+1 < len(t.starts) {
			end = t.starts[at+1]
		}
		count := min(n, end-first)
		if err := t.activations.read(t.items[at], dst[:count*t.cols], (first-t.starts[at])*t.cols); err != nil {
			return err
		}
		dst, first, n = dst[count*t.cols:], first+count, n-count
		at++
	}
	return nil
}

// frame holds the values of a call while it runs a segment.
type frame struct {
	stream *stream
	window *window
	call   *call
	values map[*ir.Value]eval.Value
	bytes  map[*ir.Value]int64
	ledger *ledger
}

// newFrame returns the frame of a call of a window, without values.
func newFrame(s *stream, w *window, c *call, l *ledger) *frame {
	return &frame{stream: s, window: w, call: c, values: map[*ir.Value]eval.Value{}, bytes: map[*ir.Value]int64{},
		ledger: l}
}

// tensorBytes returns the size of a tensor in memory.
func tensorBytes(t *eval.Tensor) int64 {
	if t == nil {
		return 0
	}
	return floatBytes(len(t.F)) + 8*int64(len(t.I))
}

// set defines a value that takes n bytes of memory.
func (f *frame) set(v *ir.Value, x eval.Value, n int64) {
	f.ledger.take(n)
	f.values[v], f.bytes[v] = x, n
}

func (f *frame) drop(v *ir.Value) {
	f.ledger.give(f.bytes[v])
	delete(f.values, v)
	delete(f.bytes, v)
}

// close drops all values.
func (f *frame) close() {
	for v := range f.values {
		f.drop(v)
	}
}

// run executes the operations of a segment for one call. given are the results of the site. What later segments use
// is kept in activations, except in the last segment, whose result run leaves in the frame.
func (f *frame) run(g *segment, given map[*ir.Value]eval.Value, k *constants, last bool) error {
	for v, x := range given {
		f.set(v, x, 0)
	}
	for _, v := range g.loads {
		x := f.call.items[v]
		if x == nil {
			return fmt.Errorf("a value is used where no operation that ran has defined it")
		}
		value, n, err := f.stream.activations.get(x)
		if err != nil {
			return err
		}
		f.set(v, value, n)
	}
	for i, op := range g.ops {
		if err := f.op(op, k); err != nil {
			return fmt.Errorf("%w\n\tin %s", err, ir.Describe(f.stream.module, op))
		}
		for _, v := range g.ends[i] {
			f.drop(v)
		}
	}
	if last {
		return nil
	}
	for _, v := range g.keeps {
		x, err := f.stream.activations.put(v, f.values[v])
		if err != nil {
			return err
		}
		f.call.items[v] = x
		f.drop(v)
	}
	return nil
}

// args returns the arguments of op, and the bytes of those that are tensors.
func (f *frame) args(op *ir.Op, k *constants) (args [][]eval.Value, n int64, err error) {
	args = make([][]eval.Value, len(op.Args))
	for i, list := range op.Args {
		args[i] = make([]eval.Value, len(list))
		for j, a := range list {
			switch {
			case a.Kind != ir.ValueArg:
				args[i][j].Int = a.Int
				continue
			case a.Value.Constant != nil:
				if args[i][j].Tensor, err = k.get(a.Value.Constant); err != nil {
					return nil, 0, err
				}
			default:
				v, ok := f.values[a.Value]
				if !ok {
					return nil, 0, fmt.Errorf("%s: a value is used where no operation that ran has defined it",
						op.Def.Name)
				}
				args[i][j] = v
			}
			n += tensorBytes(args[i][j].Tensor)
		}
	}
	return args, n, nil
}

// op executes an operation.
func (f *frame) op(op *ir.Op, k *constants) error {
	if len(op.Regions) > 0 {
		return fmt.Errorf("calibration cannot run the operation %s", op.Def.Name)
	}
	args, argBytes, err := f.args(op, k)
	if err != nil {
		return err
	}
	x := &eval.Call{Op: op, Precision: eval.FP32, Args: args}
	scratch := argBytes + maskBytes(x)
	f.ledger.take(scratch)
	defer f.ledger.give(scratch)
	var results []eval.Value
	switch {
	case op.Def.Effect == ir.Reads:
		results = []eval.Value{{Tensor: f.buffer(op.Buffer).Clone()}} // updates are in place
	case op.Def.Effect == ir.Writes && op.Def.State == ir.ReplacesState:
		f.ledger.give(tensorBytes(f.buffer(op.Buffer)))
		f.window.buffers[op.Buffer] = x.Tensor("x").Clone()
		f.ledger.take(tensorBytes(f.window.buffers[op.Buffer]))
	case op.Def.Effect == ir.Writes:
		results, err = eval.Update(x, f.buffer(op.Buffer))
	default:
		results, err = eval.Run(x)
	}
	if err != nil {
		return err
	}
	for i, v := range op.Results {
		f.set(v, results[i], tensorBytes(results[i].Tensor))
	}
	return nil
}

// maskBytes returns the size of a mask of scores once it is broadcast to all heads.
func maskBytes(x *eval.Call) int64 {
	if x.Op.Def.Name != "sdpa" || x.Tensor("mask") == nil {
		return 0
	}
	q, k := x.Tensor("q").Shape, x.Tensor("k").Shape
	if len(q) != 4 || len(k) != 4 {
		return 0
	}
	return 8 * int64(q[0]) * int64(q[1]) * int64(q[2]) * int64(k[2])
}

// buffer returns the content of a buffer. It is zeros at first.
func (f *frame) buffer(b *ir.Buffer) *eval.Tensor {
	t := f.window.buffers[b]
	if t == nil {
		dims, _ := b.Type.Static()
		t = &eval.Tensor{DType: b.Type.DType}
		for _, d := range dims {
			t.Shape = append(t.Shape, int(d))
		}
		if n := ir.Elements(dims); b.Type.DType.IsFloat() {
			t.F = make([]float32, n)
		} else {
			t.I = make([]int64, n)
		}
		f.window.buffers[b] = t
		f.ledger.take(tensorBytes(t))
	}
	return t
}

// runWindow executes the operations of a segment for a window. given are the results of the site, by call.
func (s *stream) runWindow(g *segment, w *window, given []map[*ir.Value]eval.Value, k *constants, l *ledger) error {
	for i, c := range w.calls {
		f := newFrame(s, w, c, l)
		err := f.run(g, given[i], k, false)
		f.close()
		if err != nil {
			return err
		}
	}
	w.free(g.frees, l)
	return nil
}

// free forgets the window's content of buffers that no later segment uses, and takes it off the ledger of memory.
func (w *window) free(buffers []*ir.Buffer, l *ledger) {
	for _, b := range buffers {
		if t := w.buffers[b]; t != nil {
			l.give(tensorBytes(t))
			delete(w.buffers, b)
		}
	}
}

// windowsAtOnce is the number of windows that go through a segment at a time where memory allows that. The weights of
// the segment are read once for all of them.
const windowsAtOnce = 16

// advance executes a segment for all windows of a stream, c.windows of them at a time. The segment begins with its
// site, the operation with weights; from reads the weights, quantized or not, row by row, one element for each weight.
func (d *driver) advance(s *stream, g *segment, at *site, from []rows, c config, k *constants) error {
	each := workers(c.jobs)
	for chunk := range slices.Chunk(s.windows, max(c.windows, 1)) {
		if err := d.ctx.Err(); err != nil {
			return err
		}
		given, n, err := d.siteResults(s, at, from, chunk, each)
		if err != nil {
			return err
		}
		d.look()
		starts := make([]int, len(chunk))
		for i := range chunk[1:] {
			starts[i+1] = starts[i] + len(chunk[i].calls)
		}
		err = each.try(len(chunk), func(i int) error {
			part := given[starts[i] : starts[i]+len(chunk[i].calls)]
			return s.runWindow(g, chunk[i], part, k, d.ledger)
		})
		d.ledger.give(n)
		if err != nil {
			return err
		}
	}
	return nil
}
