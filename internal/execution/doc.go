// Package execution loads a program that is a language model for calls of many sequences, as etc serve, etc bench
// --streams and the library run it, and as etc run answers one prompt with drafts or --deterministic ([Answerer]).
//
// Package execution imports runtime/program, runtime/batch and runtime/session; it must never import a loader or the
// command line.
package execution
