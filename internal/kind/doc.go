// Package kind tells errors apart by what they are about: how something was asked for, what a file holds, or the memory
// that is there. The command line makes exit codes of kinds, the library what errors.Is finds.
//
// A kind changes no message: it stands around an error and says the same words.
//
// Package kind imports nothing of etc.
package kind
