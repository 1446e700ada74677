// Package version has the one number that etc's binaries, archives and exported files carry.
//
// A release is a commit with the tag "v" + [Number]: the Go toolchain stamps the tag into the binary, which is what
// "etc version" prints, and tools/release refuses a tag that is not this number.
//
// Package version imports nothing.
package version

// Number is the version of the file format's writer, without a v. It changes with a release and not with every build,
// because files record it, and the same input and flags give the same bytes whoever built the tool.
const Number = "0.1.0"

// Tool is what build records name as their writer.
const Tool = "etc " + Number
