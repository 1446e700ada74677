package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
)

// addDeterministic adds --deterministic.
func (f *modelFlags) addDeterministic(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.deterministic, "deterministic", false,
		"compute each row alike, whatever other rows share its call, however a prompt is cut and whatever is cached: "+
			"the same bits alone and among others, in more time")
}

// undetermined names what was asked for that --deterministic does not go with: what needs a session, not a sequence.
func (f *runFlags) undetermined(cmd *cobra.Command, args []string) string {
	for _, flag := range []string{"logits", "force-tokens", "session"} {
		if cmd.Flags().Changed(flag) {
			return "--" + flag
		}
	}
	switch {
	case f.keepsChat(cmd, args):
		return "a chat"
	case f.sampler == "file" && cmd.Flags().Changed("sampler"):
		return "--sampler file"
	}
	return ""
}

// answering answers one request: it is a session, or a sequence of an executor for many.
type answering interface {
	Generate(ctx context.Context, r session.Request) (session.Answer, error)
	Model() *session.Model
	// Position is the number of tokens that were fed.
	Position() int
}

// answerSequence answers one prompt by a sequence of an executor of many: as etc serve does, with --deterministic to
// the bit.
func answerSequence(ctx context.Context, cmd *cobra.Command, args []string, f runFlags,
	e engine.Engine, o engine.Options,
	p *program.Program, text *text, r session.Request, hold *held) (err error) {
	s, err := f.openAnswerer(cmd, args[0], p, e, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := checkSampling(cmd, s.Model(), &r.Sampling, f); err != nil {
		return err
	}
	prompt, end, err := promptTokens(cmd, args, f, text)
	if err != nil {
		return err
	}
	r.Prompt = prompt
	if hold != nil {
		if err := hold.begin(text, end); err != nil {
			return err
		}
		s.Constraint = hold.guide
	}
	if err := checkLength(s.Model(), r); err != nil {
		return err
	}
	return answer(ctx, cmd, s, text, r, f)
}
