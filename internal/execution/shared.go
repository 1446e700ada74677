package execution

import (
	"errors"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/session"
)

// Shared says how a program answers many sequences at a time, in calls that they share.
type Shared struct {
	// Path is the program's file, for messages.
	Path string
	// Engine compiles the program. It is not auto: see devices.Chosen.
	Engine  engine.Engine
	Options engine.Options
	// Drafts says what is drafted. Run turns drafts off that the compiled program cannot verify.
	Drafts Drafting
	// Sequences is how many run at a time, and Queue how many more may wait.
	Sequences, Queue int
	// State is what one sequence takes and Budget what all states may take, in bytes.
	State, Budget int64
	// Check, if not nil, checks a program of one sequence at a time before it is used, and may change Budget.
	Check func(m *ir.Module, model *session.Model) error
	// Adjust, if not nil, changes the options of the runner.
	Adjust func(x batch.Executor, o *batch.Options) error
}

// Run compiles a module, with its draft where [Shared.Drafts] names one, and starts a runner of it.
func (s *Shared) Run(m *ir.Module) (*batch.Runner, error) {
	x, err := NewExecutor(s.Path, m, s.Engine, batch.RaggedOptions{Engine: s.Options, Sequences: s.Sequences,
		Budget: s.Budget, Draft: s.Drafts.Kind, Drafts: s.Drafts.Most}, s.State, s.Check)
	if err != nil {
		return nil, err
	}
	r, err := s.runner(x)
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return r, nil
}

// runner starts the runner of an executor.
func (s *Shared) runner(x batch.Executor) (*batch.Runner, error) {
	drafting, err := s.Drafts.On(x)
	if err != nil {
		return nil, err
	}
	s.Drafts.Drafting = drafting
	o := batch.Options{Sequences: s.Sequences, Queue: s.Queue, Budget: s.Budget, Prefix: s.Budget,
		Checkpoints: Checkpoints(x.Limits()), Drafting: drafting, Suspect: s.Drafts.Suspect}
	if s.Adjust != nil {
		if err := s.Adjust(x, &o); err != nil {
			return nil, err
		}
	}
	return batch.New(x, o)
}
