package tune

import "golang.org/x/sys/unix"

// system is the version of macOS, with which Metal's compiler and driver come.
func system() string {
	version, err := unix.Sysctl("kern.osversion")
	if err != nil {
		return ""
	}
	return "macOS " + version
}
