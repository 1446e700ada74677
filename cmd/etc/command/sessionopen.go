package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/etc-ml/etc/internal/statefile"
	"github.com/etc-ml/etc/runtime/chat"
	"github.com/etc-ml/etc/runtime/session"
)

// keepSession writes a conversation to a file and returns the saved state.
func keepSession(path string, t *text, c *chat.Conversation) (*chat.Saved, error) {
	saved, err := c.Save()
	if err != nil {
		return nil, err
	}
	return saved, statefile.WriteSession(path, t.owner(), saved)
}

// readSession goes on with the conversation of a session file and returns what it has read. After an error c is as it
// was.
func readSession(path string, t *text, m *session.Model, c *chat.Conversation) (*chat.Saved, error) {
	saved, err := statefile.ReadSession(path, t.owner(), m)
	if err != nil {
		return nil, err
	}
	if err := c.Load(saved); err != nil {
		return nil, invalidError{fmt.Errorf("%s: %w", path, err)}
	}
	return saved, nil
}

// openSession goes on with the conversation of a session file, where there is one, and says so.
func openSession(log io.Writer, path string, text *text, m *session.Model, c *chat.Conversation, system string) error {
	if err := statefile.CheckSession(path, text.owner()); err != nil {
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
	saved, err := readSession(path, text, m, c)
	if err == nil {
		logf(log, "etc: going on with the chat in %s: %s", path, describeSession(saved))
	}
	return err
}

// describeSession says how much a conversation is.
func describeSession(s *chat.Saved) string {
	return fmt.Sprintf("%s, %s", count(len(s.Messages), "message"), count(len(s.State.Tokens), "token"))
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
	saved, err := keepSession(path, c.text, c.conversation)
	if err == nil {
		logf(c.log, "saved %s to %s", describeSession(saved), path)
	}
	return err
}

// load goes on with the conversation of a file that the user named in a chat, and says so.
func (c *chatter) load(path string) error {
	saved, err := readSession(path, c.text, c.session.Model(), c.conversation)
	if err == nil {
		logf(c.log, "loaded %s from %s", describeSession(saved), path)
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
	saved, err := keepSession(c.file, c.text, c.conversation)
	if err == nil {
		logf(c.log, "etc: the chat is kept in %s: %s", c.file, describeSession(saved))
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
