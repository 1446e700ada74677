// Package speculate has what drafting tokens and verifying them needs beside an engine.
//
//   - [Hidden] gives the hidden state, which drafts start from, out of a language model's forward, and [Bind] lets a
//     draft that reads a model's caches read the buffers of forward.
//   - [Index] finds drafts in the text itself: the longest end of the text that occurs in it before, and what followed.
//   - [Shared] chooses how many tokens the sequences of shared calls draft, by what was accepted and how long calls
//     took.
//   - [Log] is what --draft-log writes.
//
// A draft never changes the text: a token is accepted when it equals the one that the model draws.
//
// Package speculate imports ir and must never import an engine or package session.
package speculate
