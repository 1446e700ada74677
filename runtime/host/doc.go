// Package host tells what machine this is: processor, memory, disk, driver libraries. What the system does
// not say is zero or empty, never an error: the facts are for people and for choosing defaults.
//
// Package host imports nothing of ours.
package host
