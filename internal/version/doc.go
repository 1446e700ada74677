// Package version has the one number that etc's binaries, archives and exported files carry.
//
// A release is a commit with the tag "v" + [Number]: the Go toolchain stamps the tag into the binary, which is what
// "etc version" prints, and tools/release refuses a tag that is not this number.
//
// Package version imports nothing.
package version
