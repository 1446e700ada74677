package command

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/internal/minisign"
	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/runtime/container"
)

// A signed program has two small files beside it: model.pte.root, a statement of its size, its root hash and the
// hash of its build record, and model.pte.root.minisig, minisign's signature of that statement.
const (
	statementSuffix = ".root"
	signatureSuffix = ".root.minisig"
	// maxSideFile bounds the bytes that are read of either file.
	maxSideFile = 64 << 10
)

// passwordVariable holds the password of a key where no terminal can be asked.
const passwordVariable = "ETC_SIGN_PASSWORD"

// readKey reads the private key for signing, and asks for its password where it has one.
func readKey(path string, prompt io.Writer) (minisign.PrivateKey, error) {
	text, err := readSmall(path)
	if err != nil {
		return minisign.PrivateKey{}, err
	}
	k, err := minisign.ParsePrivateKey(text, func() ([]byte, error) {
		if p, ok := os.LookupEnv(passwordVariable); ok {
			return []byte(p), nil
		}
		if stdin := int(os.Stdin.Fd()); term.IsTerminal(stdin) {
			fmt.Fprintf(prompt, "Password of %s: ", path)
			defer fmt.Fprintln(prompt)
			return term.ReadPassword(stdin)
		}
		return nil, fmt.Errorf("the key has a password; there is no terminal to ask for it, and %s is not set",
			passwordVariable)
	})
	if err != nil {
		return k, fmt.Errorf("--sign %s: %w", path, err)
	}
	return k, nil
}

// readPublicKey reads a public key: the file of that name, or the key itself in base64.
func readPublicKey(value string) (minisign.PublicKey, error) {
	text, err := readSmall(value)
	if errors.Is(err, os.ErrNotExist) {
		if k, err := minisign.ParsePublicKey([]byte(value)); err == nil {
			return k, nil
		}
		return minisign.PublicKey{}, usagef("--signed %s: there is no such file, and it is no public key in base64",
			value)
	}
	if err != nil {
		return minisign.PublicKey{}, err
	}
	k, err := minisign.ParsePublicKey(text)
	if err != nil {
		return k, usagef("--signed %s: %w", value, err)
	}
	return k, nil
}

// readSmall reads a file that is known to be small.
func readSmall(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSideFile+1))
	if err == nil && len(text) > maxSideFile {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxSideFile)
	}
	return text, err
}

// statementOf returns the text that is signed for a program. Anyone can compute it again from the program.
func statementOf(ctx context.Context, path string, jobs int) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	root, err := codegen.RootHash(ctx, f, info.Size(), jobs)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	record, err := recordBytes(path)
	if err != nil {
		return "", err
	}
	build := "none"
	if record != nil {
		build = fmt.Sprintf("%x", sha256.Sum256(record))
	}
	return fmt.Sprintf("etc program 1\nsize %d\nroot %s\nbuild %s\n", info.Size(), root, build), nil
}

// recordBytes returns the build record of a program, nil where it has none.
func recordBytes(path string) ([]byte, error) {
	f, err := container.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	record, ok := f.Lookup(keyBuild)
	if !ok {
		return nil, nil
	}
	return bytes.Clone(record), nil
}

// sign writes the statement of a program and its signature beside it.
func sign(ctx context.Context, path string, key minisign.PrivateKey, jobs int) error {
	statement, err := statementOf(ctx, path, jobs)
	if err != nil {
		return err
	}
	signature, err := key.Sign([]byte(statement), "signature by etc, for minisign -V",
		"statement of "+filepath.Base(path))
	if err != nil {
		return err
	}
	write := func(suffix string, text []byte) error {
		return outfile.Write(path+suffix, signatureOptions,
			func(w io.Writer) error { _, err := w.Write(text); return err })
	}
	return errors.Join(write(statementSuffix, []byte(statement)), write(signatureSuffix, signature))
}

// signatureOptions are the options for writing both files of a signature. They depend only on the program and the key,
// so there is no message when they are replaced.
var signatureOptions = outfile.Options{Kind: outfile.Text}

// checkSignatures refuses names of signature files that cannot be written, before the program is.
func checkSignatures(path, key string) error {
	for _, suffix := range []string{statementSuffix, signatureSuffix} {
		o := signatureOptions
		o.Inputs = []string{key}
		if err := outfile.Check(path+suffix, o); err != nil {
			return err
		}
	}
	return nil
}

// signedResult is the result of etc verify --signed.
type signedResult struct {
	Key  string `json:"key"`
	Root string `json:"root"`
}

// checkSigned holds a program against its statement, and that against the key.
func checkSigned(ctx context.Context, path, key string) (*signedResult, error) {
	public, err := readPublicKey(key)
	if err != nil {
		return nil, err
	}
	signature, err := readSmall(path + signatureSuffix)
	if err != nil {
		return nil, err
	}
	statement, err := readSmall(path + statementSuffix)
	if err != nil {
		return nil, err
	}
	if _, err := public.Verify(statement, signature); err != nil {
		return nil, invalidError{fmt.Errorf("%s%s: %w", path, signatureSuffix, err)}
	}
	is, err := statementOf(ctx, path, 0)
	if err != nil {
		return nil, err
	}
	if is != string(statement) {
		return nil, invalidError{fmt.Errorf("%s is not the file that was signed: %s", path,
			firstDifference(string(statement), is))}
	}
	root := strings.TrimPrefix(strings.Split(is, "\n")[2], "root ")
	return &signedResult{public.Name(), root}, nil
}

// firstDifference names the first line of a signed statement that is another one now.
func firstDifference(signed, is string) string {
	was, now := strings.Split(signed, "\n"), strings.Split(is, "\n")
	for i := range now {
		if i >= len(was) {
			break
		}
		if was[i] != now[i] {
			return fmt.Sprintf("signed was %q, it is %q", was[i], now[i])
		}
	}
	return "the statement has other lines"
}
