package tune

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/etc-ml/etc/runtime/gpu/artifact"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// store stores choices, each in a file.
type store struct {
	dir    string // "" for none
	device string
	target kernels.Target
}

// newStore returns the store for a device. system is the version of the driver or the system.
func newStore(dir string, info device.Info, system string) store {
	return store{dir: artifact.Dir(dir), device: identity(info, system), target: info.Target}
}

// Identity returns a line that identifies a device, its driver and its compiler.
func Identity(info device.Info) string { return identity(info, system()) }

func identity(info device.Info, system string) string {
	text := fmt.Sprintf("%s; %d cores; %d threads and %d bytes of a threadgroup; %s", info.Description, info.Cores,
		info.MaxThreads, info.ThreadgroupMemory, system)
	return strings.TrimRight(strings.Join(strings.Fields(text), " "), "; ")
}

// entry is the content of a file: a choice.
type entry struct {
	device          string
	first, choice   string        // the Key of the product, and the key of the chosen launch
	tried           int           // number of variants that were measured
	cut             int           // number of consecutive searches that ended before all was tried; 0: the last did not
	firstTime, time time.Duration // of one dispatch; in place, of the whole measured range
}

// header is the first line of a file, with the version of the format.
const header = "etc tuning 1"

// cutShort stands before entry.cut, where that is not 0.
const cutShort = ", cut short "

// maxFile bounds a file in bytes.
const maxFile = 64 << 10

// String returns the lines of a file. The last one is the hash of the others.
func (e entry) String() string {
	tried := strconv.Itoa(e.tried)
	if e.cut > 0 {
		tried += cutShort + strconv.Itoa(e.cut)
	}
	text := fmt.Sprintf("%s\ndevice %s\ndefault %s\nchoice %s\ntried %s\ntimes %d %d ns\n", header, e.device, e.first,
		e.choice, tried, e.firstTime, e.time)
	return text + "hash " + artifact.Hash(text) + "\n"
}

// parse reads the content of a file.
func parse(text string) (e entry, err error) {
	rest := text
	line := func(prefix string) string {
		value, after, ok := strings.Cut(rest, "\n")
		value, found := strings.CutPrefix(value, prefix)
		if err == nil && (!ok || !found) {
			err = fmt.Errorf("at byte %d, want a line %q", len(text)-len(rest), prefix)
		}
		rest = after
		return value
	}
	number := func(s string) int {
		n, bad := strconv.Atoi(s)
		if err == nil && (bad != nil || n < 0 || strconv.Itoa(n) != s) {
			err = fmt.Errorf("%q is no number", s)
		}
		return n
	}
	if line(header) != "" && err == nil {
		err = fmt.Errorf("its first line is not %q", header)
	}
	e.device, e.first, e.choice = line("device "), line("default "), line("choice ")
	tried, cut, found := strings.Cut(line("tried "), cutShort)
	e.tried = number(tried)
	if found {
		e.cut = number(cut)
	}
	first, best, _ := strings.Cut(strings.TrimSuffix(line("times "), " ns"), " ")
	e.firstTime, e.time = time.Duration(number(first)), time.Duration(number(best))
	hash := line("hash ")
	if err == nil && (rest != "" || e.String() != text) {
		err = fmt.Errorf("its content has another hash than %q", hash)
	}
	return e, err
}

// path returns the file for a product. Its name is the hash of everything that the choice depends on.
func (s store) path(w Variants) string {
	text, err := w.Launches[0].Source(s.target)
	if s.dir == "" || err != nil {
		return ""
	}
	return filepath.Join(s.dir, fileName(s.device, w.key(), text))
}

// fileName returns the name of the file for a device, the key of a product and the source of its default kernel.
func fileName(device, key, text string) string { return artifact.Hash(device, key, text) + ".tuning" }

var errNoFolder = errors.New("there is no folder for it")

// read reads a file. It returns fs.ErrNotExist for one that is absent.
func (s store) read(path, first string) (entry, error) {
	if path == "" {
		return entry{}, fs.ErrNotExist
	}
	info, err := os.Stat(path)
	if err != nil {
		return entry{}, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return entry{}, fmt.Errorf("%s is no file of up to %d bytes", path, maxFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return entry{}, err
	}
	e, err := parse(string(text))
	switch {
	case err != nil:
		return entry{}, fmt.Errorf("%s is damaged: %w", path, err)
	case e.device != s.device || e.first != first:
		return entry{}, fmt.Errorf("%s is of another device or kernel", path)
	}
	return e, nil
}

// write puts an entry in the place of the entry was, the zero one if there was none. It writes a temporary file and
// gives that the name path. If another process has written a valid choice there meanwhile, write returns that choice.
func (s store) write(path string, was, e entry, valid func(entry) bool) (entry, error) {
	if path == "" {
		return e, errNoFolder
	}
	aside, err := artifact.Aside(s.dir, []byte(e.String()))
	if err != nil {
		return e, err
	}
	defer os.Remove(aside)
	// Unlike a rename, a link fails if the file exists.
	if err := os.Link(aside, path); err == nil {
		return e, nil
	}
	if other, err := s.read(path, e.first); err == nil && other != was && valid(other) {
		return other, nil
	}
	return e, os.Rename(aside, path)
}
