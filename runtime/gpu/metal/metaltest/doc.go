// Package metaltest opens the host of Metal on the stand-in for Metal, so that tests on Linux run whole models
// through it. It is imported by tests only.
package metaltest
