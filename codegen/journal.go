package codegen

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/etc-ml/etc/internal/outfile"
)

// A journal lies beside a file that is being written and says which tasks have written their bytes for good.
// It is text: a line of JSON with what the file follows from, then lines "FIRST LAST CHECKSUM", each a range
// of tasks whose bytes had reached the disk before the line was written. What a crash leaves of the last line
// does not count.
type journal struct {
	path   string
	header []byte       // to be written with the first line
	file   outfile.File // nil before that
}

// journalVersion stands in the header; tasks are numbered anew when it changes.
const journalVersion = "etc journal 2"

// maxJournalBytes bounds the bytes that are read of a journal.
const maxJournalBytes = 256 << 20

type journalHeader struct {
	Version  string     `json:"version"`
	Identity []Property `json:"identity"`
}

// ChangedError is an interrupted export that cannot be continued, because what the file follows from is not
// what it was.
type ChangedError struct {
	Path    string
	Changes []string // each names what has changed, with both values
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s%s is of another export, which cannot be continued: %s; without --resume it is written anew",
		e.Path, partialSuffix, strings.Join(e.Changes, "; "))
}

// newJournal returns a journal that is written when its first tasks are.
func newJournal(path string, identity []Property) *journal {
	header, err := json.Marshal(journalHeader{journalVersion, identity})
	if err != nil {
		panic(err) // strings and booleans
	}
	return &journal{path: path, header: append(header, '\n')}
}

// continueJournal opens an existing journal and returns the tasks that are done. It returns nil where there is none, or
// none that can be read.
func continueJournal(path string, identity []Property, tasks []task) (*journal, set, error) {
	file, err := outfile.OpenOwn(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxJournalBytes))
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	header, done, whole := parseJournal(text, len(tasks))
	if header == nil {
		return nil, nil, file.Close()
	}
	if changes := changed(header.Identity, identity); len(changes) > 0 {
		return nil, nil, errors.Join(&ChangedError{strings.TrimSuffix(path, journalSuffix), changes}, file.Close())
	}
	err = file.Truncate(int64(whole))
	if err == nil {
		_, err = file.Seek(int64(whole), io.SeekStart)
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return &journal{path: path, file: file}, done, nil
}

// parseJournal reads the journal of a file with this number of tasks. It returns the header (nil if the text is not a
// journal), the tasks that are done, and the length of the valid part.
func parseJournal(text []byte, tasks int) (*journalHeader, set, int) {
	end := bytes.IndexByte(text, '\n') + 1
	var header journalHeader
	if end == 0 || json.Unmarshal(text[:end], &header) != nil || header.Version != journalVersion {
		return nil, nil, 0
	}
	done := newSet(tasks)
	for {
		n := bytes.IndexByte(text[end:], '\n') + 1
		if n == 0 {
			return &header, done, end
		}
		var first, last int
		var sum uint32
		line := string(text[end : end+n])
		if _, err := fmt.Sscanf(line, "%d %d %x\n", &first, &last, &sum); err != nil ||
			line != journalLine(first, last) || first < 0 || last < first || last >= tasks {
			return &header, done, end
		}
		for i := first; i <= last; i++ {
			done.add(i)
		}
		end += n
	}
}

func journalLine(first, last int) string {
	s := fmt.Sprintf("%d %d ", first, last)
	return fmt.Sprintf("%s%08x\n", s, crc32.ChecksumIEEE([]byte(s)))
}

// changed lists the properties that differ.
func changed(was, is []Property) []string {
	var out []string
	find := func(list []Property, name string) (string, bool) {
		i := slices.IndexFunc(list, func(p Property) bool { return p.Name == name })
		if i < 0 {
			return "nothing", false
		}
		return list[i].Value, true
	}
	for _, p := range is {
		if before, _ := find(was, p.Name); before != p.Value {
			out = append(out, fmt.Sprintf("%s was %s, is %s", p.Name, before, p.Value))
		}
	}
	for _, p := range was {
		if _, there := find(is, p.Name); !there {
			out = append(out, fmt.Sprintf("%s was %s, is nothing", p.Name, p.Value))
		}
	}
	if len(out) > 1 { // the plan follows from the others
		out = slices.DeleteFunc(out, func(s string) bool { return strings.HasPrefix(s, planProperty+" was ") })
	}
	return out
}

// planProperty is the name of the hash of the layout.
const planProperty = "plan"

// append adds tasks, whose bytes are on the disk, and brings the journal there too.
func (j *journal) append(tasks []int) error {
	if len(tasks) == 0 {
		return nil
	}
	var text bytes.Buffer
	w := bufio.NewWriter(&text)
	if j.file == nil {
		file, err := outfile.OpenAside(j.path, 0o644)
		if err == nil {
			err = file.Truncate(0)
		}
		if err != nil {
			return err
		}
		j.file = file
		w.Write(j.header) //nolint:errcheck // to memory
	}
	slices.Sort(tasks)
	for len(tasks) > 0 {
		n := 1
		for n < len(tasks) && tasks[n] == tasks[n-1]+1 {
			n++
		}
		w.WriteString(journalLine(tasks[0], tasks[n-1])) //nolint:errcheck // to memory
		tasks = tasks[n:]
	}
	w.Flush() //nolint:errcheck // to memory
	if n, err := j.file.Write(text.Bytes()); err != nil {
		return err
	} else if n < text.Len() {
		return io.ErrShortWrite
	}
	return j.file.Sync()
}

func (j *journal) close() error {
	if j == nil || j.file == nil {
		return nil
	}
	return ignoreClosed(j.file.Close())
}

// remove removes the journal, if it has been written.
func (j *journal) remove() error {
	if j == nil || j.file == nil {
		return nil
	}
	return errors.Join(j.close(), removeIfThere(j.path))
}

// set is a set of tasks.
type set []uint64

func newSet(n int) set { return make(set, (n+63)/64) }

func (s set) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s set) has(i int) bool { return i/64 < len(s) && s[i/64]>>(i%64)&1 != 0 }

func (s set) count() (n int) {
	for i := range 64 * len(s) {
		if s.has(i) {
			n++
		}
	}
	return n
}
