// Package devicetest is the conformance test of hosts: the same small programs on every device that is there. It also
// has a device that counts what is submitted, for tests of engines.
//
// It is imported by tests only.
package devicetest
