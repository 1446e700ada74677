// Loc counts the hand-written lines of a source tree by package and kind, and sums them by folder:
//
//	go run ./tools/loc [-sum folder,...] [folder]
//
// A line is what "wc -l" counts, so blank lines and comments count. What a generator wrote and says so ("Code generated
// ... DO NOT EDIT.") does not count; the generator's own source, a package in a folder named gen, does. Tests
// (_test.go) have a column of their own that is in no sum. Nothing in a testdata folder counts.
package main
