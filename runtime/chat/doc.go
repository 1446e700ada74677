// Package chat holds a conversation with a model: it renders the messages by the model's chat template,
// feeds only what the session has not seen, and keeps the answers.
//
// Templates may render an answer otherwise once it is history (Qwen's leaves the thoughts out), so what
// has been fed need not be the beginning of the next prompt. The state of recurrent layers cannot be
// rolled back; so a conversation keeps a snapshot of the session from before each answer and goes back
// to it.
//
// # Invariants
//
//   - What the session has been fed is always the beginning of a rendered conversation, or is dropped.
//   - After an error, or where nothing of an answer came, the conversation is as before the question.
//   - A conversation that is saved and loaded goes on token for token as one that never stopped.
//
// Package chat imports runtime/session and must never import a template engine, a tokenizer or the
// command line: they are functions here.
package chat
