// Package speculate drafts tokens and chooses how many; it runs no model itself.
//
//   - [Hidden] adds the hidden state, which a draft model starts from, to the outputs of a language model's forward.
//     [Bind] lets a draft model read the KV caches of forward.
//   - [Index] drafts from the text itself: it finds the longest end of the text that occurs earlier, and returns what
//     followed there.
//   - [Shared] chooses how many tokens the sequences of shared calls draft, by what was accepted and how long calls
//     took.
//   - [Log] is what --draft-log writes.
//
// A draft never changes the text: a token is accepted when it equals the one that the model draws.
//
// Package speculate imports ir and must never import an engine or package session.
package speculate
