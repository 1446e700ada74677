// Drawtext draws texts of the repository at random, for a reader who is to say what each means without seeing the code:
//
//	go run ./tools/drawtext -seed 1            # thirty texts alone
//	go run ./tools/drawtext -seed 1 -places    # the same with their files and lines
//
// It draws from the comments, documents, errors and help texts that somebody wrote by hand; see collect. The same tree
// and seed give the same texts. docs/notes/newcomer.md has what such readings found.
package main
