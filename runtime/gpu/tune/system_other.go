//go:build !linux && !darwin

package tune

// system returns "": here the device's description contains the driver's version.
func system() string { return "" }
