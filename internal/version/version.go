package version

// Number is the version of the file format's writer, without a v. It changes with a release and not with every build,
// because files record it, and the same input and flags give the same bytes whoever built the tool.
const Number = "0.1.0"

// Tool is the name of the writer in build records.
const Tool = "etc " + Number
