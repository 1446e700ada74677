//go:build !unix

package outfile

import "io/fs"

// Flags with which a name is opened; this system has none for links, so [OpenAside] compares the file that it has
// opened with the one of the name.
const noFollow, noWait = 0, 0

// foreign says why a regular file is not one that only this user writes; this system's modes do not tell.
func foreign(fs.FileInfo) string { return "" }
