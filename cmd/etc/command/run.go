package command

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
)

type runFlags struct {
	prompt, promptFile, tokens, forceTokens string
	system, sessionFile, template           string
	raw, ignoreEOS, json, stats             bool
	think, noThink                          bool
	temperature, topP                       float64
	topK, seed                              int64
	maxNew                                  int
	logits, device, precision, tokenizer    string
	threads                                 int
}

func newRun() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run MODEL.pte [PROMPT]",
		Short: "Answer a prompt with a program",
		Long: `run answers a prompt. The prompt is the second argument, --prompt, the content of --prompt-file, or standard
input; --tokens gives token ids instead. On a terminal, without a prompt, it is a chat (/help lists the
commands). The answer goes to standard output, all else to standard error.

The file's chat template makes the model's prompt of the question; --raw goes without it.

The defaults of temperature, top-k and top-p come from the file's generation config. Programs without a
sampling head (etc export without --sample) support temperature only. Seeds are used modulo 2^32.`,
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
	fl.BoolVar(&f.think, "think", false, "let the model think first, where its template knows of it")
	fl.BoolVar(&f.noThink, "no-think", false, "do not let the model think first")
	fl.BoolVar(&f.raw, "raw", false, "use the prompt as it is, without the chat template; special tokens in it are parsed")
	fl.Float64Var(&f.temperature, "temperature", 0, "sampling temperature, 0 for the most likely token")
	fl.Float64Var(&f.temperature, "temp", 0, "same as --temperature")
	fl.Int64Var(&f.topK, "top-k", 0, "sample from the k most likely tokens, 0 or less for all")
	fl.Float64Var(&f.topP, "top-p", 1, "sample from the most likely tokens of this probability, in (0, 1]")
	fl.Int64Var(&f.seed, "seed", 0, "seed of the first token (default: random, and logged)")
	fl.IntVarP(&f.maxNew, "max-new-tokens", "n", 0, "length of the answer (default: until a stop token or a full context)")
	fl.IntVar(&f.maxNew, "max-tokens", 0, "same as --max-new-tokens")
	fl.BoolVar(&f.ignoreEOS, "ignore-eos", false, "go on after stop tokens")
	fl.StringVar(&f.logits, "logits", "", "safetensors file for the logits after the prompt and after every token")
	fl.BoolVar(&f.json, "json", false, "print one JSON object instead of the text")
	fl.BoolVar(&f.stats, "stats", false, "print speed and seed to standard error")
	fl.StringVar(&f.tokenizer, "tokenizer", "", "tokenizer.json to use instead of the file's")
	fl.StringVar(&f.precision, "precision", "mixed", "fp32, mixed or strict")
	addDeviceFlags(cmd, &f.device, &f.threads)
	return cmd
}

// anyChanged reports whether the user gave one of the flags.
func anyChanged(cmd *cobra.Command, names ...string) bool {
	for _, n := range names {
		if cmd.Flags().Changed(n) {
			return true
		}
	}
	return false
}

func runRun(ctx context.Context, cmd *cobra.Command, args []string, f runFlags) error {
	precision, err := eval.ParsePrecision(f.precision)
	if err != nil {
		return usageError{fmt.Errorf("--%w", err)}
	}
	device, err := findEngine(f.device)
	if err != nil {
		return err
	}
	request, err := requestOf(cmd, f)
	if err != nil {
		return err
	}
	p, err := program.Open(args[0])
	if err != nil {
		return err
	}
	defer p.Close()
	text, err := openText(p, f.tokenizer, f.tokens != "")
	if err != nil {
		return err
	}
	if text.template, err = openTemplate(p, f.template); err != nil {
		return err
	}
	if f.think || f.noThink {
		text.think = &f.think
	}
	if err := text.defaults(cmd, &request.Sampling); err != nil {
		return err
	}
	m, err := p.Module("forward")
	if err != nil {
		return err
	}
	model, err := session.Load(m, device, engine.Options{Precision: precision, Threads: f.threads})
	if err != nil {
		return invalidError{fmt.Errorf("%s: %w", args[0], err)}
	}
	defer model.Close()
	if err := checkSampling(cmd, model, &request.Sampling, f); err != nil {
		return err
	}
	if !f.ignoreEOS {
		request.Stop = text.stop
	}
	s, err := model.NewSession()
	if err != nil {
		return err
	}
	defer s.Close()
	if f.chats(cmd, args) || f.sessionFile != "" {
		return converse(ctx, cmd, args, s, text, request, f)
	}
	if request.Prompt, err = promptTokens(cmd, args, f, text); err != nil {
		return err
	}
	if err := checkLength(model, request); err != nil {
		return err
	}
	return answer(ctx, cmd, s, model, text, request, f)
}

// chats reports whether a chat is asked for: no prompt, and a person at both ends.
func (f runFlags) chats(cmd *cobra.Command, args []string) bool {
	return len(args) == 1 && !anyChanged(cmd, "prompt", "prompt-file", "tokens", "json", "logits", "force-tokens", "raw") &&
		isTerminal(cmd.InOrStdin()) && isTerminal(cmd.OutOrStdout())
}

// converse runs a chat, or one turn of a chat that a session file keeps.
func converse(ctx context.Context, cmd *cobra.Command, args []string, s *session.Session, text *text, r session.Request, f runFlags) error {
	if anyChanged(cmd, "raw", "tokens", "force-tokens", "logits", "json") {
		return usagef("--session keeps a chat; --raw, --tokens, --force-tokens, --logits and --json go without")
	}
	c := chat.New(s, f.system)
	c.Render, c.Text = text.render, text.decode
	if f.sessionFile != "" {
		if _, err := os.Stat(f.sessionFile); err == nil {
			if f.system != "" {
				return usagef("--system with the chat in %s, which has begun already", f.sessionFile)
			}
			if err := loadSession(f.sessionFile, text, s, c); err != nil {
				return err
			}
		}
	}
	h := &chatter{text: text, session: s, conversation: c, request: r, file: f.sessionFile, out: cmd.OutOrStdout()}
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
	if f.stats {
		logf(cmd.ErrOrStderr(), "%s", statsLine(h.prompted, h.last, r.Sampling.Seed))
	}
	return h.close()
}

// requestOf reads the flags that need no file.
func requestOf(cmd *cobra.Command, f runFlags) (session.Request, error) {
	r := session.Request{MaxNewTokens: f.maxNew, Sampling: session.Sampling{
		Temperature: float32(f.temperature), TopK: f.topK, TopP: float32(f.topP), Seed: f.seed}}
	var err error
	if cmd.Flags().Changed("force-tokens") {
		if r.Force, err = parseTokens("--force-tokens", f.forceTokens); err != nil {
			return r, err
		}
		if anyChanged(cmd, "max-new-tokens", "max-tokens") && f.maxNew != len(r.Force) {
			return r, usagef("--max-new-tokens %d with %d --force-tokens: forced tokens set the length", f.maxNew, len(r.Force))
		}
	}
	if f.think && f.noThink {
		return r, usagef("--think and --no-think: give one of them")
	}
	if anyChanged(cmd, "max-new-tokens", "max-tokens") && f.maxNew < 1 {
		return r, usagef("--max-new-tokens %d, want at least 1", f.maxNew)
	}
	if f.logits != "" {
		r.FeedLast = true
	}
	if !(f.topP > 0 && f.topP <= 1) || float32(f.topP) == 0 { // before float32 rounds what is just above 1
		return r, usagef("top-p %v, want more than 0 and at most 1", f.topP)
	}
	if err := r.Sampling.Check(); err != nil {
		return r, usageError{err}
	}
	if math.IsInf(float64(float32(f.temperature)), 0) {
		return r, usagef("temperature %g is too large for float32", f.temperature)
	}
	if !cmd.Flags().Changed("seed") {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return r, err
		}
		r.Sampling.Seed = int64(binary.LittleEndian.Uint64(b[:]) >> 33) // in [0, 2^31)
	}
	return r, nil
}

// parseTokens reads ids separated by commas.
func parseTokens(flag, text string) ([]int, error) {
	var out []int
	for _, field := range strings.Split(text, ",") {
		if field = strings.TrimSpace(field); field == "" {
			continue
		}
		id, err := strconv.ParseInt(field, 10, 32)
		if err != nil || id < 0 {
			return nil, usagef("%s: %q is not a token id", flag, field)
		}
		out = append(out, int(id))
	}
	return out, nil
}

// checkSampling refuses parameters that the program has no use for where the user gave them, and drops
// those that came from the file, with a warning.
func checkSampling(cmd *cobra.Command, model *session.Model, s *session.Sampling, f runFlags) error {
	var given []string
	for _, name := range []string{"top-k", "top-p", "seed"} {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if err := s.CheckFor(model.Form, given); err != nil {
		return usageError{err}
	}
	if f.logits != "" && model.Form != session.Logits {
		return usagef("--logits: the program gives a token, not logits; export it without --sample")
	}
	if model.Form != session.Sampler && (s.TopK > 0 || s.TopP < 1) {
		if s.Temperature > 0 {
			logf(cmd.ErrOrStderr(), "etc: the file's top-k and top-p are not used: the program has no sampling head (etc export --sample)")
		}
		s.TopK, s.TopP = 0, 1
	}
	return nil
}

// checkLength refuses a prompt or a length that cannot fit the context, before anything runs.
func checkLength(model *session.Model, r session.Request) error {
	n := r.MaxNewTokens
	if r.Force != nil {
		n = len(r.Force)
	}
	if len(r.Prompt) == 0 {
		return usagef("an empty prompt: at least one token is needed")
	}
	if len(r.Prompt)+max(n, 1) > model.MaxSeqLen && len(r.Prompt)+n > model.MaxSeqLen {
		return usagef("a prompt of %d tokens and %d new ones do not fit the context of %d tokens", len(r.Prompt), n, model.MaxSeqLen)
	}
	for i, t := range append(append([]int{}, r.Prompt...), r.Force...) {
		if model.Vocab > 0 && t >= model.Vocab {
			return usagef("token %d (number %d) is not in the vocabulary of %d tokens", t, i, model.Vocab)
		}
	}
	return nil
}

// promptTokens gives the prompt's tokens.
func promptTokens(cmd *cobra.Command, args []string, f runFlags, text *text) ([]int, error) {
	if cmd.Flags().Changed("tokens") {
		if err := onePrompt(cmd, args, f); err != nil {
			return nil, err
		}
		return parseTokens("--tokens", f.tokens)
	}
	if f.raw && anyChanged(cmd, "system", "think", "no-think", "chat-template") {
		return nil, usagef("--raw goes without the chat template, so without --system, --think, --no-think and --chat-template")
	}
	prompt, err := promptText(cmd, args, f)
	if err != nil {
		return nil, err
	}
	return text.encode(f.system, prompt, f.raw)
}

// onePrompt refuses several prompts.
func onePrompt(cmd *cobra.Command, args []string, f runFlags) error {
	sources := 0
	for _, given := range []bool{len(args) > 1, cmd.Flags().Changed("prompt"), f.promptFile != "", cmd.Flags().Changed("tokens")} {
		if given {
			sources++
		}
	}
	if sources > 1 {
		return usagef("more than one prompt: give one of PROMPT, --prompt, --prompt-file, --tokens")
	}
	return nil
}

// promptText is the prompt as text.
func promptText(cmd *cobra.Command, args []string, f runFlags) (string, error) {
	if err := onePrompt(cmd, args, f); err != nil {
		return "", err
	}
	switch {
	case len(args) > 1:
		return args[1], nil
	case cmd.Flags().Changed("prompt"):
		return f.prompt, nil
	case f.promptFile != "":
		b, err := os.ReadFile(f.promptFile)
		return f.trim(string(b)), err
	}
	b, err := io.ReadAll(cmd.InOrStdin())
	return f.trim(string(b)), err
}

// trim drops the line end that editors and echo put behind a question; a raw prompt is used as it is.
func (f runFlags) trim(prompt string) string {
	if f.raw {
		return prompt
	}
	return strings.TrimRight(prompt, "\r\n")
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
}

func answer(ctx context.Context, cmd *cobra.Command, s *session.Session, model *session.Model, text *text, r session.Request, f runFlags) error {
	out := cmd.OutOrStdout()
	stream := text.stream()
	if !f.json {
		r.Token = func(token int) bool {
			_, err := io.WriteString(out, stream.push(token))
			return err == nil
		}
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
	if model.Form == session.Sampler && r.Sampling.Temperature > 0 && !cmd.Flags().Changed("seed") {
		logf(cmd.ErrOrStderr(), "etc: seed %d (key %d)", r.Sampling.Seed, int32(r.Sampling.Seed))
	}
	a, err := s.Generate(ctx, r)
	if err != nil {
		return err
	}
	if f.logits != "" {
		t := eval.Floats(ir.F32, []int{count, len(rows) / max(count, 1)}, rows)
		if err := safetensors.WriteFile(f.logits, []safetensors.Entry{entryOf("logits", eval.Value{Tensor: t})}, nil); err != nil {
			return err
		}
	}
	result := runResult{PromptTokens: r.Prompt, Tokens: a.Tokens, Seed: r.Sampling.Seed, StopReason: string(a.Reason), Device: model.Device,
		Prefill: perSecond(len(r.Prompt), a.PrefillTime.Seconds()), Decode: perSecond(a.Decoded, a.DecodeTime.Seconds())}
	if f.stats {
		logf(cmd.ErrOrStderr(), "%s", statsLine(len(r.Prompt), a, r.Sampling.Seed))
	}
	if !f.json {
		_, err := io.WriteString(out, stream.flush()+"\n")
		return errors.Join(err, ctx.Err())
	}
	if result.Tokens == nil {
		result.Tokens = []int{}
	}
	result.Text = text.decode(a.Tokens)
	b, err := json.Marshal(result)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, string(b))
	return err
}

func perSecond(n int, seconds float64) float64 {
	if n == 0 || seconds <= 0 {
		return 0
	}
	return float64(n) / seconds
}
