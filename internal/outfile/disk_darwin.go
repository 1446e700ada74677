package outfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// allocate sets the size of a file, and reserves the space for it if the file system can.
func allocate(file *os.File, size int64) error {
	want := unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: size}
	_ = unix.FcntlFstore(file.Fd(), unix.F_PREALLOCATE, &want) // where there is not one piece, space is taken later
	return file.Truncate(size)
}
