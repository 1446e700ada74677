package tune

import "golang.org/x/sys/unix"

// system returns the version of macOS, which Metal's compiler and driver come with.
func system() string {
	version, err := unix.Sysctl("kern.osversion")
	if err != nil {
		return ""
	}
	return "macOS " + version
}
