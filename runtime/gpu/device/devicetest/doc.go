// Package devicetest is the conformance test of hosts: the same small programs on every device that is there.
// It is imported by tests only.
package devicetest
