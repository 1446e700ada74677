// Package constrain holds what a model writes to a language: JSON, a JSON schema, a regular expression or a grammar. It
// compiles the language to a pushdown automaton over bytes, and says of each token of a vocabulary whether it may come
// next. docs/constraints.md says what each language may use.
//
// # How a constraint is made
//
// A front end (regex.go, gbnf.go, schema.go and the files behind it) makes rules of expressions over bytes (expr.go).
// compileProgram (build.go, program.go) makes positions of them that have no empty moves, takes away what cannot end,
// and refuses rules that begin with themselves. A machine (state.go) runs the program: a state is the set of all
// readings of the text so far, each a position and the frames that wait after it. Readings that wait alike share their
// frames (a graph-structured stack), so the states of an ambiguous grammar grow with the text and not exponentially. A
// counted repetition is a rule with a counter, so a maxLength of a million costs no more than one of ten. States,
// frames and transitions are made when they are first asked for and kept by content.
//
// # How a mask is made
//
// A vocabulary (vocab.go) is a trie of its tokens' bytes. What a token does inside of the innermost frame does not
// depend on what is around the frame: the walk of the trie for it is done once (mask.go), and keeps the tokens that
// stay inside and the nodes of the trie where the frame can have ended. Only from these few nodes a state walks on,
// with the frames around. The result is kept by state.
//
// # Invariants
//
// From every state that Accept leads to, some text of bytes ends. A text that a grammar takes as a whole is in its
// language; of a JSON schema, it is valid, is parsed by encoding/json, and no float64 overflows. Mask and Accept agree
// on each token, but for grammars so ambiguous that a text has more than 4096 readings at once: there Accept gives
// ErrTooComplex, and a mask that would take more than about a second leaves tokens out. Compile never panics and is
// bounded in time and memory; what it cannot express is an error that names the keyword and its place, never left out
// in silence. Nothing is read from files or from the network.
//
// The package imports nothing of ours, and knows of no engine, model or tokenizer.
package constrain
