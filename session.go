package etc

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/etc-ml/etc/internal/devices"
	"github.com/etc-ml/etc/internal/execution"
	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/internal/prompt"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/constrain"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/program"
	"github.com/etc-ml/etc/runtime/session"
)

// Session runs a program for one user: one answer at a time, with the state of the conversation in the session itself.
// That is the fastest way to one answer, as a GPU gets the next call before the result of the last one was read, and
// the conversation can be kept in a file. [Model] is for many answers at a time. A Session is not safe for concurrent
// use.
type Session struct {
	info    Info
	o       Options
	engine  engine.Engine
	options engine.Options

	program     *program.Program
	module      *ir.Module // of the method forward, and of the draft where there is one
	drafts      execution.Drafting
	about       session.Description
	text        *prompt.Text
	constraints *constraints

	given    Parameters // as they were set
	sampling session.Sampling
	own      bool               // the runtime's own sampler draws
	grammar  *constrain.Grammar // that answers are held to; nil for none

	model        *session.Model // compiled; nil before
	session      *session.Session
	answerer     *execution.Answerer // in the place of model and session, for drafts and Options.Deterministic
	conversation *chat.Conversation

	answering bool // somebody ranges over an answer
	closed    bool
}

// OpenSession opens the program in a file for one user, with the parameters of the answers to come. The file stays
// mapped, and must not change, until Close. The program is compiled by [Session.Compile], [Session.Reset] or the first
// answer. What is no language model is an [ErrInvalid].
func OpenSession(path string, o Options, p Parameters) (*Session, error) {
	if o.Concurrent != 0 || o.CacheMemory != 0 {
		return nil, kind.Usagef("Options.Concurrent and Options.CacheMemory are for Open: a session has one answer " +
			"at a time")
	}
	e, options, err := o.engine()
	if err != nil {
		return nil, err
	}
	file, err := program.Open(path)
	if err != nil {
		return nil, err
	}
	s := &Session{o: o, engine: e, options: options, program: file}
	if err := s.read(path, p); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

// read reads what the open file says.
func (s *Session) read(path string, p Parameters) (err error) {
	if s.text, err = openText(s.program, s.o); err != nil {
		return err
	}
	asked, err := execution.ParseDrafts(s.o.Speculate)
	if err != nil {
		return kind.Usagef("Options.Speculate is %w", err)
	}
	if s.drafts, err = asked.In(path, s.program, "Options.Speculate", s.options.Warn); err != nil {
		return err
	}
	if s.module, err = execution.ModuleWith(s.program, s.drafts.Kind); err != nil {
		return err
	}
	if s.about, err = session.Describe(s.module.Only(s.module.Entry)); err != nil {
		return kind.Invalidf("%s: %w", path, err)
	}
	s.constraints = &constraints{text: s.text, vocabulary: s.about.Vocab}
	s.info = Info{Path: path, ContextLength: s.about.MaxSeqLen, VocabularySize: s.about.Vocab, Concurrent: 1,
		StopTokens: s.text.Stop, Chats: s.text.Template != nil && s.text.Tokenizer != nil}
	if err := s.SetParameters(p); err != nil {
		return err
	}
	s.text.UnusedDefaults(s.own, s.options.Warn)
	return nil
}

// shared reports whether answers go through calls that many sequences may share, which have drafts and are
// deterministic.
func (s *Session) shared() bool { return s.drafts.Most > 0 || s.o.Deterministic }

// Compile compiles the program for answers with the parameters that are set, and makes its state. Later answers may
// have other parameters as far as these need nothing more of the program; [Session.Reset] compiles one for which a
// conversation can change them all. What does not fit is an [ErrMemory].
func (s *Session) Compile() error { return s.compile(false) }

// compile compiles the program where that has not been done, for a conversation or for answers that stand alone, and
// checks that the parameters fit it.
func (s *Session) compile(converses bool) (err error) {
	if s.closed {
		return errSessionClosed
	}
	if s.model != nil {
		return s.fitParameters()
	}
	if s.shared() {
		if err := s.compileShared(); err != nil {
			return err
		}
	} else if err := s.compileAlone(converses); err != nil {
		return err
	}
	s.info.Device = s.model.Device
	if s.info.VocabularySize == 0 {
		s.info.VocabularySize = s.model.Vocab
	}
	return s.fitParameters()
}

// compileShared compiles the program for shared calls, which this session has alone.
func (s *Session) compileShared() (err error) {
	e, err := devices.Chosen(s.engine, s.options.Precision)
	if err != nil {
		return execution.LoadError(s.info.Path, err)
	}
	if s.answerer, err = execution.OpenAnswerer(s.info.Path, s.module, e, s.options, s.drafts); err == nil {
		s.model = s.answerer.Model()
	}
	return err
}

// spareBiases is the number of tokens that may have a bias in a conversation, if its first answer has no more.
const spareBiases = 16

// compileAlone compiles the program for a state of its own.
func (s *Session) compileAlone(converses bool) (err error) {
	options := s.options
	options.TuneLater = true
	states := 1
	if converses {
		states = 2 // a conversation also keeps the state that it had before its last answer
	}
	if s.own {
		d := session.DrawsOf(s.sampling)
		if converses {
			d.MinP, d.Biases, d.Window = true, max(d.Biases, spareBiases), max(d.Window, s.sampling.LastN)
		}
		d.Logits = s.given.Logits != nil
		s.model, err = session.LoadDraws(s.module, s.engine, options, d) // reads no weights
	} else if s.given.Logits == nil {
		s.model, err = session.LoadTokens(s.module, s.engine, options)
	} else {
		s.model, err = session.Load(s.module, s.engine, options)
	}
	if err != nil {
		return execution.LoadError(s.info.Path, err)
	}
	err = execution.CheckMemory(s.info.Path, s.module, s.model, s.engine, s.options.Precision, states, 0)
	if err == nil {
		s.session, err = s.model.NewSession()
	}
	if err != nil {
		err = errors.Join(err, s.model.Close())
		s.model = nil
	}
	return err
}

// Tune measures, once per machine, which kernels of a GPU are the fastest for the answers so far, in up to 15 seconds.
// Until it has been called, a session that answers alone takes the kernels that are known to be fast elsewhere, so that
// its first answer begins at once; call it when the first answer has been shown. It does nothing where everything is
// known, on other devices, and with [Options].NoTune. It ends early with the context's error.
func (s *Session) Tune(ctx context.Context) error {
	if err := s.free(); err != nil {
		return err
	}
	if s.session == nil {
		return nil
	}
	return s.session.Tune(ctx)
}

// errSessionClosed is the error of calls that need the program of a session that was closed.
var errSessionClosed = kind.Usagef("the session is closed: open another one with OpenSession")

// free returns an error where the session is closed, or where the caller still ranges over an answer of it. A second
// answer, or Close, would take the state away from that answer.
func (s *Session) free() error {
	switch {
	case s.closed:
		return errSessionClosed
	case s.answering:
		return kind.Usagef("the session gives an answer: leave the loop over it first")
	}
	return nil
}

// Close frees the program and its state, and unmaps the file. It may be called more than once, but not in a loop over
// an answer. After it all that needs the program is an [ErrUsage].
func (s *Session) Close() (err error) {
	if s.closed {
		return nil
	}
	if err := s.free(); err != nil {
		return err
	}
	s.closed = true
	switch {
	case s.answerer != nil:
		err = s.answerer.Close()
	case s.model != nil:
		err = errors.Join(s.session.Close(), s.model.Close())
	}
	return errors.Join(err, s.program.Close())
}

// Info returns a description of the program. Its device is known once it is compiled.
func (s *Session) Info() Info { return s.info.clone() }

// Tokenizer returns the program's tokenizer, or nil where its file has none.
func (s *Session) Tokenizer() *Tokenizer { return tokenizerOf(s.text) }

// ChatTemplate returns the chat template, or nil where there is none.
func (s *Session) ChatTemplate() *ChatTemplate { return templateOf(s.text) }

// SetParameters changes the parameters of the answers to come. Once the program is compiled, it refuses those for which
// it was not compiled. After an error the parameters are as they were.
func (s *Session) SetParameters(p Parameters) error {
	before, sampling, own, grammar := s.given, s.sampling, s.own, s.grammar
	if err := s.setParameters(p); err != nil {
		s.given, s.sampling, s.own, s.grammar = before, sampling, own, grammar
		return errors.Join(err, setTemplate(s.text, before))
	}
	return nil
}

func (s *Session) setParameters(p Parameters) (err error) {
	if err := p.check(s.text); err != nil {
		return err
	}
	if s.sampling, s.own, err = s.sample(&p); err != nil {
		return err
	}
	s.given = p
	if err := setTemplate(s.text, p); err != nil {
		return err
	}
	if s.grammar, err = s.constraints.compile(&p); err != nil || s.model == nil {
		return err
	}
	return s.fitParameters()
}

// sample returns the parameters of draws: those that p sets, and the file's for the others. own reports whether the
// runtime's own sampler draws.
func (s *Session) sample(p *Parameters) (out session.Sampling, own bool, err error) {
	given, err := p.sessionSampling()
	if err != nil {
		return out, false, err
	}
	need := given.NeedsRuntime()
	switch {
	case s.model != nil:
		own = s.model.Form == session.Drawn
	case s.o.Sampler == "file" && need != "":
		return out, false, kind.Usagef("%s needs Options.Sampler runtime; with Options.Sampler file the program draws, "+
			"which takes temperature, top-k, top-p and seed at most", need)
	case s.o.Sampler == "file":
		own = s.o.Deterministic
	case s.o.Sampler == "" && s.about.Form == session.Sampler && !s.o.Deterministic: // its head is enough, or not
		out = given
		if err := s.text.Defaults(p.isSet, &out, true); err != nil {
			return out, false, err
		}
		own = out.NeedsRuntime() != ""
	default:
		own = true
	}
	out = given
	return out, own, s.text.Defaults(p.isSet, &out, own)
}

// Parameters returns the parameters of the answers to come, with the file's defaults and the seed filled in. Those of
// draws that the program has no use for, or, once it is compiled, was not compiled for, are nil.
func (s *Session) Parameters() Parameters {
	p, v := s.given, s.sampling
	p.Temperature, p.TopK, p.TopP, p.Seed = decimal(v.Temperature), nil, nil, nil
	form, wide := s.about.Form, s.own
	if s.model != nil {
		form, wide = s.model.Form, s.shared() || s.model.Draws().MinP
	}
	if wide || form == session.Sampler || form == session.Drawn {
		p.TopK, p.TopP, p.Seed = new(int(v.TopK)), decimal(v.TopP), new(v.Seed)
	}
	p.MinP, p.RepeatPenalty, p.PresencePenalty, p.FrequencyPenalty, p.Bias = nil, nil, nil, nil, maps.Clone(p.Bias)
	if wide {
		p.MinP, p.RepeatPenalty = decimal(v.MinP), decimal(v.RepeatPenalty)
		p.PresencePenalty, p.FrequencyPenalty = decimal(v.PresencePenalty), decimal(v.FrequencyPenalty)
		p.RepeatLast = v.LastN
	}
	return p
}

// decimal returns a number of float32 as the shortest decimal number that stands for it: 0.7, not 0.699999988.
func decimal(v float32) *float64 {
	x, _ := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64) // what was formatted can be parsed
	return &x
}

// fitLogits refuses to give logits that the compiled program does not give.
func (s *Session) fitLogits() error {
	form := s.model.Form
	switch {
	case s.given.Logits == nil || !s.shared() && s.model.GivesLogits():
		return nil
	case s.shared():
		return kind.Usagef("Parameters.Logits with Options.Speculate or Options.Deterministic, whose calls give no " +
			"logits: leave one out")
	case form == session.Logits || form == session.Drawn:
		return kind.Usagef("Parameters.Logits: the program was compiled to give tokens only; set it before the first " +
			"answer")
	}
	return kind.Usagef("Parameters.Logits: the program gives a token, not logits; export it without --sample, or " +
		"give Options.Sampler runtime")
}

// fitParameters refuses parameters that the compiled program has no use for, and drops those that came from the file,
// with a warning.
func (s *Session) fitParameters() error {
	p, form := &s.given, s.model.Form
	var draws []string
	for _, x := range []struct {
		name string
		set  bool
	}{{"TopK", p.TopK != nil}, {"TopP", p.TopP != nil}, {"Seed", p.Seed != nil}} {
		if x.set {
			draws = append(draws, "Parameters."+x.name)
		}
	}
	if err := s.sampling.CheckFor(form, draws); err != nil {
		return kind.Of(kind.ErrUsage, err)
	}
	if err := s.fitLogits(); err != nil {
		return err
	}
	if p.ForceTokens != nil && s.shared() {
		return kind.Usagef("Parameters.ForceTokens with Options.Speculate or Options.Deterministic, whose tokens are " +
			"drawn")
	}
	for token := range p.Bias {
		if vocab := s.model.Vocab; vocab > 0 && token >= vocab {
			return kind.Usagef("Parameters.Bias of token %d, which is not in the vocabulary of %d tokens", token, vocab)
		}
	}
	if form == session.Drawn {
		return s.fitDraws()
	}
	if need := s.sampling.NeedsRuntime(); need != "" {
		return kind.Usagef("Parameters: %s needs Options.Sampler runtime, or to be set before the program is compiled",
			need)
	}
	if form == session.Sampler {
		return nil
	}
	s.sampling.Seed = 0 // nothing draws with it
	if s.sampling.TopK > 0 || s.sampling.TopP < 1 {
		if s.sampling.Temperature > 0 {
			s.options.Warn("the file's top-k and top-p are not used: the program has no sampling head " +
				"(etc export --sample); Options.Sampler runtime uses them")
		}
		s.sampling.TopK, s.sampling.TopP = 0, 1
	}
	return nil
}

// fitDraws refuses parameters for which the runtime's own sampler was not compiled.
func (s *Session) fitDraws() error {
	if top := s.sampling.TopLogprobs; top > s.model.Vocab {
		return kind.Usagef("Parameters.Logprobs %d, of a vocabulary of %d tokens", top, s.model.Vocab)
	}
	if s.shared() {
		return nil
	}
	need, has := session.DrawsOf(s.sampling), s.model.Draws()
	if need.MinP && !has.MinP || need.Biases > has.Biases || need.Window > has.Window || need.Mask && !has.Mask ||
		need.Logprobs && !has.Logprobs || need.Top > has.Top {
		return kind.Usagef("Parameters that the program was not compiled for: it takes min-p: %t, biases of %d "+
			"tokens, penalties over the last %d, constraints: %t, log-probabilities: %t", has.MinP, has.Biases,
			has.Window, has.Mask, has.Logprobs)
	}
	return nil
}

// Limits returns what the compiled program takes of parameters that have a size: of how many tokens it takes a bias,
// and over how many last tokens penalties.
func (s *Session) Limits() (biases, repeatLast int) {
	if s.model == nil {
		return 0, 0
	}
	d := s.model.Draws()
	return d.Biases, d.Window
}

// randomSeed returns the seed of answers for which none is set.
func randomSeed() int64 { return rand.Int64N(math.MaxInt32 + 1) }
