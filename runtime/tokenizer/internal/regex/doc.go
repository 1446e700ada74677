// Package regex matches the regular expressions of tokenizer.json files, which are written for Oniguruma with Ruby's
// syntax and Unicode 16.
//
// No Go package gives the same matches: package regexp has no look-ahead, and that of regexp2 (.NET's dialect) differs
// in \w, \d, case folding and the edition of Unicode. So this package takes the part of the language that means the
// same thing everywhere it is used - literals, classes, general categories, groups, alternation, greedy and lazy
// repetition, anchors, look-around of bounded width - and refuses the rest by name and place: a pattern either
// compiles and matches what Oniguruma matches or is an error, never an approximation.
//
// Matching is backtracking, first alternative first, as Oniguruma does it. A text on which it takes many steps is
// continued with a memory of the states that led nowhere, so that the time is O(length of text * size of pattern)
// and no time limit is needed.
//
// The package imports the sibling package ucd only.
package regex
