package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// A source is a clone of what is released.
type source struct {
	dir  string
	tag  string // of HEAD, empty for a snapshot without one
	time time.Time
}

// checkOut clones HEAD of the repository to dir, and finds its tag.
func (r release) checkOut(ctx context.Context, dir string) (source, error) {
	s := source{dir: dir}
	changes, err := git(ctx, r.repository, "status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return s, err
	}
	if changes != "" {
		return s, fmt.Errorf("there are changes that are not committed, and a release is a commit:\n%s", changes)
	}
	tags, err := git(ctx, r.repository, "tag", "--points-at", "HEAD", "--list", "v*")
	if err != nil {
		return s, err
	}
	want := "v" + r.number
	for tag := range strings.FieldsSeq(tags) {
		if tag == want {
			s.tag = tag
		}
	}
	if s.tag == "" && !r.snapshot {
		found := "it has none"
		if tags != "" {
			found = "it has " + strings.Join(strings.Fields(tags), ", ")
		}
		return s, fmt.Errorf("HEAD must have the tag %s, the number in internal/version, and %s: tag it, or "+
			"say -snapshot", want, found)
	}
	commit, err := git(ctx, r.repository, "rev-parse", "HEAD")
	if err != nil {
		return s, err
	}
	if _, err := git(ctx, r.repository, "clone", "--quiet", "--shared", "--no-checkout", ".", dir); err != nil {
		return s, err
	}
	if _, err := git(ctx, dir, "checkout", "--quiet", "--detach", commit); err != nil {
		return s, err
	}
	seconds, err := git(ctx, dir, "log", "-1", "--format=%ct")
	if err != nil {
		return s, err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	s.time = time.Unix(unix, 0).UTC()
	return s, err
}

// git runs git in a folder, and gives what it prints, without the line's end.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	var text strings.Builder
	var problems strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &problems
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w\n%s", strings.Join(args, " "), err, problems.String())
	}
	return strings.TrimRight(text.String(), "\n"), nil
}
