package template

import "fmt"

// Kind is the sort of an error. It is the name of the exception that Python or jinja2 raises in the same place, except
// for LimitError and NotSupported, which only this package has.
type Kind string

// The kinds of errors.
const (
	SyntaxError       Kind = "TemplateSyntaxError"  // the template does not parse
	Raised            Kind = "TemplateError"        // the template called raise_exception
	UndefinedError    Kind = "UndefinedError"       // an operation on an undefined value
	SecurityError     Kind = "SecurityError"        // an operation on what the sandbox hides
	RuntimeError      Kind = "TemplateRuntimeError" // a missing filter, test or block, or a refused statement
	FilterError       Kind = "FilterArgumentError"
	TypeError         Kind = "TypeError"
	ValueError        Kind = "ValueError"
	KeyError          Kind = "KeyError"
	IndexError        Kind = "IndexError"
	ZeroDivisionError Kind = "ZeroDivisionError"
	OverflowError     Kind = "OverflowError"
	AssertionError    Kind = "AssertionError"
	RecursionError    Kind = "RecursionError"
	LimitError        Kind = "LimitError"   // a limit of Options is exceeded
	NotSupported      Kind = "NotSupported" // jinja2 would do it, this package refuses
)

// Error is an error of a template: one that does not parse, or a render that stopped.
type Error struct {
	// Template is the name given to Parse.
	Template string
	// Line is the line of the template, from 1.
	Line int
	Kind Kind
	// Message says what is wrong; for Raised it is the text that the template gave to raise_exception.
	Message string
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d: %s: %s", e.Template, e.Line, e.Kind, e.Message)
}

// fail ends the evaluation with an error at the current line. Evaluation panics with an *Error, which Parse and
// Render turn into a result; it keeps the evaluator as short as the language that it evaluates.
func (in *interp) fail(kind Kind, format string, args ...any) {
	message := format
	if len(args) > 0 {
		message = fmt.Sprintf(format, args...)
	}
	panic(&Error{Line: in.line, Kind: kind, Message: message})
}

// try calls f and returns the error that ended it, if catch says that Python code would catch it.
func try(f func(), catch func(Kind) bool) (err *Error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok || !catch(e.Kind) {
				panic(r)
			}
			err = e
		}
	}()
	f()
	return nil
}

// catchError turns a panic with an *Error into the error that it is.
func catchError(name string, err *error) {
	switch r := recover().(type) {
	case nil:
	case *Error:
		r.Template = name
		*err = r
	default:
		panic(r)
	}
}
