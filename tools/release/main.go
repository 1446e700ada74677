package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/etc-ml/etc/internal/minisign"
	"github.com/etc-ml/etc/internal/version"
)

// keyVariable and passwordVariable hold the private key's text and its password.
const (
	keyVariable      = "ETC_RELEASE_KEY"
	passwordVariable = "ETC_SIGN_PASSWORD"
)

func main() {
	out := flag.String("o", "dist", "the folder to write to; it must be empty or not exist")
	keyFile := flag.String("key", "", "the file of the private key to sign with (else the key in "+keyVariable+
		"; else nothing is signed)")
	snapshot := flag.Bool("snapshot", false,
		"release a commit without a tag; its version is the one that Go gives such commits")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *out, *keyFile, *snapshot, flag.Args()); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, out, keyFile string, snapshot bool, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("there are no arguments, found %q", args)
	}
	key, err := readKey(keyFile)
	if err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	r := release{
		repository: ".",
		name:       "etc",
		pkg:        "./cmd/etc",
		platforms:  platforms,
		number:     version.Number,
		snapshot:   snapshot,
		key:        key,
		materials:  billOfMaterials,
		manual:     true,
		formula:    true,
		log:        os.Stderr,
	}
	return r.write(ctx, out)
}

// readKey reads the private key; nil where there is none.
func readKey(path string) (*minisign.PrivateKey, error) {
	text, name := []byte(os.Getenv(keyVariable)), keyVariable
	if path != "" {
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return nil, err
		}
		name = path
	}
	if len(text) == 0 {
		return nil, nil
	}
	key, err := minisign.ParsePrivateKey(text, func() ([]byte, error) {
		if p, ok := os.LookupEnv(passwordVariable); ok {
			return []byte(p), nil
		}
		return nil, errors.New("the key has a password, and " + passwordVariable + " is not set")
	})
	if err != nil {
		return nil, fmt.Errorf("the private key of %s: %w", name, err)
	}
	return &key, nil
}
