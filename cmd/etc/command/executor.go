package command

import "github.com/etc-ml/etc/internal/execution"

// newExecutor compiles a program for calls of many sequences, or where it cannot be made such a program, for one at a
// time.
var newExecutor = execution.NewExecutor
