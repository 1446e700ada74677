package gpu_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
	"github.com/etc-ml/etc/runtime/gpu"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
	"github.com/etc-ml/etc/runtime/gpu/selftest"
	"github.com/etc-ml/etc/runtime/gpu/tune"
	"github.com/etc-ml/etc/runtime/reference"
)

// faulty is a device that compiles some texts wrongly, or not at all.
type faulty struct {
	device.Device
	// info is the device's, after it was closed, too.
	info device.Info
	// fault changes the text of a file.
	fault func(file, text string) (string, error)

	// named names a text, where it is set, else its file does.
	named func(s device.Source) string

	mu sync.Mutex
	// compiled counts the compiled texts of files, changed those that fault has changed; recorded counts sequences.
	compiled, changed map[string]int
	recorded          int
}

// opener gives what opens d around another device. It has memory of the host where that has.
func (d *faulty) opener(inner func() (device.Device, error)) func() (device.Device, error) {
	return func() (device.Device, error) {
		var err error
		if d.Device, err = inner(); err != nil {
			return nil, err
		}
		d.info = d.Device.Info()
		if w, ok := d.Device.(device.HostWriter); ok {
			return struct {
				*faulty
				device.HostWriter
			}{d, w}, nil
		}
		return d, nil
	}
}

func (d *faulty) Compile(s device.Source) (device.Library, error) {
	text, err := d.fault(s.Name, s.Text)
	name := s.Name
	if d.named != nil {
		name = d.named(s)
	}
	d.mu.Lock()
	d.compiled[name]++
	if err != nil || text != s.Text {
		d.changed[s.Name]++
	}
	d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return d.Device.Compile(device.Source{Name: s.Name, Text: text})
}

func (d *faulty) Record(list []device.Dispatch) (device.Sequence, error) {
	d.recorded++
	return d.Device.Record(list)
}

// replace is a fault: in the texts of a file, old becomes by.
func replace(file, old, by string) func(string, string) (string, error) {
	return func(name, text string) (string, error) {
		if name == file {
			text = strings.ReplaceAll(text, old, by)
		}
		return text, nil
	}
}

// refuse is a fault: the files do not compile.
func refuse(files ...string) func(string, string) (string, error) {
	return func(name, text string) (string, error) {
		for _, f := range files {
			if f == name || f == "*" {
				return "", errors.New("a compiler of another opinion")
			}
		}
		return text, nil
	}
}

// tested runs calls on a device with a fault; it gives the outputs, the device and what the user was told.
func tested(t *testing.T, m *ir.Module, p eval.Precision, dir string, calls []int,
	fault func(file, text string) (string, error)) ([]*eval.Tensor, *faulty, []string) {
	t.Helper()
	return testedOn(t, onDevice(t).(gpu.Engine).Open, m, p, dir, calls, fault)
}

// testedOn is tested on the device that inner opens.
func testedOn(t *testing.T, inner func() (device.Device, error), m *ir.Module, p eval.Precision, dir string,
	calls []int, fault func(file, text string) (string, error)) ([]*eval.Tensor, *faulty, []string) {
	t.Helper()
	d := &faulty{fault: fault, compiled: map[string]int{}, changed: map[string]int{}}
	e := gpu.Engine{Device: "emulator", SelfTest: &selftest.Options{Dir: dir}, Open: d.opener(inner)}
	var warnings []string
	x, err := e.Compile(m, engine.Options{Precision: p, Warn: func(text string) { warnings = append(warnings, text) }})
	require.NoError(t, err)
	i, err := x.NewInstance()
	require.NoError(t, err)
	out := runCalls(t, m, i, calls)
	require.NoError(t, i.Close())
	require.NoError(t, x.Close())
	return out, d, warnings
}

// TestKnownAnswers: all kernels of a model pass, that is remembered, and a second start tries none.
func TestKnownAnswers(t *testing.T) {
	t.Parallel()
	for name, precision := range map[string]eval.Precision{"etc-qwen35moe-chat-sample": eval.FP32,
		"gemma4-chat-bf16-ropefix": eval.Mixed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, m := t.TempDir(), fusetest.Load(t, name)
			calls, none := []int{12, 1}, refuse()
			_, first, warnings := tested(t, m, precision, dir, calls, none)
			require.Empty(t, warnings)
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Greater(t, len(files), 15)

			// A file that is damaged is not believed.
			path := filepath.Join(dir, files[0].Name())
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, text[:len(text)-2], 0o600))
			_, again, warnings := tested(t, m, precision, dir, calls, none)
			require.Empty(t, warnings)
			require.Equal(t, first.recorded-len(files)+1, again.recorded, "a trial is a sequence")
		})
	}
}

// TestWrongKernels: what fails its self-test is not used, the user is told once, and the answers are the reference
// engine's.
func TestWrongKernels(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: whole models on the emulator")
	}
	t.Parallel()
	const qwen, gemma = "etc-qwen35moe-chat-portable", "gemma4-chat-bf16-ropefix"
	for name, c := range map[string]struct {
		graph, file string
		precision   eval.Precision
		fault       func(file, text string) (string, error)
		want        string
	}{
		"products of vectors": {qwen, "matvec", eval.FP32, replace("matvec", "out[0]", "out[0] * 1.001f"),
			"matvec/matvec is off by "},
		"products by tiles": {qwen, "matmul", eval.FP32,
			replace("matmul", "MATMUL_OUT(v)", "MATMUL_OUT(v + 1.0f)"), "matmul/matmul is off by "},
		"experts by tiles": {qwen, "experts_matmul", eval.FP32, refuse("experts_matmul"),
			"experts_matmul/experts_matmul_up does not run: kernel experts_matmul/experts_matmul_up "},
		"a sort": {qwen, "experts_sort", eval.FP32,
			replace("experts_sort", "= ushort(seen + equal)", "= ushort(seen + 1)"),
			"experts_sort/experts_sort is off by "},
		"a choice of experts": {qwen, "experts", eval.FP32,
			replace("experts", "= router_score(", "= 0.5f * router_score("), "experts/experts_choose is off by "},
		"a shared expert": {qwen, "experts", eval.FP32, replace("experts", "apart ? w1 : w0", "w0"),
			"experts/experts_join is off by "},
		"norms": {gemma, "norm", eval.FP32, refuse("norm"), "norm/norm does not run: "},
		"attention by tiles": {gemma, "attention_chunk", eval.Mixed,
			replace("attention_chunk", "1.0f / tile_row_sum(l[r])", "0.9f / tile_row_sum(l[r])"),
			"attention_chunk/attention_chunk is off by "},
		"attention of one token": {gemma, "attention_step", eval.Mixed,
			replace("attention_step", "e[i] * ATT_SCALE", "0.9f * e[i] * ATT_SCALE"),
			"attention_step/attention_step is off by "},
		"the delta rule": {qwen, "delta", eval.FP32, refuse("delta", "delta_chunk"),
			"delta/delta_gates does not run: "},
		"a convolution": {qwen, "conv", eval.FP32, refuse("conv"), "conv/conv_state does not run: "},
		"functions": {gemma, "elementwise", eval.FP32, refuse("elementwise"),
			"elementwise/elementwise does not run: "},
		"rotation": {gemma, "rope", eval.FP32,
			replace("rope", "e[i] * a.x - o * a.y", "e[i] * a.x + o * a.y"), "rope/rope is off by "},
		"everything of a family": {qwen, "matvec", eval.FP32, refuse("matvec", "matmul", "experts", "experts_matmul"),
			"matvec/matvec does not run: "},
		"everything":          {qwen, "norm", eval.FP32, refuse("*"), "norm/norm does not run: "},
		"everything, windows": {gemma, "norm", eval.Mixed, refuse("*"), "norm/norm does not run: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := fusetest.Load(t, c.graph)
			calls := []int{12, 1}
			want := runCalls(t, m, compile(t, reference.Engine{}, m, engine.Options{Precision: c.precision}), calls)
			tolerance := 3e-4
			if c.precision == eval.Mixed {
				tolerance = 5e-2
			}
			dir := t.TempDir()
			got, d, warnings := tested(t, m, c.precision, dir, calls, c.fault)
			require.NotZero(t, d.changed[c.file], "the fault is in no kernel: %v", d.compiled)
			requireClose(t, want, got, tolerance)
			require.NotEmpty(t, warnings)
			all := strings.Join(warnings, "\n")
			if name == "attention of one token" && d.info.Target == kernels.Metal {
				// there no threadgroup of the first kernel does what is left for the last
				c.want = "attention/attention_merge is off by "
			}
			require.Contains(t, all, c.want)
			require.Contains(t, all, d.info.Description+": kernels that fail their self-tests are not used")

			_, failed := selftest.Summary(tune.Identity(d.info), d.info.Target, selftest.Options{Dir: dir})
			require.Contains(t, strings.Join(failed, "\n"), c.want, "what etc doctor shows")
			if name == "a sort" {
				_, _, warnings := tested(t, m, c.precision, dir, calls, c.fault)
				require.Contains(t, strings.Join(warnings, "\n"), c.want, "it is tried and told again")
			}
		})
	}
}

// TestExpertsByAnotherTile: where the experts' default tile fails its self-test, they are multiplied by the next one,
// not token by token.
func TestExpertsByAnotherTile(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a whole model on the emulator")
	}
	t.Parallel()
	m := fusetest.Load(t, "etc-qwen35moe-chat-portable")
	want := runCalls(t, m, compile(t, reference.Engine{}, m, engine.Options{Precision: eval.FP32}), []int{12})
	var mu sync.Mutex
	others := map[bool]int{} // of products up, and down
	got, _, warnings := tested(t, m, eval.FP32, t.TempDir(), []int{12}, func(file, text string) (string, error) {
		switch {
		case file != "experts_matmul":
		case !strings.Contains(text, "#define MATMUL_BN 128\n"):
			return "", errors.New("refused")
		default:
			mu.Lock()
			others[strings.Contains(text, "#define ENTRY_experts_matmul_up\n")]++
			mu.Unlock()
		}
		return text, nil
	})
	requireClose(t, want, got, 3e-4)
	require.NotEmpty(t, warnings)
	require.NotZero(t, others[true])
	require.NotZero(t, others[false])
}
