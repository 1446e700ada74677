package evaluate

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/runtime/session"
)

// TextOptions say how a text is cut into windows.
//
// A window has at most Context tokens and moves on by Stride; in each only the tokens that no window before
// it has scored are scored. So every token but those of the first window has at least Context-Stride tokens
// before it. Stride = Context-1 costs least; a small Stride is closest to a text that is read as a whole.
type TextOptions struct {
	// Context is the number of tokens of a window, Prefix included; 2 to the model's context.
	Context int
	// Stride is the number of tokens that a window scores; 1 to Context - max(1, len(Prefix)).
	Stride int
	// Prefix stands before every window and is not scored: what the tokenizer puts before a text (a BOS
	// token), or nothing. Without one the first token of the text is not scored, since nothing predicts it.
	Prefix []int
	// Done is called with the number of tokens scored so far and of all; nil for none.
	Done func(scored, total int)
}

// Perplexity is how well a program predicts a text.
type Perplexity struct {
	// Perplexity is exp(Loss), and Error its standard error: Perplexity times that of the mean loss.
	Perplexity float64 `json:"perplexity"`
	Error      float64 `json:"standard_error"`
	// Loss is the mean of -ln p(token) over the scored tokens, in nats.
	Loss float64 `json:"loss"`
}

// Divergence is how far a program's predictions are from a reference's, over the scored tokens.
type Divergence struct {
	// Mean, Median, P99 and Max of the Kullback-Leibler divergence D(reference ‖ program) in nats.
	Mean   float64 `json:"mean"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
	Max    float64 `json:"max"`
	// Top1 is the share of tokens for which both find the same token most likely.
	Top1 float64 `json:"top1_agreement"`
}

// TextResult is the result of [Text].
type TextResult struct {
	// Tokens is the number of tokens of the text, Scored the number that are scored, Windows the number of contexts.
	Tokens  int `json:"tokens"`
	Scored  int `json:"scored"`
	Windows int `json:"windows"`
	// Context and Stride are the options that were used.
	Context int `json:"context"`
	Stride  int `json:"stride"`
	Perplexity
	// Reference and Divergence are nil where there is no reference.
	Reference  *Perplexity `json:"reference,omitempty"`
	Divergence *Divergence `json:"divergence,omitempty"`
}

// CheckText reports what cannot be done: programs without logits, windows that do not fit a context, tokens
// that are in no vocabulary. reference may be nil.
func CheckText(m, reference *session.Model, tokens []int, o TextOptions) error {
	if err := checkText("the program", m, tokens, o); err != nil || reference == nil {
		return err
	}
	if m.Vocab != reference.Vocab {
		return fmt.Errorf("the program has a vocabulary of %d tokens, the reference of %d: their predictions cannot "+
			"be compared", m.Vocab, reference.Vocab)
	}
	return checkText("the reference", reference, tokens, o)
}

func checkText(role string, m *session.Model, tokens []int, o TextOptions) error {
	if m.Form != session.Logits {
		return fmt.Errorf("%s gives a token, not logits, which perplexity needs: export it without --sample", role)
	}
	least := max(1, len(o.Prefix))
	switch {
	case o.Context <= least || o.Context > m.MaxSeqLen:
		return fmt.Errorf("a context of %d tokens, want %d to %d, the context of %s", o.Context,
			least+1, m.MaxSeqLen, role)
	case o.Stride < 1 || o.Stride > o.Context-least:
		return fmt.Errorf("a stride of %d tokens, want 1 to %d for a context of %d", o.Stride,
			o.Context-least, o.Context)
	case len(tokens) < 1 || len(o.Prefix)+len(tokens) < 2:
		return fmt.Errorf("a text of %d tokens: nothing to predict", len(tokens))
	}
	for i, id := range slices.Concat(o.Prefix, tokens) {
		if id < 0 || m.Vocab > 0 && id >= m.Vocab {
			return fmt.Errorf("token %d (number %d) is not in the vocabulary of %s, %d tokens", id, i, role, m.Vocab)
		}
	}
	return nil
}

// Text scores tokens with a program that gives logits. If reference is not nil, it compares the program's predictions
// with the reference's.
func Text(ctx context.Context, m, reference *session.Model, tokens []int, o TextOptions) (TextResult, error) {
	r := TextResult{Tokens: len(tokens), Context: o.Context, Stride: o.Stride}
	if err := CheckText(m, reference, tokens, o); err != nil {
		return r, err
	}
	models := []*session.Model{m}
	if reference != nil {
		models = append(models, reference)
	}
	sessions := make([]*session.Session, len(models))
	for i, x := range models {
		s, err := x.NewSession()
		if err != nil {
			return r, err
		}
		defer s.Close()
		sessions[i] = s
	}
	score := &scores{loss: make([][]float64, len(models))}
	first := 1 - min(1, len(o.Prefix)) // the first token that something predicts
	for next := first; next < len(tokens); r.Windows++ {
		end := min(next+o.Stride, len(tokens))
		if next == first {
			end = min(o.Context-len(o.Prefix), len(tokens)) // the first window has nothing to skip
		}
		begin := max(0, end-(o.Context-len(o.Prefix)))
		before := slices.Concat(o.Prefix, tokens[begin:next])
		if err := score.window(ctx, sessions, before, tokens[next:end], next); err != nil {
			return r, err
		}
		next = end
		if o.Done != nil {
			o.Done(next-first, len(tokens)-first)
		}
	}
	r.Scored = len(score.loss[0])
	r.Perplexity = perplexity(score.loss[0])
	if reference != nil {
		p := perplexity(score.loss[1])
		r.Reference, r.Divergence = &p, score.sumUp()
	}
	return r, nil
}

// scores are the figures of the scored tokens.
type scores struct {
	loss       [][]float64 // of the program, and of the reference where there is one
	divergence []float64
	agree      int
}

// blockBytes bounds the logits of one model that are held at a time.
const blockBytes = 64 << 20

// window scores tokens, each by the prediction from those before it; before are the tokens in front of the first.
// first is the number that tokens[0] has in the text; error messages name it.
func (x *scores) window(ctx context.Context, sessions []*session.Session, before, tokens []int, first int) error {
	for _, s := range sessions {
		if err := s.Reset(); err != nil {
			return err
		}
	}
	block := max(1, blockBytes/(4*max(sessions[0].Model().Vocab, 1)))
	feed, skip := slices.Concat(before, tokens[:len(tokens)-1]), len(before)-1
	for at := 0; at < len(tokens); {
		n := min(block, len(tokens)-at)
		rows := make([][]session.Step, len(sessions))
		for i, s := range sessions {
			var err error
			if rows[i], err = s.Rows(ctx, feed[:skip+n], skip); err != nil {
				return err
			}
		}
		figures := make([]figure, n)
		var workers errgroup.Group // a vocabulary's exponentials take as long as a small model does
		workers.SetLimit(runtime.GOMAXPROCS(0))
		for k, token := range tokens[at : at+n] {
			workers.Go(func() error {
				return fault.Run("reading logits", func() error {
					figures[k] = figureOf(rows, k, token)
					return nil
				})
			})
		}
		if err := workers.Wait(); err != nil { // other errors are of a figure
			return err
		}
		for k, f := range figures {
			if f.err != nil {
				return fmt.Errorf("token number %d of the text: %w", first+at+k, f.err)
			}
			x.add(f)
		}
		feed, skip, at = feed[skip+n:], 0, at+n
	}
	return nil
}

// add counts a token's figures.
func (x *scores) add(f figure) {
	for i, loss := range f.loss {
		x.loss[i] = append(x.loss[i], loss)
	}
	if len(f.loss) == 2 {
		x.divergence = append(x.divergence, f.divergence)
	}
	if f.agrees {
		x.agree++
	}
}

// figure is the contribution of one token to the scores.
type figure struct {
	loss       []float64 // of each model
	divergence float64
	agrees     bool
	err        error // why there is none
}

// figureOf scores one token by the rows at k of each model.
func figureOf(rows [][]session.Step, k, token int) (f figure) {
	logs := make([][]float64, len(rows))
	for i := range rows {
		logs[i] = logSoftmax(rows[i][k].Logits)
		if token >= len(logs[i]) {
			return figure{err: fmt.Errorf("%d logits, want one for token %d", len(logs[i]), token)}
		}
		loss := -logs[i][token]
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			return figure{err: fmt.Errorf("the loss of token %d is %g, so there is no perplexity", token, loss)}
		}
		f.loss = append(f.loss, loss)
	}
	if len(rows) == 1 {
		return f
	}
	if len(logs[0]) != len(logs[1]) {
		return figure{err: fmt.Errorf("the program gives %d logits, the reference %d", len(logs[0]), len(logs[1]))}
	}
	f.divergence = divergence(logs[1], logs[0])
	if math.IsNaN(f.divergence) || math.IsInf(f.divergence, 0) {
		return figure{err: fmt.Errorf("the divergence is %g: the program excludes a token that the reference does not",
			f.divergence)}
	}
	f.agrees = rows[0][k].Token == rows[1][k].Token
	return f
}

// logSoftmax returns ln softmax(logits) in float64, computed as x - max - ln Σ exp(x - max).
func logSoftmax(logits []float32) []float64 {
	most := math.Inf(-1)
	for _, v := range logits {
		most = max(most, float64(v)) // NaN stays
	}
	sum := 0.0
	out := make([]float64, len(logits))
	for i, v := range logits {
		out[i] = float64(v) - most
		sum += numeric.Exp(out[i])
	}
	log := numeric.Log(sum)
	for i := range out {
		out[i] -= log
	}
	return out
}

// divergence is D(P ‖ Q) = Σ p·(ln p - ln q) in nats, for ln p and ln q; a token that P excludes adds
// nothing. Rounding could make it a little less than 0, which it never is.
func divergence(p, q []float64) float64 {
	sum := 0.0
	for i := range p {
		if w := numeric.Exp(p[i]); w > 0 {
			sum += float64(w * (p[i] - q[i]))
		}
	}
	return max(sum, 0)
}

// perplexity summarizes losses. The standard error of the mean is computed as that of a sample, 0 for a single loss.
func perplexity(losses []float64) Perplexity {
	n := float64(len(losses))
	sum := 0.0
	for _, v := range losses {
		sum += v
	}
	mean, squares := sum/n, 0.0
	for _, v := range losses {
		squares += float64((v - mean) * (v - mean))
	}
	p := Perplexity{Perplexity: numeric.Exp(mean), Loss: mean}
	if n > 1 {
		p.Error = p.Perplexity * math.Sqrt(squares/(n-1)/n)
	}
	return p
}

// sumUp sums up the divergences.
func (x *scores) sumUp() *Divergence {
	sorted := slices.SortedFunc(slices.Values(x.divergence), cmp.Compare)
	n := len(sorted)
	d := &Divergence{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, P99: sorted[(n-1)*99/100], Max: sorted[n-1],
		Top1: float64(x.agree) / float64(n)}
	for _, v := range x.divergence {
		d.Mean += v / float64(n)
	}
	return d
}
