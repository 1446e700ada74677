// Package kind sorts errors by their cause: a wrong request, an invalid file, or too little memory. The command line
// has an exit code for each kind, and users of the library find the kind with errors.Is.
//
// A kind wraps an error and does not change its message.
//
// Package kind imports nothing of etc.
package kind
