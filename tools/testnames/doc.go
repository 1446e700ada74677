// Testnames reads what "go test -json" prints and tells which tests and subtests ran:
//
//	go run ./tools/testnames run.json... > names.txt
//	go run ./tools/testnames -against names.txt.gz run.json...
//
// The first form prints a line "package test" for each test that ended, sorted, the package relative to the module. The
// second prints what the tests that failed have said, and every test of the list that did not run; it ends with an
// error if there are any. A test that ran in another package than the list's has moved and is not missing. A list may
// be compressed by gzip.
package main
