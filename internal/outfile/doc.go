// Package outfile is the one place where etc makes files: programs, parts, texts, tensors, sessions, pages.
//
// [Check] says whether a file may be written under a name, and why not: a name that is a link, a device, a FIFO or
// a directory is refused, so is a file that the same command reads, and so is a file of another kind than the one
// to be written. [Write] writes a file under a name of its own beside its place, brings it to the disk and gives it
// its name when it is whole; after an error the place holds what it held. [OpenAside] opens the file that a long
// write leaves behind for the next time, and makes sure that it is ours.
//
// All of them reach the disk through the interface [FileSystem]; tests put one there that fails ([SetFileSystem]).
//
// The package imports nothing of ours, so that every layer can write by it.
package outfile
