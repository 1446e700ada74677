package outfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// Options describe a file to be written, and which files it must not replace.
type Options struct {
	// Kind is the kind of the file. The file replaces one of the same kind or an empty one, and no other. "" replaces
	// any file.
	Kind Kind
	// Inputs are the names of files that the same command reads; none of them is replaced. A directory stands for the
	// checkpoint's files in it. Names without a file are ignored.
	Inputs []string
	// Private makes the file readable for its owner only, as a file with a conversation should be.
	Private bool
	// Unsynced does not wait until the file is on the disk. It is for files that can tell when they are damaged.
	Unsynced bool
	// Log, if not nil, is told which file is replaced.
	Log func(message string)
}

// TargetError says why no file can be written under a name.
type TargetError struct {
	Path    string
	Problem string // the reason, and what to do
}

func (e *TargetError) Error() string { return e.Path + ": " + e.Problem }

// Check reports whether [Write] may write a file under this name now. A [*TargetError] says why not and what to do;
// other errors are failures to find out. Commands that write their result at the end call it at their start.
func Check(path string, o Options) error {
	_, err := o.check(path)
	return err
}

// check is Check, and returns the file that would be replaced, or nil.
func (o Options) check(path string) (fs.FileInfo, error) {
	if path == "" {
		return nil, &TargetError{`""`, "is no name of a file"}
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		dir, err := os.Stat(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		if !dir.IsDir() {
			return nil, &TargetError{path, filepath.Dir(path) + " is no directory"}
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if problem := irregular(path, info); problem != "" {
		return nil, &TargetError{path, problem}
	}
	if input := o.inputAt(info); input != "" {
		return nil, &TargetError{path, fmt.Sprintf("this command reads %s, which is the same file; "+
			"choose another name for what is written", input)}
	}
	if info.Size() == 0 || o.Kind == "" {
		return info, nil
	}
	found, err := kindAt(path)
	if err != nil {
		return nil, err
	}
	if found != o.Kind {
		return nil, &TargetError{path, fmt.Sprintf("the file is %s, and %s would take its place; "+
			"choose another name, or remove the file first", found, o.Kind)}
	}
	return info, nil
}

// irregular says why a name cannot be written to as a file; "" if it can.
func irregular(path string, info fs.FileInfo) string {
	mode := info.Mode()
	what := ""
	switch {
	case mode.IsRegular():
		return ""
	case mode.IsDir():
		return "is a directory, expected the name of a file to write"
	case mode&fs.ModeSymlink != 0:
		to, err := os.Readlink(path)
		if err != nil {
			to = "another file"
		}
		return fmt.Sprintf("is a symbolic link to %s, and links are not written through; "+
			"name that file itself, or remove the link", to)
	case mode&fs.ModeNamedPipe != 0:
		what = "a FIFO"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	default:
		what = "no regular file"
	}
	return fmt.Sprintf("is %s, expected the name of a file to write, or - for standard output", what)
}

// inputAt returns the input that is this file, or "".
func (o Options) inputAt(info fs.FileInfo) string {
	for _, name := range o.Inputs {
		in, err := os.Stat(name)
		if err != nil {
			continue
		}
		if os.SameFile(in, info) {
			return name
		}
		if !in.IsDir() {
			continue
		}
		for _, inner := range checkpointFiles(name) {
			if in, err := os.Stat(inner); err == nil && os.SameFile(in, info) {
				return inner
			}
		}
	}
	return ""
}

// checkpointNames are the files of a checkpoint beside its weights, in any of the layouts that etc reads.
var checkpointNames = []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
	"special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json",
	"preprocessor_config.json", "processor_config.json", "vocab.json", "merges.txt"}

// checkpointFiles returns the files of a directory that belong to a checkpoint.
func checkpointFiles(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		name := e.Name()
		weights := strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".safetensors.index.json") ||
			strings.HasSuffix(name, ".gguf")
		if weights || slices.Contains(checkpointNames, name) {
			out = append(out, filepath.Join(dir, name))
		}
	}
	return out
}

// kindAt returns the kind of a regular file.
func kindAt(path string) (Kind, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow|noWait, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, headBytes))
	return KindOf(head), err
}

// replaced logs that a file is replaced.
func (o Options) replaced(path string, old fs.FileInfo) {
	if o.Log != nil && old != nil && old.Size() > 0 {
		o.Log(fmt.Sprintf("%s: replaced the file of %s that was there", path, humanize.IBytes(uint64(old.Size()))))
	}
}
