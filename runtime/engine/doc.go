// Package engine defines the interface between engines, which run modules, and their users: sessions, the command line,
// the server. An engine compiles a module once. Every instance of the result has its own state.
//
// Package engine imports ir and must never import an engine.
package engine
