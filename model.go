package etc

import (
	"errors"
	"slices"
	"sync"

	"github.com/dustin/go-humanize"

	"github.com/etc-ml/etc/internal/devices"
	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
)

// Model is a language model that is ready to answer. It is safe for concurrent use. [Open] makes one.
type Model struct {
	info    Info
	program *program.Program
	runner  *batch.Runner

	lock        sync.Mutex // of text, which is not safe for concurrent use
	text        *prompt.Text
	constraints *constraints
}

// Info describes an open model.
type Info struct {
	// Path is the file that it was opened from.
	Path string
	// Device is the name of the device that runs it.
	Device string
	// ContextLength is the most tokens of a prompt and its answer together.
	ContextLength int
	// VocabularySize is the number of token ids that it gives logits of; 0 where the file does not say.
	VocabularySize int
	// Concurrent is the most answers that share a call. It is 1 for programs that have no form for many sequences.
	Concurrent int
	// StopTokens are the tokens that end an answer.
	StopTokens []int
	// Chats reports whether there is a chat template, which [Model.Chat] needs.
	Chats bool
}

// Open opens the program in a file, compiles it for a device, and reads the tokenizer, the chat template and the
// defaults that the file holds. The file stays mapped, and must not change, until Close. What is no language model is
// an [ErrInvalid], what does not fit an [ErrMemory].
func Open(path string, o Options) (*Model, error) {
	fill(&o.Concurrent, defaultConcurrent)
	e, options, err := o.engine()
	if err != nil {
		return nil, err
	}
	if o.Sampler == "file" {
		return nil, kind.Usagef("Options.Sampler file is for OpenSession: the runtime draws the tokens of a Model")
	}
	if e, err = devices.Chosen(e, options.Precision); err != nil {
		return nil, err
	}
	p, err := program.Open(path)
	if err != nil {
		return nil, err
	}
	m := &Model{program: p}
	if err := m.load(path, e, options, o); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return m, nil
}

// openText reads what an open file says of text, and what the options have in its place.
func openText(p *program.Program, o Options) (*prompt.Text, error) {
	t := prompt.Source{Tokenizer: o.Tokenizer, TemplateFile: o.ChatTemplateFile, Template: o.ChatTemplate,
		TemplateName: "Options.ChatTemplate", NoTemplate: o.NoChatTemplate, IDs: true}
	if o.ChatTemplate != "" && o.ChatTemplateFile != "" ||
		o.NoChatTemplate && (o.ChatTemplate != "" || o.ChatTemplateFile != "") {
		return nil, kind.Usagef("Options: ChatTemplate, ChatTemplateFile and NoChatTemplate: want one of them")
	}
	return t.Open(p)
}

// load reads the text of the open file and compiles it.
func (m *Model) load(path string, e engine.Engine, options engine.Options, o Options) (err error) {
	if m.text, err = openText(m.program, o); err != nil {
		return err
	}
	if err := m.compile(path, e, options, o); err != nil {
		return err
	}
	limits := m.runner.Limits()
	m.info = Info{Path: path, Device: e.Name(), ContextLength: limits.Positions, VocabularySize: limits.Vocab,
		Concurrent: o.Concurrent,
		StopTokens: m.text.Stop, Chats: m.text.Template != nil && m.text.Tokenizer != nil}
	m.constraints = &constraints{text: m.text, vocabulary: limits.Vocab}
	if limits.OneByOne {
		m.info.Concurrent = 1
	}
	m.text.UnusedDefaults(!limits.NoLogits, options.Warn)
	if _, _, err := m.text.BatchDefaults(limits); err != nil { // what is wrong with them is wrong with the file
		return errors.Join(err, m.runner.Close())
	}
	return nil
}

// compile compiles the program, with the draft that is asked for, and starts the runner.
func (m *Model) compile(path string, e engine.Engine, options engine.Options, o Options) error {
	asked, err := execution.ParseDrafts(o.Speculate)
	if err != nil {
		return kind.Usagef("Options.Speculate is %w", err)
	}
	drafts, err := asked.In(path, m.program, "Options.Speculate", options.Warn)
	if err != nil {
		return err
	}
	all, err := execution.ModuleWith(m.program, drafts.Kind)
	if err != nil {
		return err
	}
	d, err := session.Describe(all.Only(all.Entry))
	if err != nil {
		return kind.Invalidf("%s: %w", path, err)
	}
	budget, state, err := cacheMemory(path, all, d.MaxSeqLen, e, options.Precision, o, drafts.Most)
	if err != nil {
		return err
	}
	shared := execution.Shared{Path: path, Engine: e, Options: options, Drafts: drafts, Sequences: o.Concurrent,
		Queue: longQueue, State: state, Budget: budget}
	m.runner, err = shared.Run(all)
	return err
}

// longQueue is the most answers that may wait. It is so large that a program does not reach it in practice.
const longQueue = 1 << 20

// cacheMemory chooses the memory for states in bytes, and measures what one sequence takes. A call verifies so many
// drafts of each.
func cacheMemory(path string, m *ir.Module, positions int, e engine.Engine, p eval.Precision, o Options,
	drafts int) (budget, state int64, err error) {
	need := execution.NeedOf(m, positions, e, p)
	state = max(need.State, 1)
	if o.CacheMemory > 0 {
		if o.CacheMemory < 2*state {
			return 0, 0, kind.Usagef("Options.CacheMemory is %s, want at least two sequences of %s (%s)",
				humanize.IBytes(uint64(o.CacheMemory)), humanize.IBytes(uint64(state)), path)
		}
		return o.CacheMemory, state, nil
	}
	available, device := execution.MemoryOn(e)
	fit := execution.Fit{File: path, Need: need, Context: positions, Device: device}
	budget, err = fit.Budget(o.Concurrent, drafts, available)
	return budget, state, err
}

// Info returns a description of the model.
func (m *Model) Info() Info { return m.info.clone() }

// clone returns a copy that the caller may change.
func (i Info) clone() Info {
	i.StopTokens = slices.Clone(i.StopTokens)
	return i
}

// Close ends the answers that run, frees the model and unmaps its file.
func (m *Model) Close() error { return errors.Join(m.runner.Close(), m.program.Close()) }
