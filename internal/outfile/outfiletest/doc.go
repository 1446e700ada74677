// Package outfiletest has a file system that fails, for tests of everything that writes files.
package outfiletest
