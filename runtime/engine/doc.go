// Package engine is the interface between what runs a module and what uses it: sessions, the command
// line, the server. An engine compiles a module once; every instance of the result has state of its own.
//
// Package engine imports ir and must never import an engine.
package engine
