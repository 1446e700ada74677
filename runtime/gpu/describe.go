package gpu

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/tune"
	"github.com/etc-ml/etc/runtime/plan"
)

// Describe tells how the engine of a device, "metal" or "cuda", runs a module, on any machine: the plan for a
// single token, kernel by kernel, with what each reads of weights and state; that of a chunk of so many tokens,
// by kind of kernel; and the memory that plans need. Kind "reference" is what has no kernel. What does not run
// there is an error.
func Describe(w io.Writer, m *ir.Module, name string, chunk int, o engine.Options) error {
	return Engine{Device: name}.Describe(w, m, chunk, o)
}

// Describe is the function Describe for the device of this machine, if it has it: what was tuned for it is told.
func (e Engine) Describe(w io.Writer, m *ir.Module, chunk int, o engine.Options) error {
	name := e.Device
	var warnings []string
	o.Warn = func(text string) { warnings = append(warnings, text) }
	tuner, info, err := e.here(o)
	if err != nil {
		return err
	}
	exe, err := Engine{Device: name, Open: func() (device.Device, error) { return paper{info}, nil }}.Compile(m, o)
	if err != nil {
		return err
	}
	defer exe.Close()
	x, ok := exe.(*executable)
	if !ok {
		return errors.New(strings.Join(warnings, "; "))
	}
	made, err := x.NewInstance()
	if err != nil {
		return err
	}
	defer made.Close()
	n := made.(*instance)
	one, err := n.bind(plan.Shapes(x.fused, 1))
	if err != nil {
		return err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "engine %s, tuned for %s\n\nplan of %s for one token\n", name, tunedFor(one, tuner), m.Entry.Name)
	for i, s := range one.work() {
		fmt.Fprintf(&b, "%5d  %-16s %s\n", i, s.Kind, s.About())
	}
	b.WriteString("\nby kind\n")
	plan.WriteKinds(&b, one.work())
	one.writeChanged(&b, tuner)
	memory := plan.Size(one.size) + " for a token"
	if chunk > 1 && chunk <= maxChunk {
		p, err := n.bind(plan.Shapes(x.fused, chunk))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\nplan of %s for a chunk of %d tokens, by kind\n", m.Entry.Name, chunk)
		plan.WriteKinds(&b, p.work())
		p.writeChanged(&b, tuner)
		memory += fmt.Sprintf(", %s for a chunk of %d tokens", plan.Size(p.size), chunk)
	}
	held := 0
	for _, s := range n.states {
		if s.slot != nil {
			held += s.slot.Size
		}
	}
	fmt.Fprintf(&b, "\nmemory: %s of buffers, %s\n", plan.Size(held), memory)
	for _, text := range warnings {
		fmt.Fprintln(&b, text)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// here is the tuner of the device of this machine, nil where it has none or nothing is tuned, and what is known of the
// device.
func (e Engine) here(o engine.Options) (*tune.Tuner, device.Info, error) {
	info := device.Info{Machine: kernels.Machine{Target: kernels.CUDA}}
	if e.Device == "metal" {
		info.Target = kernels.Metal
	}
	if e.Tune == nil || o.NoTune {
		return nil, info, nil
	}
	d, err := e.Open()
	if errors.Is(err, device.ErrUnavailable) {
		return nil, info, nil
	}
	if err != nil {
		return nil, info, fmt.Errorf("--device %s: %w", e.Device, err)
	}
	return tune.New(d, *e.Tune, o.Warn), d.Info(), d.Close()
}

// tunedFor says which device a plan is tuned for.
func tunedFor(p *boundPlan, t *tune.Tuner) string {
	if t == nil {
		return "no device in particular"
	}
	products, kept := p.products(t), 0
	for _, q := range products {
		if _, ok := t.Kept(q.variants()); ok {
			kept++
		}
	}
	return fmt.Sprintf("%s: %d of %d products, kept in %s", t.About(), kept, len(products), t.Dir())
}

// writeChanged tells which of the plan's products are not launched in the default way on this device.
func (p *boundPlan) writeChanged(b *bytes.Buffer, t *tune.Tuner) {
	if t == nil {
		return
	}
	for _, q := range p.products(t) {
		if text := t.Changed(q.variants()); text != "" {
			fmt.Fprintf(b, "%5d  tuned %s\n", len(q.steps), text)
		}
	}
}

// maxChunk bounds the chunks that plans are shown for: programs that are no language models name none.
const maxChunk = 1 << 14

// work is what the steps of a plan do.
func (p *boundPlan) work() []plan.Work {
	out := make([]plan.Work, len(p.steps))
	for i, s := range p.steps {
		out[i] = plan.Work{Kind: s.kind, Op: s.op, Bytes: s.bytes}
	}
	return out
}

// paper is a device that plans are made for and nothing runs on.
type paper struct{ info device.Info }

func (d paper) Name() string                            { return "paper" }
func (d paper) Info() device.Info                       { return d.info }
func (paper) NewBuffer(size int) (device.Buffer, error) { return &sheet{size: size}, nil }
func (paper) Wrap(memory []byte) (device.Buffer, error) { return &sheet{size: len(memory)}, nil }
func (paper) Wait() error                               { return nil }
func (paper) Recover() error                            { return nil }
func (paper) Close() error                              { return nil }

func (paper) Compile(device.Source) (device.Library, error) { return nil, errPaper }

func (paper) Record([]device.Dispatch) (device.Sequence, error) { return nil, errPaper }

var errPaper = errors.New("a plan on paper does not run")

// sheet is a buffer of such a device.
type sheet struct{ size int }

func (s *sheet) Size() int                            { return s.size }
func (s *sheet) Write(int, []byte) error              { return nil }
func (s *sheet) Place(int, []byte) error              { return nil }
func (s *sheet) Read(int, []byte) error               { return errPaper }
func (s *sheet) Fetch(_, _ int) (device.Fetch, error) { return nil, errPaper }
func (s *sheet) Close() error                         { return nil }
