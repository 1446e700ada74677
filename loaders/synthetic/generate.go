package synthetic

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/etc-ml/etc/internal/outfile"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// Spec says what checkpoint to write.
type Spec struct {
	Config huggingface.Config // of any family
	// Family is the short name of the family that config.json names, where several have such a configuration; empty:
	// the first one of these.
	Family     string
	Seed       uint64
	ShardBytes int64 // most bytes of weights a file, one tensor at least; 0 is 4 GiB
	Workers    int   // files written at the same time; 0 is one for each CPU
}

// Generate writes a checkpoint of random weights into dir, which must be empty or not exist: config.json, and
// model.safetensors or shards with an index. What names the weights is written last, so that an interrupted run
// leaves no directory that looks whole.
func Generate(dir string, spec Spec) error {
	list, err := tensors(spec.Config)
	if err != nil {
		return err
	}
	config, err := configJSON(spec.Config, spec.Family)
	if err != nil {
		return err
	}
	if err := makeEmptyDir(dir); err != nil {
		return err
	}
	shards := split(list, spec.ShardBytes)
	if err := writeShards(dir, spec, shards); err != nil {
		return err
	}
	if len(shards) > 1 {
		if err := writeIndex(dir, shards); err != nil {
			return err
		}
	}
	return writeText(filepath.Join(dir, huggingface.ConfigFile), config)
}

func makeEmptyDir(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s: expected an empty directory, found %s in it; choose another or remove its files",
			dir, entries[0].Name())
	}
	return nil
}

// shard is one file of a checkpoint.
type shard struct {
	name    string
	tensors []tensor
}

// split puts tensors into files in their order, each of at most limit bytes or of one tensor.
func split(list []tensor, limit int64) []shard {
	if limit <= 0 {
		limit = 4 << 30
	}
	var shards []shard
	size := int64(0)
	for _, t := range list {
		if len(shards) == 0 || size+t.bytes() > limit {
			shards = append(shards, shard{})
			size = 0
		}
		last := &shards[len(shards)-1]
		last.tensors = append(last.tensors, t)
		size += t.bytes()
	}
	for i := range shards {
		shards[i].name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(shards))
	}
	if len(shards) == 1 {
		shards[0].name = safetensors.SingleFileName
	}
	return shards
}

// writeShards writes the files, several at a time. After a failure no other is begun.
func writeShards(dir string, spec Spec, shards []shard) error {
	workers := spec.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	errs := make([]error, len(shards))
	var next atomic.Int64
	var failed atomic.Bool
	var group sync.WaitGroup
	for range min(workers, len(shards)) {
		group.Go(func() {
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(shards) {
					return
				}
				if errs[i] = writeShard(dir, spec.Seed, shards[i]); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

func writeShard(dir string, seed uint64, s shard) error {
	entries := make([]safetensors.Entry, len(s.tensors))
	for i, t := range s.tensors {
		entries[i] = safetensors.Entry{Name: t.name, DType: t.dtype, Shape: t.shape, Data: func(w io.Writer) error {
			return write(w, t.distribution, stream(seed, t.name), t.elements(), t.dtype)
		}}
	}
	return safetensors.WriteFile(filepath.Join(dir, s.name), entries, map[string]string{"format": "pt"})
}

// writeIndex writes model.safetensors.index.json.
func writeIndex(dir string, shards []shard) error {
	weightMap := map[string]string{}
	total := int64(0)
	for _, s := range shards {
		for _, t := range s.tensors {
			weightMap[t.name] = s.name
			total += t.bytes()
		}
	}
	text, err := json.MarshalIndent(object{"metadata": object{"total_size": total}, "weight_map": weightMap}, "", "  ")
	if err != nil {
		return err
	}
	return writeText(filepath.Join(dir, safetensors.IndexFileName), append(text, '\n'))
}

func writeText(path string, text []byte) error {
	return outfile.Write(path, outfile.Options{Kind: outfile.JSON},
		func(w io.Writer) error { _, err := w.Write(text); return err })
}
