// Package command is etc's command line: a file per command, built with cobra. [Main] is the one place
// that prints errors and chooses exit codes; commands return errors.
//
// Standard output carries the result only. Logs, progress and statistics go to standard error.
package command
