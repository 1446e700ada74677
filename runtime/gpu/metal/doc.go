// Package metal is the host of Apple GPUs, without cgo: messages go to the Objective-C runtime of the system.
// The host itself is internal/host, which also runs on Linux against the stand-in library of its tests; this
// package is what makes it a device on macOS, so that a program for Linux has none of it, unless it is built with the
// tag standin: then Open opens the stand-in there, and every command and test that is for a Mac can be tried.
//
// It imports packages device and internal/host, and must never import the planner.
package metal
