package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Dir returns a folder, or where none is named etc/kernels in the user's cache folder; "" where there is none.
func Dir(dir string) string {
	if dir != "" {
		return dir
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(user, "etc", "kernels")
}

// Hash returns a hash of texts, each with its length before it: 32 hexadecimal digits of SHA-256.
func Hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d ", len(p))
		io.WriteString(h, p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Aside writes a new file into a folder, which is made if need be. The caller puts it in place, or removes it.
func Aside(dir string, content []byte) (path string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "new")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// Write writes a file aside and renames it.
func Write(path string, content []byte) error {
	aside, err := Aside(filepath.Dir(path), content)
	if err != nil {
		return err
	}
	defer os.Remove(aside)
	return os.Rename(aside, path)
}
