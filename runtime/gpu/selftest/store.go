package selftest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/etc-ml/etc/internal/fault"
	"github.com/etc-ml/etc/runtime/gpu/artifact"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// store keeps results, one in a file.
type store struct {
	dir      string // "" for none
	identity string
	target   kernels.Target
}

const extension = ".known"

// header is the first line of a file. Its number changes with the self-tests.
const header = "etc known answer 1"

func newStore(dir, identity string, target kernels.Target) store {
	return store{artifact.Dir(dir), strings.Join(strings.Fields(identity), " "), target}
}

// path is the file of a launch: its name is the hash of all that the result depends on. It is "" where nothing is kept.
func (s store) path(l kernels.Launch) string {
	text, err := l.Source(s.target)
	if s.dir == "" || err != nil {
		return ""
	}
	return filepath.Join(s.dir, artifact.Hash(header, s.identity, l.Key(), text)+extension)
}

// text tells versions of a kernel's source apart: what is remembered of another one is nothing to report.
func (s store) text(file, kernel string) string {
	text, err := kernels.Launch{File: file, Kernel: kernel}.Source(s.target)
	if err != nil {
		return ""
	}
	hash := sha256.Sum256([]byte(text))
	return hex.EncodeToString(hash[:8])
}

// entry is the content of a file.
type entry struct {
	device string
	text   string // of the kernel's source, a hash
	key    string // of the launch
	wrong  string // "" for one that passed
	lost   bool   // the device could not be used any more
}

// String is the content of the file, four lines below the header's.
func (e entry) String() string {
	result := "passed"
	switch {
	case e.lost:
		result = "lost " + e.wrong
	case e.wrong != "":
		result = "failed " + e.wrong
	}
	return fmt.Sprintf("%s\ndevice %s\ntext %s\nkernel %s\n%s\n", header, e.device, e.text, e.key, result)
}

// parse reads the content of a file; it is false where String does not write such.
func parse(text string) (e entry, ok bool) {
	lines := strings.Split(text, "\n")
	if len(lines) != 6 {
		return e, false
	}
	e.device, e.text, e.key = strings.TrimPrefix(lines[1], "device "), strings.TrimPrefix(lines[2], "text "),
		strings.TrimPrefix(lines[3], "kernel ")
	switch result := lines[4]; {
	case strings.HasPrefix(result, "lost "):
		e.wrong, e.lost = strings.TrimPrefix(result, "lost "), true
	case result != "passed":
		e.wrong = strings.TrimPrefix(result, "failed ")
	}
	return e, e.String() == text
}

// entry is that of a launch that passed, or what was wrong, and whether that lost the device.
func (s store) entry(l kernels.Launch, wrong string, lost bool) entry {
	return entry{s.identity, s.text(l.File, l.Kernel), l.Key(), strings.Join(strings.Fields(wrong), " "), lost}
}

// read gives what is known of a launch; it is false where that is nothing.
func (s store) read(l kernels.Launch) (e entry, ok bool) {
	path := s.path(l)
	if path == "" {
		return e, false
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return e, false
	}
	e, ok = parse(string(text))
	return e, ok && e == s.entry(l, e.wrong, e.lost)
}

// found is what read gives.
type found struct {
	entry
	known bool
}

// readAll is read of several launches, side by side: their sources are long, and hashed.
func (s store) readAll(launches []kernels.Launch) []found {
	out := make([]found, len(launches))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wait fault.Group
	for i, l := range launches {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			out[i].entry, out[i].known = s.read(l)
		})
	}
	wait.Wait()
	return out
}

// keep writes the file of a launch aside and renames it. A full disk does not stop anybody.
func (s store) keep(l kernels.Launch, wrong string, lost bool) {
	if path := s.path(l); path != "" {
		_ = artifact.Write(path, []byte(s.entry(l, wrong, lost).String()))
	}
}

// Summary tells how many kernels of this version of etc have passed on a device, and of those that failed what was
// wrong, sorted.
func Summary(identity string, target kernels.Target, o Options) (passed int, failed []string) {
	s := newStore(o.Dir, identity, target)
	names, err := filepath.Glob(filepath.Join(s.dir, "*"+extension))
	if s.dir == "" || err != nil {
		return 0, nil
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		e, ok := parse(string(text))
		name, _, _ := strings.Cut(e.key, " ")
		file, kernel, _ := strings.Cut(name, "/")
		switch {
		case !ok || e.device != s.identity || e.text != s.text(file, kernel):
		case e.wrong == "":
			passed++
		default:
			failed = append(failed, e.wrong)
		}
	}
	slices.Sort(failed)
	return passed, slices.Compact(failed)
}
