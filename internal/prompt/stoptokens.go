package prompt

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/template"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// StopMethod is the constant method that lists the ids of the tokens that end an answer.
const StopMethod = "get_eos_ids"

// SetStopTokens sets the stop tokens of a module: those of generation_config.json and config.json, the eos_token of
// tokenizer_config.json, and the token with which the chat template ends a turn, in this order and each once. It logs
// them, and what the checkpoint lacks.
func SetStopTokens(log func(text string), c *loaders.Checkpoint, m *ir.Module) error {
	logf := func(format string, args ...any) { log(fmt.Sprintf(format, args...)) }
	if c.Model.Files.Tokenizer == nil {
		logf("%s has no %s: the program runs with --tokens or --tokenizer", c.Model.Dir, huggingface.TokenizerFile)
		logf("stop tokens: %s", tokenNames(nil, c.EOS()))
		return nil
	}
	t, err := tokenizer.Parse(c.Model.Files.Tokenizer, filepath.Join(c.Model.Dir, huggingface.TokenizerFile))
	if err != nil {
		return err
	}
	tokens, err := SpecialTokens(c)
	if err != nil {
		return err
	}
	ids := slices.Clone(c.EOS())
	if id, ok := eosToken(tokens, t); ok {
		ids = append(ids, id)
	} else if name, ok := tokens.Get("eos_token"); ok {
		logf("%s: the eos_token %q is not in %s and stops no answer", c.Model.Dir, name, huggingface.TokenizerFile)
	}
	if c.Model.ChatTemplate == "" {
		logf("%s has no chat template: the program runs with --raw or --chat-template", c.Model.Dir)
	} else if id, ok, err := turnEnd(c.Model.ChatTemplate, tokens, t); err != nil {
		logf("%s: the chat template tells no stop token: %v", c.Model.Dir, err)
	} else if ok {
		ids = append(ids, id)
	}
	ids = unique(ids)
	for _, id := range ids {
		if most := c.Model.Config.Vocabulary(); id >= most {
			return kind.Invalidf("%s: the stop token %s of %s is not in the model's vocabulary of %d tokens",
				c.Model.Dir, tokenNames(t, []int{id}), huggingface.TokenizerFile, most)
		}
	}
	setStopMethod(m, ids)
	logf("stop tokens: %s", tokenNames(t, ids))
	return nil
}

// unique returns ids without repetitions.
func unique(ids []int) []int {
	var out []int
	for _, id := range ids {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// eosToken returns the id of the special token eos_token.
func eosToken(tokens *template.Dict, t *tokenizer.Tokenizer) (id int, ok bool) {
	if tokens == nil {
		return 0, false
	}
	if name, ok := tokens.Get("eos_token"); ok {
		if text, ok := name.(template.Str); ok {
			return t.TokenToID(string(text))
		}
	}
	return 0, false
}

// SpecialTokens returns a checkpoint's special tokens, which templates refer to by name.
func SpecialTokens(c *loaders.Checkpoint) (*template.Dict, error) {
	if c.Model.Files.TokenizerConfig == nil {
		return &template.Dict{}, nil
	}
	config, err := template.ParseConfig(filepath.Join(c.Model.Dir, huggingface.TokenizerConfigFile),
		c.Model.Files.TokenizerConfig)
	if err != nil {
		return nil, kind.Of(kind.ErrInvalid, err)
	}
	return config.Tokens, nil
}

// turnEnd returns the special token that a template writes after an answer; ok is false if there is none.
func turnEnd(source string, tokens *template.Dict, t *tokenizer.Tokenizer) (id int, ok bool, err error) {
	parsed, err := template.Parse(huggingface.ChatTemplateFile, source)
	if err != nil {
		return 0, false, err
	}
	return (&Template{Parsed: parsed, Tokens: tokens}).turnEnd(t)
}

// turnEnd returns the special token that the template writes after an answer; ok is false if there is none.
func (c *Template) turnEnd(t *tokenizer.Tokenizer) (id int, ok bool, err error) {
	const answer = "This-is-the-answer" // no template has it, and trimming it changes nothing
	epoch := func() time.Time { return time.Unix(0, 0).UTC() }
	text, err := c.RenderAt(epoch, []chat.Message{{Role: "user", Content: "Hello"},
		{Role: "assistant", Content: answer}}, false, nil)
	if err != nil {
		return 0, false, err
	}
	at := strings.LastIndex(text, answer)
	if at < 0 {
		return 0, false, fmt.Errorf("it leaves out the answer of a conversation")
	}
	next := t.Encode(strings.TrimSpace(text[at+len(answer):]), tokenizer.EncodeOptions{ParseSpecial: true})
	if len(next) == 0 || !slices.Contains(t.SpecialIDs(), next[0]) {
		return 0, false, nil
	}
	return next[0], true, nil
}

// setStopMethod makes get_eos_ids return ids. Without ids it removes the method.
func setStopMethod(m *ir.Module, ids []int) {
	method := ir.Method{Name: StopMethod}
	for _, id := range ids {
		method.Values = append(method.Values, int64(id))
	}
	at := slices.IndexFunc(m.Metadata, func(x ir.Method) bool { return x.Name == StopMethod })
	switch {
	case at >= 0 && len(ids) > 0:
		m.Metadata[at] = method
	case at >= 0:
		m.Metadata = slices.Delete(m.Metadata, at, at+1)
	case len(ids) > 0:
		m.Metadata = append(m.Metadata, method)
	}
}

// tokenNames writes ids for people, with their names if there is a tokenizer.
func tokenNames(t *tokenizer.Tokenizer, ids []int) string {
	if len(ids) == 0 {
		return "none"
	}
	names := make([]string, len(ids))
	for i, id := range ids {
		name := ""
		if t != nil {
			name, _ = t.IDToToken(id)
		}
		names[i] = strings.TrimSpace(fmt.Sprintf("%d %s", id, name))
	}
	return strings.Join(names, ", ")
}
