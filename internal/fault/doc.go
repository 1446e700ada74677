// Package fault turns panics into errors of their own kind: faults of etc itself, of a device, or of a file that went
// away while it was mapped. They are told apart from wrong usage and from invalid files by the exit code.
//
// The package imports nothing of ours.
package fault
