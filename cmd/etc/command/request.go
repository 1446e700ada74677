package command

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/runtime/session"
)

// anyChanged reports whether the user gave one of the flags.
func anyChanged(cmd *cobra.Command, names ...string) bool {
	for _, n := range names {
		if cmd.Flags().Changed(n) {
			return true
		}
	}
	return false
}

// requestOf reads the flags that need no file.
func requestOf(cmd *cobra.Command, f runFlags) (session.Request, error) {
	r := session.Request{MaxNewTokens: f.maxNew, Sampling: session.Sampling{
		Temperature: float32(f.temperature), TopK: f.topK, TopP: float32(f.topP), Seed: f.seed}}
	err := f.samplerFlags.read(&r.Sampling)
	if err != nil {
		return r, err
	}
	if cmd.Flags().Changed("force-tokens") {
		if r.Force, err = parseTokens("--force-tokens", f.forceTokens); err != nil {
			return r, err
		}
		if anyChanged(cmd, "max-new-tokens", "max-tokens") && f.maxNew != len(r.Force) {
			return r, usagef("--max-new-tokens %d with %d --force-tokens: forced tokens set the length",
				f.maxNew, len(r.Force))
		}
	}
	if f.maxNew < -1 {
		return r, usagef("--max-new-tokens %d, want at least 1, or 0 or -1 for no limit", f.maxNew)
	}
	r.MaxNewTokens = max(f.maxNew, 0)
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
	out := []int{} // none, where the text is empty, is not the same as not given
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
	if f.logits != "" && model.Form != session.Logits && model.Form != session.Drawn {
		return usagef("--logits: the program gives a token, not logits; export it without --sample, or give " +
			"--sampler runtime")
	}
	for token := range s.Bias {
		if model.Vocab > 0 && token >= model.Vocab {
			return usagef("--logit-bias of token %d, which is not in the vocabulary of %d tokens", token, model.Vocab)
		}
	}
	if s.TopLogprobs > model.Vocab && model.Form == session.Drawn {
		return usagef("--logprobs %d, of a vocabulary of %d tokens", s.TopLogprobs, model.Vocab)
	}
	if model.Form == session.Drawn {
		return nil
	}
	if model.Form != session.Sampler {
		s.Seed = 0 // nothing draws with it
	}
	if model.Form != session.Sampler && (s.TopK > 0 || s.TopP < 1) {
		if s.Temperature > 0 {
			logf(cmd.ErrOrStderr(), "etc: the file's top-k and top-p are not used: the program has no sampling head "+
				"(etc export --sample); --sampler runtime uses them")
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
	if len(r.Prompt)+n > model.MaxSeqLen {
		return usagef("a prompt of %d tokens and %d new ones do not fit the context of %d tokens",
			len(r.Prompt), n, model.MaxSeqLen)
	}
	for i, t := range append(append([]int{}, r.Prompt...), r.Force...) {
		if model.Vocab > 0 && t >= model.Vocab {
			return usagef("token %d (number %d) is not in the vocabulary of %d tokens", t, i, model.Vocab)
		}
	}
	return nil
}

// promptTokens returns the prompt's tokens. end are the last of them, which the chat template wrote for the answer; nil
// where there is no template.
func promptTokens(cmd *cobra.Command, args []string, f runFlags, text *text) (tokens, end []int, err error) {
	if cmd.Flags().Changed("tokens") {
		tokens, err = parseTokens("--tokens", f.tokens)
		return tokens, nil, err
	}
	question, err := promptText(cmd, args, f)
	if err != nil {
		return nil, nil, err
	}
	if tokens, err = text.Encode(f.system, question, f.raw); err != nil || f.raw {
		return tokens, nil, err
	}
	return tokens, text.PromptEnd(prompt.Question(f.system, question), tokens), nil
}

// checkCombinations refuses flags that have no effect together with others.
func checkCombinations(cmd *cobra.Command, args []string, f runFlags) error {
	sources := 0
	for _, given := range []bool{len(args) > 1, cmd.Flags().Changed("prompt"), f.promptFile != "",
		cmd.Flags().Changed("tokens")} {
		if given {
			sources++
		}
	}
	if sources > 1 {
		return usagef("more than one prompt: give one of PROMPT, --prompt, --prompt-file, --tokens")
	}
	template := []string{"system", "think", "no-think", "chat-template", "template-arg"}
	for _, x := range []struct {
		flag  string
		given bool
		not   []string
		why   string
	}{
		{"think", cmd.Flags().Changed("think"), []string{"no-think"}, "give one of them"},
		{"session", f.sessionFile != "", append([]string{"raw", "tokens", "force-tokens", "logits", "logprobs", "json"},
			constraintNames...), "a session file keeps a chat"},
		{"tokens", cmd.Flags().Changed("tokens"), template, "token ids go without the chat template"},
		{"force-tokens", cmd.Flags().Changed("force-tokens"), append([]string{"logprobs", "stop"}, constraintNames...),
			"forced tokens are not drawn"},
		{"ignore-eos", f.ignoreEOS, constraintNames, "an answer that is whole has to end"},
		{"raw", f.raw, template, "a raw prompt goes without the chat template"},
	} {
		for _, other := range x.not {
			if x.given && cmd.Flags().Changed(other) {
				return usagef("--%s with --%s: %s", other, x.flag, x.why)
			}
		}
	}
	return nil
}

// maxPromptFile bounds what is read of a prompt, in bytes; no context holds more.
const maxPromptFile = 64 << 20

// promptText returns the prompt as text.
func promptText(cmd *cobra.Command, args []string, f runFlags) (string, error) {
	switch {
	case len(args) > 1:
		return args[1], nil
	case cmd.Flags().Changed("prompt"):
		return f.prompt, nil
	case f.promptFile != "":
		b, err := readAtMost(nil, f.promptFile, maxPromptFile)
		return f.trim(string(b)), err
	}
	b, err := readAtMost(cmd.InOrStdin(), "-", maxPromptFile)
	if prompt := f.trim(string(b)); err != nil || f.raw || prompt != "" {
		return prompt, err
	}
	return "", usagef("no prompt: give one in quotes after the file, by --prompt or --prompt-file, or on standard " +
		"input, which is empty")
}

// trim drops the line end that editors and echo put behind a question; a raw prompt is used as it is.
func (f runFlags) trim(prompt string) string {
	if f.raw {
		return prompt
	}
	return strings.TrimRight(prompt, "\r\n")
}
