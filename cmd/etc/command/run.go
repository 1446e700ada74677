package command

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc"
	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/internal/statefile"
	"github.com/etc-ml/etc/internal/tensorfile"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/runtime/engine"
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

// runProgram answers or chats with flags that go together.
func runProgram(ctx context.Context, cmd *cobra.Command, args []string, f runFlags, device engine.Engine,
	options engine.Options) (err error) {
	parameters, err := f.parameters(cmd)
	if err != nil {
		return err
	}
	var rows logitRows
	if f.logits != "" {
		parameters.Logits = rows.add
	}
	if _, err := f.inSharedCalls(cmd, args); err != nil {
		return err
	}
	s, err := f.open(cmd, args[0], parameters, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if f.asked() || f.model.deterministic {
		if _, err := chosen(device, options.Precision); err != nil {
			return loadError(args[0], err)
		}
	}
	if f.keepsChat(cmd, args) {
		if err := s.Reset(f.system); err != nil {
			return f.withFlags(cmd, err)
		}
		return converse(ctx, cmd, args, s, f)
	}
	if err := s.Compile(); err != nil {
		return f.withFlags(cmd, err)
	}
	if err := answer(ctx, cmd, args, s, &rows, f); err != nil {
		return err
	}
	tuneAfter(ctx, cmd.ErrOrStderr(), s)
	return nil
}

// tuneAfter has the session measure kernels now that the answer stands there, once per machine. Ctrl-C ends that; the
// next run measures the rest. An error is told and no more: the answer is whole without it.
func tuneAfter(ctx context.Context, log io.Writer, s *etc.Session) {
	if err := s.Tune(ctx); err != nil && ctx.Err() == nil {
		logf(log, "etc: which kernels are the fastest could not be measured, the next run tries again: %v", err)
	}
}

// open opens a program as the library does.
func (f *runFlags) open(cmd *cobra.Command, path string, p etc.Parameters,
	options engine.Options) (*etc.Session, error) {
	o := f.model.library(options)
	o.Sampler, o.Tokenizer, o.ChatTemplateFile = f.chosenSampler(cmd, p), f.tokenizer, f.template
	idsOnly := cmd.Flags().Changed("tokens")
	o.NoChatTemplate = f.raw || idsOnly
	if f.asked() {
		o.Speculate = f.speculate
	}
	s, err := etc.OpenSession(path, o, p)
	if err != nil {
		return nil, f.withFlags(cmd, programError(path, err))
	}
	if s.Tokenizer() == nil && !idsOnly {
		return nil, errors.Join(usagef("%s holds no tokenizer: give --tokenizer FILE, or token ids with --tokens", path),
			s.Close())
	}
	return s, nil
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
func converse(ctx context.Context, cmd *cobra.Command, args []string, s *etc.Session, f runFlags) (err error) {
	if f.sessionFile != "" {
		unlock, locked := statefile.LockSession(f.sessionFile)
		if locked != nil {
			return locked
		}
		defer func() { err = errors.Join(err, unlock()) }()
		if err := openSession(cmd.ErrOrStderr(), f.sessionFile, s, f.system); err != nil {
			return err
		}
	}
	h := &chatter{session: s, file: f.sessionFile, stats: f.stats, out: cmd.OutOrStdout(), log: cmd.ErrOrStderr()}
	logSeed(cmd, s.Parameters())
	if f.chats(cmd, args) {
		return runChat(cmd, h)
	}
	question, err := promptText(cmd, args, f)
	if err != nil {
		return err
	}
	if err := h.ask(ctx, question); err != nil {
		return err
	}
	if err := errors.Join(h.close(), cancelled(h.last)); err != nil {
		return err
	}
	h.tune(ctx)
	return nil
}

// logSeed logs a seed that was drawn and is used, so that the run can be repeated.
func logSeed(cmd *cobra.Command, p etc.Parameters) {
	if p.Seed != nil && *p.Temperature > 0 && !cmd.Flags().Changed("seed") {
		logf(cmd.ErrOrStderr(), "etc: seed %d (key %d)", *p.Seed, int32(*p.Seed))
	}
}

// logFull tells of an answer that ended because the context is full.
func logFull(log io.Writer, s *etc.Session, e etc.End) {
	if e.ContextFull {
		logf(log, "etc: the answer was cut: the context of %d positions is full; etc export --max-seq-len makes a "+
			"program with more", s.Info().ContextLength)
	}
}

// cancelled returns the error of an answer that Ctrl-C stopped.
func cancelled(e etc.End) error {
	if e.Reason == etc.Cancelled {
		return errors.New("the answer was stopped")
	}
	return nil
}

// print prints an answer while it comes, where out is not nil. It returns the tokens of the answer and its end, also of
// an answer that Ctrl-C stopped.
func printAnswer(out io.Writer, tokens iter.Seq2[etc.Token, error]) (answer []etc.Token, end etc.End, err error) {
	printed := false
	write := func(text string) error {
		if out == nil || text == "" {
			return nil
		}
		printed = true
		_, err := io.WriteString(out, visible(out, text))
		return err
	}
	for t, failed := range tokens {
		if err := write(t.Text); err != nil {
			return answer, end, err
		}
		switch {
		case t.End != nil: // of one that was stopped too
			return answer, *t.End, write("\n")
		case failed != nil:
			if printed {
				write("\n") //nolint:errcheck // the error that cut it short is told
			}
			return answer, end, failed
		}
		answer = append(answer, t)
	}
	return answer, end, nil
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
	Drafts *draftTotals `json:"drafts,omitempty"`
	// Logprobs are there with --logprobs.
	Logprobs []answerLogprobs `json:"logprobs,omitempty"`
}

// draftTotals counts the drafts of an answer.
type draftTotals struct {
	Rounds   int `json:"rounds"`   // with drafts
	Drafted  int `json:"drafted"`  // tokens
	Accepted int `json:"accepted"` // of those
}

// logitRows are the logits of an answer.
type logitRows struct {
	numbers []float32
	count   int
}

// add adds the logits after a token.
func (r *logitRows) add(logits []float32) error {
	r.numbers, r.count = append(r.numbers, logits...), r.count+1
	return nil
}

// logitsTo is where --logits writes.
func (f runFlags) logitsTo(cmd *cobra.Command) destination {
	return destination{path: f.logits, kind: outfile.Tensors,
		inputs: append([]string{f.promptFile, f.tokenizer, f.template}, cmd.Flags().Args()...)}
}

// question begins the answer to the prompt that the flags give. ids returns the prompt's tokens.
func (f *runFlags) question(ctx context.Context, cmd *cobra.Command, args []string, s *etc.Session) (
	tokens iter.Seq2[etc.Token, error], ids func() ([]int, error), err error) {
	if cmd.Flags().Changed("tokens") {
		prompt, err := parseTokens("--tokens", f.tokens)
		return s.GenerateTokens(ctx, prompt...), func() ([]int, error) { return prompt, nil }, err
	}
	text, err := promptText(cmd, args, *f)
	if err != nil {
		return nil, nil, err
	}
	if f.raw {
		return s.Generate(ctx, text), func() ([]int, error) {
			return s.Tokenizer().Encode(text, etc.EncodeOptions{Special: true, ParseSpecial: true}), nil
		}, nil
	}
	var messages []etc.Message
	if f.system != "" {
		messages = append(messages, etc.Message{Role: "system", Content: f.system})
	}
	messages = append(messages, etc.Message{Role: "user", Content: text})
	return s.Chat(ctx, messages), func() ([]int, error) { return s.Prompt(messages) }, nil
}

// answer generates one answer and prints it.
func answer(ctx context.Context, cmd *cobra.Command, args []string, s *etc.Session, rows *logitRows, f runFlags) error {
	tokens, ids, err := f.question(ctx, cmd, args, s)
	if err != nil {
		return err
	}
	logSeed(cmd, s.Parameters())
	out := cmd.OutOrStdout()
	if f.json {
		out = nil
	}
	answered, end, err := printAnswer(out, tokens)
	if err != nil {
		return f.withFlags(cmd, err)
	}
	if f.logits != "" {
		t := eval.Floats(ir.F32, []int{rows.count, len(rows.numbers) / max(rows.count, 1)}, rows.numbers)
		if err := f.logitsTo(cmd).writeTensors(cmd,
			[]safetensors.Entry{tensorfile.Entry("logits", eval.Value{Tensor: t})}, nil); err != nil {
			return err
		}
	}
	if f.logprobs >= 0 && !f.json {
		writeLogprobs(cmd.ErrOrStderr(), s.Tokenizer(), answered)
	}
	if err := f.logDrafts(cmd, &end); err != nil {
		return err
	}
	if f.stats {
		logf(cmd.ErrOrStderr(), "%s", statsLine(end, end.Seed))
	}
	logFull(cmd.ErrOrStderr(), s, end)
	if !f.json {
		return cancelled(end)
	}
	prompt, err := ids()
	if err != nil {
		return err
	}
	return f.writeResult(cmd.OutOrStdout(), s, prompt, answered, end)
}

// writeResult prints what --json asks for.
func (f *runFlags) writeResult(out io.Writer, s *etc.Session, prompt []int, answered []etc.Token, e etc.End) error {
	fed := e.PromptTokens - e.CachedTokens
	result := runResult{PromptTokens: prompt, Tokens: []int{}, Text: e.Text, Seed: e.Seed,
		StopReason: string(e.Reason), Device: s.Info().Device, Prefill: perSecond(fed, e.Prefill),
		Decode: perSecond(e.Calls, e.Decode)}
	for _, t := range answered {
		result.Tokens = append(result.Tokens, t.ID)
	}
	if f.logprobs >= 0 {
		result.Logprobs = logprobsOf(answered)
	}
	if f.asked() {
		result.Drafts = &draftTotals{e.DraftRounds, e.Drafted, e.Accepted}
	}
	return writeJSONLine(out, result)
}
