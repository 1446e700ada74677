// Command etc compiles language models to ExecuTorch programs and runs them.
package main

import (
	"os"

	"github.com/etc-ml/etc/cmd/etc/command"
)

func main() { os.Exit(command.Main(os.Args[1:])) }
