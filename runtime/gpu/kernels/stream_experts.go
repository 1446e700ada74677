package kernels

import (
	"fmt"
	"slices"
)

// streamUp is LaunchUp with a Router for one token, streamed.
func (e Experts) streamUp(s Stream, tokens int) (Launch, error) {
	err := e.check()
	if err == nil && (tokens != 1 || e.Router.Top == 0) {
		err = fmt.Errorf("%d tokens, of which the router chooses %d experts: want one token, whose experts are chosen", tokens, e.Router.Top)
	}
	if err != nil {
		return Launch{}, fmt.Errorf("stream_choose %d×%d×%d: %w", e.Count, e.Inner, e.Hidden, err)
	}
	more := slices.Concat(define("EXPERTS_ACTIVATION", int(e.Activation)), e.defines(e.Inner, tokens), e.Router.defines())
	return e.streamedUp(s).launch("stream_experts", "stream_choose", more, e.trialChoice)
}

// streamDown is LaunchDown with a shared expert for one token, streamed.
func (e Experts) streamDown(s Stream, tokens int) (Launch, error) {
	err := e.check()
	if err == nil && (tokens != 1 || !e.Shared) {
		err = fmt.Errorf("%d tokens, shared expert %t: want one token with a shared expert", tokens, e.Shared)
	}
	if err != nil {
		return Launch{}, fmt.Errorf("stream_join %d×%d×%d: %w", e.Count, e.Hidden, e.Inner, err)
	}
	more := append(e.defines(e.Hidden, tokens), define("EXPERTS_RESIDUAL", e.Residual)...)
	return e.streamedDown(s).launch("stream_experts", "stream_join", more, e.trialJoin)
}
