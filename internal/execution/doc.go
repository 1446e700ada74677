// Package execution loads a program that is a language model for calls of many sequences, as etc serve, etc bench
// --streams and the library run it.
//
// Package execution imports runtime/batch and runtime/session; it must never import a loader or the command line.
package execution
