package template

import (
	"strings"
	"time"
)

// Options bounds a render and says what time it is. The zero value has a default for everything.
type Options struct {
	// Now gives the time for strftime_now, in the time zone to print; time.Now when nil.
	Now func() time.Time
	// MaxSteps bounds the work of a render. An expression, an iteration and 64 bytes looked at are a step each.
	// 0 means 50 million, which take a few seconds.
	MaxSteps int64
	// MaxMemory bounds the bytes of all strings, lists and dicts that a render makes. 0 means 512 MiB.
	MaxMemory int64
	// MaxOutput bounds the bytes of the rendered text, and of every string on the way to it. 0 means 64 MiB.
	MaxOutput int64
	// MaxDepth bounds how deep macros, blocks and recursive loops call each other. 0 means 200, about where
	// jinja2 reaches Python's recursion limit.
	MaxDepth int
}

const (
	defaultMaxSteps  = 50_000_000
	defaultMaxMemory = 512 << 20
	defaultMaxOutput = 64 << 20
	defaultMaxDepth  = 200

	// maxSource bounds the bytes of a template's source; the largest published ones have some 20 KB.
	maxSource = 512 << 10
	// maxArguments bounds the arguments of a call and the parameters of a macro.
	maxArguments = 1000
	// maxNesting bounds how deep values hold each other where they are walked; Python's own limit is near.
	maxNesting = 900
	// maxStatementDepth bounds how deep tags are nested; the template itself is the first level. Python has the same
	// bound: it refuses code with more than 100 levels of indentation, and jinja2 turns a template into such code.
	maxStatementDepth = 100
	// maxExpressionDepth bounds the recursion of the parser of expressions. A pair of brackets takes three levels, so
	// about 130 pairs fit; Python allows 200. It also bounds how many operators follow each other.
	maxExpressionDepth = 400
	// maxRange is the sandbox's bound on the length of a range.
	maxRange = 100_000
	// maxIntBits bounds integers; Python prints none with more than 4300 digits, which are 14284 bits.
	maxIntBits = 1 << 16
	// maxIntDigits is Python's bound on the digits of an integer that is printed or parsed.
	maxIntDigits = 4300
)

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxSteps == 0 {
		o.MaxSteps = defaultMaxSteps
	}
	if o.MaxMemory == 0 {
		o.MaxMemory = defaultMaxMemory
	}
	if o.MaxOutput == 0 {
		o.MaxOutput = defaultMaxOutput
	}
	if o.MaxDepth == 0 {
		o.MaxDepth = defaultMaxDepth
	}
	return o
}

// step counts n steps of work.
func (in *interp) step(n int) {
	in.steps += int64(n)
	if in.steps > in.opts.MaxSteps {
		in.fail(LimitError, "the render takes more than %d steps", in.opts.MaxSteps)
	}
}

// look counts the work of looking at n bytes or elements of a builtin operation.
func (in *interp) look(n int) { in.step(n / 64) }

// alloc counts n bytes about to be allocated, and the work to fill them.
func (in *interp) alloc(n int) {
	in.memory += int64(n)
	if n < 0 || in.memory > in.opts.MaxMemory {
		in.fail(LimitError, "the render makes more than %d bytes of values", in.opts.MaxMemory)
	}
	in.step(n / 256)
}

// allocString counts a string of n bytes about to be made.
func (in *interp) allocString(n int) {
	if n < 0 || int64(n) > in.opts.MaxOutput {
		in.fail(LimitError, "a string of more than %d bytes is too long", in.opts.MaxOutput)
	}
	in.alloc(n)
}

// allocValues counts a list of n values about to be made, or n values about to be put into one.
func (in *interp) allocValues(n int) {
	if n < 0 || n > 1<<40 {
		in.fail(LimitError, "a list of %d elements is too long", n)
	}
	in.alloc(32 + n*24)
}

// output collects text: what statements print, or a string that is made of parts.
type output struct {
	in   *interp
	text strings.Builder
}

func (o *output) write(s string) {
	o.in.alloc(len(s))
	if int64(o.text.Len()+len(s)) > o.in.opts.MaxOutput {
		o.in.fail(LimitError, "a text of more than %d bytes is too long", o.in.opts.MaxOutput)
	}
	o.text.WriteString(s)
}

// String returns the text so far.
func (o *output) String() string { return o.text.String() }

// enter counts a call of a macro, block or recursive loop; leave ends it.
func (in *interp) enter() {
	if in.depth++; in.depth > in.opts.MaxDepth {
		in.fail(RecursionError, "macros and loops call each other more than %d deep", in.opts.MaxDepth)
	}
}

func (in *interp) leave() { in.depth-- }

// nested is the depth of a walk into a value that holds values.
type nested int

func (in *interp) deeper(d nested) nested {
	if d++; d > maxNesting {
		in.fail(RecursionError, "values hold each other more than %d deep", maxNesting)
	}
	in.step(1)
	return d
}
