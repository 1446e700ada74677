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

// Describe writes how the engine of a device, "metal" or "cuda", runs a module. It needs no such device. It writes the
// plan for a single token, kernel by kernel, with the bytes of weights and state that each reads; the plan for a chunk
// of chunk tokens, summed by kind of kernel; and the memory of both plans. Operations without a kernel are listed as
// kind "reference". It returns an error for a module that the engine cannot run.
func Describe(w io.Writer, m *ir.Module, name string, chunk int, o engine.Options) error {
	return Engine{Device: name}.Describe(w, m, chunk, o)
}

// Describe writes what the function Describe writes. If this machine has the device, it uses the launches that were
// tuned for it.
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

// here returns the tuner and the properties of this machine's device. The tuner is nil where there is no device or
// nothing was tuned.
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

// tunedFor returns a line that names the device that a plan is tuned for.
func tunedFor(p *boundPlan, t *tune.Tuner) string {
	if t == nil {
		return "no device in particular"
	}
	products, kept := p.products(t), 0
	for _, q := range products {
		if _, _, ok := t.Kept(q.variants()); ok {
			kept++
		}
	}
	return fmt.Sprintf("%s: %d of %d products, kept in %s", t.About(), kept, len(products), t.Dir())
}

// writeChanged lists the kernels of the plan for which the tuner chose another launch than the default.
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

// maxChunk bounds the chunks that plans are shown for. Programs that are not language models declare no chunk size.
const maxChunk = 1 << 14

// work returns the name, kind and bytes read of each step of the plan.
func (p *boundPlan) work() []plan.Work {
	out := make([]plan.Work, len(p.steps))
	for i, s := range p.steps {
		out[i] = plan.Work{Kind: s.kind, Op: s.op, Bytes: s.bytes}
	}
	return out
}

// paper is a device that exists only to make plans. Nothing can run on it.
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

// sheet is a buffer of a paper device: a size without memory.
type sheet struct{ size int }

func (s *sheet) Size() int                            { return s.size }
func (s *sheet) Write(int, []byte) error              { return nil }
func (s *sheet) Place(int, []byte) error              { return nil }
func (s *sheet) Read(int, []byte) error               { return errPaper }
func (s *sheet) Fetch(_, _ int) (device.Fetch, error) { return nil, errPaper }
func (s *sheet) Close() error                         { return nil }
