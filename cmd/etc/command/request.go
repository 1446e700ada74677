package command

import (
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc"
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

// parameters reads the flags of an answer.
func (f *runFlags) parameters(cmd *cobra.Command) (p etc.Parameters, err error) {
	p = etc.Parameters{MaxTokens: max(f.maxNew, 0), Stop: f.stops, IgnoreStopTokens: f.ignoreEOS}
	if err := f.samplerFlags.read(cmd, &p); err != nil {
		return p, err
	}
	if cmd.Flags().Changed("force-tokens") {
		if p.ForceTokens, err = parseTokens("--force-tokens", f.forceTokens); err != nil {
			return p, err
		}
		if anyChanged(cmd, "max-new-tokens", "max-tokens") && f.maxNew != len(p.ForceTokens) {
			return p, usagef("--max-new-tokens %d with %d --force-tokens: forced tokens set the length",
				f.maxNew, len(p.ForceTokens))
		}
	}
	if f.maxNew < -1 {
		return p, usagef("--max-new-tokens %d, want at least 1, or 0 or -1 for no limit", f.maxNew)
	}
	if err := f.readDraws(cmd, &p); err != nil {
		return p, err
	}
	switch {
	case cmd.Flags().Changed("think"):
		p.Think = &f.think
	case cmd.Flags().Changed("no-think"):
		p.Think = new(!f.noThink)
	}
	if p.Variables, err = templateArguments(f.templateArgs); err != nil {
		return p, err
	}
	return p, f.constrain(cmd, &p)
}

// readDraws reads temperature, top-k, top-p and seed.
func (f *runFlags) readDraws(cmd *cobra.Command, p *etc.Parameters) error {
	if !(f.topP > 0 && f.topP <= 1) || float32(f.topP) == 0 { // before float32 rounds what is just above 1
		return usagef("top-p %v, want more than 0 and at most 1", f.topP)
	}
	if t := float64(float32(f.temperature)); !(t >= 0) || math.IsInf(t, 0) {
		return usagef("temperature %g, want a finite number of at least 0", t)
	}
	if anyChanged(cmd, "temperature", "temp") {
		p.Temperature = &f.temperature
	}
	if cmd.Flags().Changed("top-k") {
		p.TopK = new(int(f.topK))
	}
	if cmd.Flags().Changed("top-p") {
		p.TopP = &f.topP
	}
	if cmd.Flags().Changed("seed") {
		p.Seed = &f.seed
	}
	return nil
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

// trim drops the line end that editors and echo put after a question; a raw prompt is used as it is.
func (f runFlags) trim(prompt string) string {
	if f.raw {
		return prompt
	}
	return strings.TrimRight(prompt, "\r\n")
}
