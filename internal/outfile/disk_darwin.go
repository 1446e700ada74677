package outfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate sets the size of a file and takes the space for it, where the file system can.
func allocate(file *os.File, size int64) error {
	unix.FcntlFstore(file.Fd(), unix.F_PREALLOCATE, &unix.Fstore_t{ //nolint:errcheck // the space is not one piece, or taken later
		Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: size,
	})
	return file.Truncate(size)
}
