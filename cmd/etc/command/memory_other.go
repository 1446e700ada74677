//go:build !unix

package command

// peakMemory is not known on this system.
func peakMemory() int64 { return 0 }

// ownMemory, without the pages of files, is not known on this system.
func ownMemory() int64 { return 0 }
