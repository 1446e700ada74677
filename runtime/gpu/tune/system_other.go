//go:build !linux && !darwin

package tune

// system is "": what the device says of itself has the driver's version.
func system() string { return "" }
