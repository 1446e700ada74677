// Package guide holds an answer to a form, such as a JSON schema, where the model may think before the answer and may
// call tools. The form is that of the text after the thoughts. A call that has to come is held to the parameters of
// its tool.
//
// A [Model] is the vocabulary of a model as constraints need it, and the grammars that were compiled for it; a [Guide]
// follows one answer, token by token.
//
// # Invariants
//
//   - Thoughts and calls are told from the text by the ids of special tokens, never by their names in a text.
//   - An answer does not end while thoughts or a call are open, nor before its text is whole.
//   - A mask is exact: what [Guide.Mask] allows, [Guide.Accept] takes.
//
// The package imports runtime/constrain, runtime/format and runtime/tokenizer; it must never import an engine, a
// sampler or a server.
package guide
