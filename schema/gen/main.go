package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := regenerate(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// regenerate renews the generated files of the schema folder named by args, or of the working directory,
// which is where go generate runs it.
func regenerate(ctx context.Context, args []string) error {
	dir := "."
	if len(args) > 0 {
		dir = args[0]
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	m, err := flatbuffersModule(ctx)
	if err != nil {
		return err
	}
	compiler, err := flatc(ctx, m)
	if err != nil {
		return err
	}
	return generate(ctx, compiler, outputs(dir, m.dir), dir)
}
