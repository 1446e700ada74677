package etc

import (
	"slices"

	"github.com/etc-ml/etc/internal/devices"
	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/ragged"
)

// Options say how [Open] and [OpenSession] run a program. The zero value chooses all by itself.
type Options struct {
	// Device is what runs the program: "auto" (as ""), "metal", "cuda", "cpu", or "reference", which is slow and made
	// to be right.
	Device string
	// Precision is where results are rounded: "mixed" (as ""), "fp32" or "strict"; see docs/running.md.
	Precision string
	// Threads is the number of worker threads; 0 is one for each CPU.
	Threads int
	// Exact keeps activations in float32 where a device would round them for speed.
	Exact bool
	// Deterministic makes answers the same to the bit whoever shares their calls. Without it their last bits may
	// differ.
	Deterministic bool
	// NoTune takes the default kernels of a GPU, and measures nothing at the first start.
	NoTune bool
	// Speculate has answers draft tokens, which their next call verifies, so that they come faster and stay the same.
	// It is "off" (as ""); "mtp" or "assistant", the draft of the file; "ngram", what stood in the text before; or
	// "auto", the draft that the file has, else ngram, or none where the program cannot verify any. With :K after
	// it, as "mtp:1", each call drafts K tokens for an answer, else as many as are worth it.
	Speculate string
	// KVCache is the form of keys and values: "declared" (as ""), as the program says, or "q8", codes of 8 bits with a
	// scale for each 32. State is that of the recurrent state of delta rules: "declared" (as "") or "bf16".
	KVCache, State string
	// Concurrent is the most answers at a time; 0 is 4. More wait.
	Concurrent int
	// CacheMemory is the memory for the states of answers and of prefixes in bytes, of two sequences at least; 0 is
	// enough for Concurrent whole contexts and as many prefixes, of these at least 16 or 2 GiB, but at most half of the
	// memory that is left.
	CacheMemory int64
	// Sampler is what draws the tokens of a [Session]: "file", the program's sampling head or, without one, the most
	// likely token or a draw by temperature alone; "runtime", etc's own sampler, on the device; or "", the file's head
	// where it takes all parameters, else the runtime's. Both give the same tokens. A [Model], drafts and Deterministic
	// always have the runtime's.
	Sampler string
	// Tokenizer is the path of a tokenizer.json in the place of the file's.
	Tokenizer string
	// ChatTemplate is the text of a chat template in the place of the file's, and ChatTemplateFile the path of one.
	// NoChatTemplate goes without, so that prompts are used as they are.
	ChatTemplate, ChatTemplateFile string
	NoChatTemplate                 bool
	// Warn is told what runs otherwise than asked for; nil for nobody. It may be called from any goroutine.
	Warn func(text string)

	// Observe is told of each step that the device has run, with its time; nil for nobody. Package runtime/profile
	// makes tables and traces of steps.
	Observe func(*engine.Step)
	// DisablePasses leaves out passes of the runtime's optimizer, and VerifyIR checks the graph after each. They are
	// for the work on etc itself.
	DisablePasses []string
	VerifyIR      bool
}

// defaultConcurrent is how many answers run at a time where nothing is said.
const defaultConcurrent = 4

// engine finds the engine and its options. The engine may be auto, which chooses when it compiles.
func (o *Options) engine() (engine.Engine, engine.Options, error) {
	fill(&o.Device, "auto")
	fill(&o.Precision, "mixed")
	fail := func(format string, args ...any) (engine.Engine, engine.Options, error) {
		return nil, engine.Options{}, kind.Usagef(format, args...)
	}
	precision, err := eval.ParsePrecision(o.Precision)
	if err != nil {
		return fail("%w", err)
	}
	switch {
	case o.Threads < 0:
		return fail("Options.Threads is %d, want 0 or more", o.Threads)
	case o.Concurrent < 0:
		return fail("Options.Concurrent is %d, want 0 or more", o.Concurrent)
	case o.CacheMemory < 0:
		return fail("Options.CacheMemory is %d, want 0 or more", o.CacheMemory)
	case !slices.Contains([]string{"", "file", "runtime"}, o.Sampler):
		return fail("Options.Sampler is %q, want file or runtime", o.Sampler)
	}
	e, err := devices.Find(o.Device)
	if err != nil {
		return fail("%w", err)
	}
	form, err := execution.FormOf("Options.KVCache", o.KVCache, "Options.State", o.State, precision)
	if err != nil {
		return nil, engine.Options{}, err
	}
	if form != (ragged.Storage{}) {
		if e, err = devices.Chosen(e, precision); err != nil {
			return nil, engine.Options{}, err
		}
		e = execution.Storing(e, form)
	}
	warn := o.Warn
	if warn == nil {
		warn = func(string) {}
	}
	return e, engine.Options{Precision: precision, Threads: o.Threads, Exact: o.Exact, Deterministic: o.Deterministic,
		NoTune: o.NoTune, Warn: warn, Observe: o.Observe, DisablePasses: o.DisablePasses, VerifyIR: o.VerifyIR}, nil
}

// fill sets a value that is zero.
func fill[T comparable](to *T, value T) {
	var zero T
	if *to == zero {
		*to = value
	}
}

// Device is something that can run programs.
type Device struct {
	// Name is a value for Options.Device.
	Name string
	// Memory is the memory of a GPU in bytes; 0 for a device that uses the machine's memory.
	Memory int64
}

// Devices lists the devices of this machine, the one that "auto" chooses first.
func Devices() []Device {
	var out []Device
	for _, g := range devices.GPUs {
		if bytes, err := g.DeviceMemory(); err == nil {
			out = append(out, Device{g.Name(), bytes})
		}
	}
	for _, e := range devices.Engines {
		out = append(out, Device{Name: e.Name()})
	}
	return out
}
