// Command draftcurve draws what etc bench --speculate --json prints, as an SVG on standard output: the speed against
// none by the acceptance of drafts, a line for each number of drafts up to 3. The picture follows the reader's light or
// dark scheme.
//
//	etc bench FILE.pte --speculate mtp --json | go run ./internal/draftcurve > docs/drafts.svg
package main
