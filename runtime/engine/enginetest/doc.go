// Package enginetest tests engines against the reference engine: the same models, calls and tolerances for each.
//
// Package enginetest imports ir, runtime/engine, runtime/fuse/fusetest and runtime/reference; only tests may import it.
package enginetest
