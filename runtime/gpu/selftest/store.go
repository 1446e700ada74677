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

// store stores results, each in a file.
type store struct {
	dir      string // "" for none
	identity string
	target   kernels.Target
}

const extension = ".known"

// header is the first line of a file. Its number changes when the self-tests change.
const header = "etc known answer 1"

func newStore(dir, identity string, target kernels.Target) store {
	return store{artifact.Dir(dir), strings.Join(strings.Fields(identity), " "), target}
}

// path returns the file for a launch. Its name is the hash of everything that the result depends on. It is "" where
// nothing is stored.
func (s store) path(l kernels.Launch) string {
	text, err := l.Source(s.target)
	if s.dir == "" || err != nil {
		return ""
	}
	return filepath.Join(s.dir, artifact.Hash(header, s.identity, l.Key(), text)+extension)
}

// text returns the hash of a kernel's source. A result for another version of the source is ignored without a message.
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
	text   string // hash of the kernel's source
	key    string // of the launch
	wrong  string // "" for one that passed
	lost   bool   // the device could not be used any more afterwards
}

// String returns the content of the file: four lines after the header.
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

// parse reads the content of a file. It returns false for anything that String does not write.
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

// entry returns the entry of a launch. wrong is "" if it passed; lost says that the device was lost.
func (s store) entry(l kernels.Launch, wrong string, lost bool) entry {
	return entry{s.identity, s.text(l.File, l.Kernel), l.Key(), strings.Join(strings.Fields(wrong), " "), lost}
}

// read returns the stored result for a launch, or false where there is none.
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

// found is the result of read.
type found struct {
	entry
	known bool
}

// readAll reads the results of several launches in parallel: hashing their long sources takes time.
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

// keep writes the file of a launch, through a temporary file. Errors such as a full disk are ignored.
func (s store) keep(l kernels.Launch, wrong string, lost bool) {
	if path := s.path(l); path != "" {
		_ = artifact.Write(path, []byte(s.entry(l, wrong, lost).String()))
	}
}

// Summary returns how many kernels of this version of etc have passed on a device, and for those that failed what was
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
