package command

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/internal/statefile"
	"github.com/etc-ml/etc/internal/tensorfile"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/speculate"
)

type runFlags struct {
	prompt, promptFile, tokens, forceTokens string
	system, sessionFile, template           string
	templateArgs                            []string
	raw, ignoreEOS, json, stats             bool
	think, noThink                          bool
	temperature, topP                       float64
	topK, seed                              int64
	maxNew                                  int
	logits, tokenizer                       string
	stops                                   []string
	samplerFlags
	constraintFlags
	speculateFlags
	model   modelFlags
	observe observeFlags
}

// newRun makes the command etc run. It is long because it is the list of its flags.
func newRun() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run MODEL.pte [PROMPT]",
		Short: "Answer a prompt with a program",
		Long: `run answers a prompt. The prompt is the second argument, --prompt, the content of --prompt-file, or standard
input; --tokens gives token ids instead. On a terminal, without a prompt, it is a chat (/help lists the
commands). The answer goes to standard output, all else to standard error.

The file's chat template makes the model's prompt of the question; --raw goes without it. --session keeps the
chat in a file, with the model's state: the next question goes on where the last answer ended.

The defaults of temperature, top-k and top-p come from the file's generation config, and those of min-p and the
penalties, too, where etc's own sampler draws. Programs without a sampling head (etc export without --sample)
support temperature only by themselves; --sampler runtime draws with etc's own sampler, from the logits of any
program, on its device. It gives the tokens that a head gives for the same options, and has more: min-p, penalties,
logit biases and log-probabilities choose it by themselves. Its order: biases and penalties; temperature; top-k;
top-p; min-p. The repeat penalty counts the last tokens of prompt and answer, the presence and frequency penalties
those of the answer, --repeat-last-n of them, as llama.cpp. Penalties depend on each token of the answer, so that a
GPU cannot begin the next one before the host has it, as it does else.

--json-schema, --grammar and --regex hold the answer, behind its thoughts, to a form, with the same sampler: every
token is one with which the text can still become whole.

Seeds are used modulo 2^32; every answer of a chat draws with the same one.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runRun(cmd.Context(), cmd, args, f)
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&f.prompt, "prompt", "p", "", "the prompt")
	fl.StringVar(&f.promptFile, "prompt-file", "", "file with the prompt")
	fl.StringVar(&f.tokens, "tokens", "", "prompt as token ids: 1,2,3")
	fl.StringVar(&f.forceTokens, "force-tokens", "", "token ids to feed instead of what is chosen (teacher forcing)")
	fl.StringVar(&f.system, "system", "", "system prompt")
	fl.StringVar(&f.sessionFile, "session", "", "file to go on with a chat from, if it exists, and to keep it in")
	fl.StringVar(&f.template, "chat-template", "", "chat template to use instead of the file's")
	fl.StringArrayVar(&f.templateArgs, "template-arg", nil, "variable for the chat template: NAME=JSON")
	fl.BoolVar(&f.think, "think", false,
		"let the model think first; refused where the chat template does not know of it")
	fl.BoolVar(&f.noThink, "no-think", false, "do not let the model think first; refused likewise")
	fl.BoolVar(&f.raw, "raw", false, "use the prompt as it is, without the chat template; special tokens in "+
		"it are parsed")
	fl.Float64Var(&f.temperature, "temperature", 0, "sampling temperature, 0 for the most likely token")
	fl.Float64Var(&f.temperature, "temp", 0, "same as --temperature")
	fl.Int64Var(&f.topK, "top-k", 0, "sample from the k most likely tokens, 0 or less for all")
	fl.Float64Var(&f.topP, "top-p", 1, "sample from the most likely tokens of this probability, in (0, 1]")
	fl.Int64Var(&f.seed, "seed", 0, "seed of the first token (default: random, and logged)")
	fl.IntVarP(&f.maxNew, "max-new-tokens", "n", 0,
		"length of the answer in tokens, 0 or -1 for no limit (default: until a stop token or a full context)")
	fl.IntVar(&f.maxNew, "max-tokens", 0, "same as --max-new-tokens")
	fl.BoolVar(&f.ignoreEOS, "ignore-eos", false, "go on after stop tokens")
	fl.StringArrayVar(&f.stops, "stop", nil,
		"`TEXT` ends the answer, which it is not part of; may be given several times")
	f.samplerFlags.add(cmd)
	f.addConstraints(cmd)
	f.addSpeculate(cmd)
	fl.StringVar(&f.logits, "logits", "", "safetensors file for the logits after the prompt and after every token")
	fl.BoolVar(&f.json, "json", false, "print one JSON object instead of the text")
	fl.BoolVar(&f.stats, "stats", false, "print speed, memory and seed to standard error")
	fl.StringVar(&f.tokenizer, "tokenizer", "", "tokenizer.json to use instead of the file's")
	f.observe.add(cmd)
	f.model.add(cmd, "mixed")
	f.model.addDeterministic(cmd)
	f.model.addStorage(cmd)
	return cmd
}

func runRun(ctx context.Context, cmd *cobra.Command, args []string, f runFlags) error {
	device, options, err := f.model.runner()
	if err != nil {
		return err
	}
	if err := checkCombinations(cmd, args, f); err != nil {
		return err
	}
	if err := f.checkFiles(cmd); err != nil {
		return err
	}
	if what := f.undetermined(cmd, args); f.model.deterministic && what != "" {
		return usagef("--deterministic with %s: it answers one prompt, with etc's own sampler", what)
	}
	return f.observe.around(cmd, device, &options, args[0],
		func() error { return runProgram(ctx, cmd, args, f, device, options) })
}

// checkFiles refuses files to write that cannot be written, before anything runs. The answer goes to standard output,
// so nothing else may.
func (f runFlags) checkFiles(cmd *cobra.Command) error {
	if to := f.logitsTo(cmd); to.isOutput(cmd) {
		return usagef("--logits %s: the answer goes to standard output; name a file", f.logits)
	}
	if err := f.draftLogTo(cmd).check(cmd); err != nil {
		return err
	}
	return f.logitsTo(cmd).check(cmd)
}

// runProgram answers or chats with flags that go together. It is long because it is one sequence of steps, each of
// which needs what those before it made.
func runProgram(ctx context.Context, cmd *cobra.Command, args []string, f runFlags, device engine.Engine,
	options engine.Options) error {
	request, err := requestOf(cmd, f)
	if err != nil {
		return err
	}
	p, err := openProgram(args[0])
	if err != nil {
		return err
	}
	defer p.Close()
	text, err := f.openText(cmd, p)
	if err != nil {
		return err
	}
	if err := f.setDefaults(cmd, args[0], text, &request); err != nil {
		return err
	}
	m, err := p.Module("forward")
	if err != nil {
		return err
	}
	hold, err := f.hold(cmd, text, m, &request)
	if err != nil {
		return err
	}
	if shared, err := f.inSharedCalls(cmd, args); err != nil {
		return err
	} else if shared {
		return answerSequence(ctx, cmd, args, f, device, options, p, text, request, hold)
	}
	sessions := 1
	if f.keepsChat(cmd, args) {
		sessions = 2 // a conversation keeps the session as it was before the last answer
	}
	model, err := f.load(cmd, args[0], m, device, options, request.Sampling, f.keepsChat(cmd, args))
	if err != nil {
		return err
	}
	defer model.Close()
	if err := checkMemory(args[0], m, model, device, options.Precision, sessions, 0); err != nil {
		return err
	}
	if err := checkSampling(cmd, model, &request.Sampling, f); err != nil {
		return err
	}
	s, err := model.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	if f.keepsChat(cmd, args) {
		return converse(ctx, cmd, args, s, text, request, f)
	}
	var end []int
	if request.Prompt, end, err = promptTokens(cmd, args, f, text); err != nil {
		return err
	}
	if hold != nil {
		if err := hold.begin(text, end); err != nil {
			return err
		}
	}
	if err := checkLength(model, request); err != nil {
		return err
	}
	return answer(ctx, cmd, s, text, request, f)
}

// setDefaults takes from the file what flags leave open: parameters of sampling and the tokens that end an answer.
func (f runFlags) setDefaults(cmd *cobra.Command, path string, text *text, request *session.Request) error {
	own, err := f.own(cmd, request.Sampling)
	if err != nil {
		return err
	}
	own = own || f.model.deterministic || anyChanged(cmd, constraintNames...)
	if err := text.Defaults(given(cmd), &request.Sampling, own); err != nil {
		return err
	}
	text.UnusedDefaults(own, logTo(cmd.ErrOrStderr()))
	if len(f.stops) > 0 && text.Tokenizer == nil {
		return usagef("--stop: %s holds no tokenizer, so the answer has no text: give --tokenizer FILE", path)
	}
	if !f.ignoreEOS {
		request.Stop = text.Stop
	}
	return nil
}

// openText reads what the file says about text, and the flags that change it.
func (f runFlags) openText(cmd *cobra.Command, p *program.Program) (*text, error) {
	idsOnly := cmd.Flags().Changed("tokens")
	t, err := openText(p, f.tokenizer, idsOnly)
	if err != nil {
		return nil, err
	}
	t.precision = f.model.precision
	if !f.raw && !idsOnly {
		if t.Template, err = openTemplate(p, f.template); err != nil {
			return nil, err
		}
	}
	if t.Template != nil && (f.template != "" || len(t.Stop) == 0) {
		t.AddTurnEnd()
	}
	switch {
	case cmd.Flags().Changed("think"):
		t.Think = &f.think
	case cmd.Flags().Changed("no-think"):
		think := !f.noThink
		t.Think = &think
	}
	return t, t.setArguments(cmd, f.templateArgs)
}

// chats reports whether a chat is asked for: no prompt, and a person at both ends.
func (f runFlags) chats(cmd *cobra.Command, args []string) bool {
	return len(args) == 1 && !anyChanged(cmd, "prompt", "prompt-file", "tokens", "json", "logits", "logprobs",
		"force-tokens", "raw") &&
		!anyChanged(cmd, constraintNames...) &&
		isTerminal(cmd.InOrStdin()) && isTerminal(cmd.OutOrStdout())
}

// keepsChat reports whether the run is a conversation, not one answer.
func (f runFlags) keepsChat(cmd *cobra.Command, args []string) bool {
	return f.sessionFile != "" || f.chats(cmd, args)
}

// converse runs a chat, or one turn of a chat that a session file keeps.
func converse(ctx context.Context, cmd *cobra.Command, args []string, s *session.Session, text *text, r session.Request,
	f runFlags) (err error) {
	c := chat.New(s, f.system)
	c.Render, c.Text = text.Render, text.Decode
	if f.sessionFile != "" {
		unlock, locked := statefile.LockSession(f.sessionFile)
		if locked != nil {
			return locked
		}
		defer func() { err = errors.Join(err, unlock()) }()
		if err := openSession(cmd.ErrOrStderr(), f.sessionFile, text, s.Model(), c, f.system); err != nil {
			return err
		}
	}
	h := &chatter{text: text, session: s, conversation: c, request: r, stops: f.stops, file: f.sessionFile,
		stats: f.stats, out: cmd.OutOrStdout(), log: cmd.ErrOrStderr()}
	logSeed(cmd, s.Model(), r.Sampling)
	if f.chats(cmd, args) {
		return runChat(cmd, h)
	}
	question, err := promptText(cmd, args, f)
	if err != nil {
		return err
	}
	if err := h.ask(ctx, question); err != nil {
		var long *chat.ContextError
		if errors.As(err, &long) {
			return usageError{err}
		}
		return err
	}
	return errors.Join(h.close(), cancelled(h.last))
}

// logSeed logs a seed that was drawn and is used, so that the run can be repeated.
func logSeed(cmd *cobra.Command, m *session.Model, p session.Sampling) {
	if (m.Form == session.Sampler || m.Form == session.Drawn) && p.Temperature > 0 && !cmd.Flags().Changed("seed") {
		logf(cmd.ErrOrStderr(), "etc: seed %d (key %d)", p.Seed, int32(p.Seed))
	}
}

// logFull tells of an answer that ended because the context is full.
func logFull(log io.Writer, s answering, a session.Answer, r session.Request) {
	context := s.Model().MaxSeqLen
	if a.Reason == session.StopLength && s.Position()+1 >= context && len(a.Tokens) != r.MaxNewTokens &&
		r.Force == nil {
		logf(log, "etc: the answer was cut: the context of %d positions is full; etc export --max-seq-len makes a "+
			"program with more", context)
	}
}

// cancelled returns the error of an answer that Ctrl-C stopped.
func cancelled(a session.Answer) error {
	if a.Reason == session.StopCancelled {
		return errors.New("the answer was stopped")
	}
	return nil
}

// runResult is what --json prints.
type runResult struct {
	PromptTokens []int   `json:"prompt_tokens"`
	Tokens       []int   `json:"tokens"`
	Text         string  `json:"text"`
	Seed         int64   `json:"seed"`
	StopReason   string  `json:"stop_reason"`
	Device       string  `json:"device"`
	Prefill      float64 `json:"prefill_tokens_per_second"`
	Decode       float64 `json:"decode_tokens_per_second"`
	// Drafts are there with --speculate.
	Drafts *speculate.Totals `json:"drafts,omitempty"`
	// Logprobs are there with --logprobs.
	Logprobs []answerLogprobs `json:"logprobs,omitempty"`
}

// logitsTo is where --logits writes.
func (f runFlags) logitsTo(cmd *cobra.Command) destination {
	return destination{path: f.logits, kind: outfile.Tensors,
		inputs: append([]string{f.promptFile, f.tokenizer, f.template}, cmd.Flags().Args()...)}
}

// answer generates one answer and prints it.
func answer(ctx context.Context, cmd *cobra.Command, s answering, text *text, r session.Request, f runFlags) error {
	out := cmd.OutOrStdout()
	shown := f.newAnswerText(text, out)
	if !f.json || len(f.stops) > 0 {
		r.Token = shown.push
	}
	var rows []float32
	count := 0
	if f.logits != "" {
		r.Logits = func(logits []float32) error {
			rows = append(rows, logits...)
			count++
			return nil
		}
	}
	logSeed(cmd, s.Model(), r.Sampling)
	a, err := s.Generate(ctx, r)
	if err != nil {
		shown.abandon()
		return err
	}
	if f.logits != "" {
		t := eval.Floats(ir.F32, []int{count, len(rows) / max(count, 1)}, rows)
		if err := f.logitsTo(cmd).writeTensors(cmd, []safetensors.Entry{tensorfile.Entry("logits", eval.Value{Tensor: t})},
			nil); err != nil {
			return err
		}
	}
	if err := shown.end(&a); err != nil {
		return err
	}
	if f.logprobs >= 0 && !f.json {
		writeLogprobs(cmd.ErrOrStderr(), text, a)
	}
	if err := f.logDrafts(cmd, a); err != nil {
		return err
	}
	if f.stats {
		logf(cmd.ErrOrStderr(), "%s", statsLine(a, r.Sampling.Seed))
	}
	logFull(cmd.ErrOrStderr(), s, a, r)
	if !f.json {
		return cancelled(a)
	}
	result := runResult{PromptTokens: r.Prompt, Tokens: a.Tokens, Text: shown.text(a), Logprobs: logprobsOf(a),
		Seed: r.Sampling.Seed, StopReason: string(a.Reason),
		Device: s.Model().Device, Prefill: perSecond(a.Prompt, a.PrefillTime),
		Decode: perSecond(a.Decoded, a.DecodeTime)}
	if f.asked() {
		result.Drafts = &a.Drafts
	}
	if result.Tokens == nil {
		result.Tokens = []int{}
	}
	return writeJSONLine(out, result)
}
