// Package template renders chat templates: the Jinja language as Hugging Face checkpoints use it, with the
// semantics of Python.
//
// A chat template is a program that turns a conversation into a prompt. It is published beside the weights and
// was written against jinja2 3.1 in the environment that transformers builds, so that environment is what the
// package follows, including its quirks: the immutable sandbox, trim_blocks and lstrip_blocks, the loop
// controls, the generation tag, tojson as json.dumps without HTML escapes, raise_exception and strftime_now.
// Strings, numbers, slices, comparisons, truth, str and repr are Python's; a string is a sequence of code points.
//
// # Invariants
//
// A template reads nothing but its context and, through strftime_now, one clock. There is no include, import or
// extends, no random choice, no file and no network: such a statement parses, as in jinja2, and is an error when
// it runs. A render does not change its context, and a Template may be rendered by many goroutines at once.
//
// Every template and context give a prompt or an error that names the template, the line and the cause. Steps,
// memory, output and nesting are bounded by Options, so that no template hangs or exhausts the machine.
//
// # How it works
//
// The lexer (lexer.go) and the parser (parse_*.go) make the syntax tree (ast_*.go). The resolver (resolve.go,
// symbols.go) gives every name a slot by the scoping rules of jinja2's compiler. The tree is then evaluated
// directly (exec_*.go, eval_*.go) on Python values (value.go and the files named after the types).
//
// # Not supported
//
// Autoescape, complex numbers, bytes, sets, lipsum and the filters random, pprint and urlize are errors that say
// so. Known differences remain where jinja2 shows accidents of CPython: the identity that sameas sees of equal
// numbers and strings, addresses in the repr of generators and functions, a slice of a literal that has none
// (none[1:] is undefined when jinja2 folds it), a loop variable read after its loop by a macro made in it.
//
// # Imports
//
// The package imports the standard library and, for powers of floats, ir/numeric.
package template
