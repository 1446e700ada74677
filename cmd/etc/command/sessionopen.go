package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/etc-ml/etc"
	"github.com/etc-ml/etc/internal/statefile"
)

// openSession goes on with the conversation of a session file, where there is one, and says so.
func openSession(log io.Writer, path string, s *etc.Session, system string) error {
	if err := statefile.CheckSession(path, statefile.Owner{File: s.Info().Path}); err != nil {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		logf(log, "etc: a new chat, kept in %s", path)
		return nil
	} else if err != nil {
		return err
	}
	if system != "" {
		return usagef("--system with the chat in %s, which has begun already", path)
	}
	err := s.Load(path)
	if err == nil {
		logf(log, "etc: going on with the chat in %s: %s", path, describeSession(s))
	}
	return err
}

// describeSession says how much a conversation is.
func describeSession(s *etc.Session) string {
	return fmt.Sprintf("%s, %s", count(len(s.Messages()), "message"), count(s.Len(), "token"))
}

// save writes the conversation to a file that the user named in a chat, and says so.
func (c *chatter) save(path string) (err error) {
	if !sameFile(path, c.file) { // that one is locked already
		unlock, locked := statefile.LockSession(path)
		if locked != nil {
			return locked
		}
		defer func() { err = errors.Join(err, unlock()) }()
	}
	err = c.session.Save(path)
	if err == nil {
		logf(c.log, "saved %s to %s", describeSession(c.session), path)
	}
	return err
}

// load goes on with the conversation of a file that the user named in a chat, and says so.
func (c *chatter) load(path string) error {
	err := c.session.Load(path)
	if err == nil {
		logf(c.log, "loaded %s from %s", describeSession(c.session), path)
	}
	return err
}

// sameFile reports whether two names refer to the same file, or are the same name of a file that does not exist.
func sameFile(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	one, errOne := os.Stat(a)
	two, errTwo := os.Stat(b)
	if errOne == nil && errTwo == nil {
		return os.SameFile(one, two)
	}
	return errOne != nil && errTwo != nil && filepath.Clean(a) == filepath.Clean(b)
}

// close writes the session file, if there is one, and says so.
func (c *chatter) close() error {
	if c.file == "" {
		return nil
	}
	err := c.session.Save(c.file)
	if err == nil {
		logf(c.log, "etc: the chat is kept in %s: %s", c.file, describeSession(c.session))
	}
	return err
}

// count writes a number of things, in the singular where it is one.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
