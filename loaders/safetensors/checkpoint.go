package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// File names of a checkpoint, as transformers writes them.
const (
	SingleFileName = "model.safetensors"
	IndexFileName  = SingleFileName + ".index.json"
)

const extension = ".safetensors"

// Checkpoint is the set of tensors of a directory: those of one file, or those that an index lists.
type Checkpoint struct {
	dir      string
	files    []*File
	tensors  []*Tensor
	byName   map[string]*Tensor
	unlisted []*Tensor
}

// OpenCheckpoint opens the checkpoint in dir: the file model.safetensors where it exists (which is what
// transformers prefers), else the shards that model.safetensors.index.json lists, else the only other
// *.safetensors file. Every header is checked, and every tensor of the index must be in its shard. The
// caller closes the checkpoint.
func OpenCheckpoint(dir string) (*Checkpoint, error) {
	c := &Checkpoint{dir: dir, byName: make(map[string]*Tensor)}
	single := filepath.Join(dir, SingleFileName)
	index := filepath.Join(dir, IndexFileName)
	var err error
	switch {
	case exists(single):
		err = c.openSingle(single)
	case exists(index):
		err = c.openSharded(index)
	default:
		if single, err = onlyFile(dir); err == nil {
			err = c.openSingle(single)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// exists reports whether there is something at path, if only an error that opening it will word.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// onlyFile returns the path of the one *.safetensors file in dir.
func onlyFile(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var names []string
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), extension) {
			names = append(names, entry.Name())
		}
	}
	switch len(names) {
	case 1:
		return filepath.Join(dir, names[0]), nil
	case 0:
		return "", &FormatError{File: dir, Expected: SingleFileName + " or " + IndexFileName,
			Found: "no *" + extension + " file"}
	}
	return "", &FormatError{File: dir, Expected: IndexFileName + ", which says what is in each file",
		Found: fmt.Sprintf("%d files without it: %s", len(names), clip(strings.Join(names, ", ")))}
}

func (c *Checkpoint) openSingle(path string) error {
	file, err := Open(path)
	if err != nil {
		return err
	}
	c.files = []*File{file}
	c.tensors, c.byName = file.tensors, file.byName
	return nil
}

func (c *Checkpoint) openSharded(indexPath string) error {
	shardOf, err := readIndex(indexPath)
	if err != nil {
		return err
	}
	listed := make(map[string]int) // tensors by shard
	for _, shard := range shardOf {
		listed[shard]++
	}
	shards := make([]string, 0, len(listed))
	for shard := range listed {
		shards = append(shards, shard)
	}
	slices.Sort(shards)
	for _, shard := range shards {
		path := filepath.Join(c.dir, shard)
		file, err := Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return &FormatError{File: indexPath, Expected: fmt.Sprintf("shard %s, which holds %d of its tensors", shard,
				listed[shard]), Found: "no such file; the download is incomplete"}
		}
		if err != nil {
			return err
		}
		c.files = append(c.files, file)
		for _, t := range file.tensors {
			if shardOf[t.Name] == shard {
				c.tensors = append(c.tensors, t)
				c.byName[t.Name] = t
			} else {
				c.unlisted = append(c.unlisted, t)
			}
		}
	}
	for _, name := range sortedKeys(shardOf) {
		if c.byName[name] == nil {
			return &FormatError{File: indexPath, Tensor: clip(name), Expected: "it in shard " + shardOf[name],
				Found: "no tensor of that name there"}
		}
	}
	return nil
}

// readIndex returns the weight_map of an index: the shard of every tensor. The other keys are skipped.
func readIndex(path string) (map[string]string, error) {
	text, err := readLimited(path)
	if err != nil {
		return nil, err
	}
	p := newParser(path, text)
	if !utf8.Valid(text) {
		return nil, p.fault("JSON in UTF-8", "other bytes")
	}
	var shardOf map[string]string
	err = p.object("the index", func(key string) error {
		if key != "weight_map" {
			return p.skip()
		}
		shardOf = make(map[string]string)
		return p.object(key, func(name string) error {
			token, err := p.next()
			if err != nil {
				return err
			}
			p.tensor = name
			shard, ok := token.(string)
			if !ok || !isShardName(shard) {
				return p.unexpected("the name of a *"+extension+" file in the index's own directory", token)
			}
			p.tensor = ""
			shardOf[name] = shard
			return nil
		})
	})
	if err == nil {
		err = p.end("the index")
	}
	if err == nil && len(shardOf) == 0 {
		err = p.fault("a weight_map with the shard of every tensor", "none")
	}
	return shardOf, err
}

// isShardName reports whether name is a plain file name on every system: a path, a drive or a device
// name would let an index read files elsewhere.
func isShardName(name string) bool {
	return strings.HasSuffix(name, extension) && filepath.IsLocal(name) && !strings.ContainsAny(name, "/\\:\x00")
}

// readLimited reads a text file of at most MaxHeaderBytes.
func readLimited(path string) ([]byte, error) {
	handle, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(handle, MaxHeaderBytes+1))
	if err = errors.Join(err, handle.Close()); err != nil {
		return nil, err
	}
	if len(text) > MaxHeaderBytes {
		return nil, &FormatError{File: path, Expected: "at most " + strconv.Itoa(MaxHeaderBytes) + " bytes",
			Found: "more"}
	}
	return text, nil
}

// Dir returns the directory that the checkpoint was opened in.
func (c *Checkpoint) Dir() string { return c.dir }

// Files lists the checkpoint's files by name.
func (c *Checkpoint) Files() []*File { return c.files }

// Tensors lists the checkpoint's tensors in the order of their bytes, file by file, which is the order
// to read them in. The slice must not be changed.
func (c *Checkpoint) Tensors() []*Tensor { return c.tensors }

// Tensor looks a tensor up by its name.
func (c *Checkpoint) Tensor(name string) (*Tensor, bool) {
	t, ok := c.byName[name]
	return t, ok
}

// Unlisted lists the tensors that shards hold and the index does not list, or lists in another shard.
// They are no part of the checkpoint; that they exist is worth a warning.
func (c *Checkpoint) Unlisted() []*Tensor { return c.unlisted }

// Close closes the checkpoint's files.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, file := range c.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
