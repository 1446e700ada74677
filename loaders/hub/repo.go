package hub

import (
	"fmt"
	"regexp"
	"strings"
)

// Repo names a model of a hub at a revision.
type Repo struct {
	Name     string // "org/name"
	Revision string // a branch, tag or commit
}

// DefaultRevision is the branch of an id without a revision.
const DefaultRevision = "main"

var (
	repoName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$`)
	revision = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)
	commit   = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// ParseRepo reads "org/name" or "org/name@revision".
func ParseRepo(id string) (Repo, error) {
	name, rev, given := strings.Cut(id, "@")
	if !given {
		rev = DefaultRevision
	}
	if len(id) > 250 || !repoName.MatchString(name) || strings.Contains(id, "..") || strings.Contains(name, "--") ||
		!revision.MatchString(rev) || strings.HasSuffix(rev, "/") || strings.Contains(rev, "//") {
		return Repo{}, fmt.Errorf("hub id %q: expected org/name, or org/name@revision, of letters, digits and "+
			"- _ . signs", id)
	}
	return Repo{name, rev}, nil
}

// String returns "org/name@revision".
func (r Repo) String() string { return r.Name + "@" + r.Revision }

// folder returns the name of the repository's folder in a cache.
func (r Repo) folder() string { return "models--" + strings.ReplaceAll(r.Name, "/", "--") }
