package command

import (
	"context"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/codegen/cache"
	"github.com/etc-ml/etc/internal/record"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders"
)

// useCache makes a file take computed weights, and the hashes of the sources, from the directory of --cache. The
// function that it returns logs, at the end, how much came from there.
func (f exportFlags) useCache(cmd *cobra.Command, file *codegen.File, c *loaders.Checkpoint) (func(), error) {
	if f.cacheDir == "" || f.plan {
		return func() {}, nil
	}
	limit, err := parseSize("--cache-size", f.cacheMax)
	if err != nil {
		return nil, err
	}
	kept, err := cache.Open(f.cacheDir, limit)
	if err != nil {
		return nil, err
	}
	hashes, err := cachedHashes(kept, file, c)
	if err != nil {
		return nil, err
	}
	wrap := kept.Wrap(toolVersion, func(leaf ir.Data) (string, bool, error) {
		h := hashes[leaf.Provenance()]
		if h == nil {
			return "", false, nil
		}
		hash, err := h.get(cmd.Context())
		return string(hash), true, err
	})
	for _, constant := range file.Module.Constants {
		if constant.Data != nil {
			constant.Data = wrap(constant.Data)
		}
	}
	return func() {
		s := kept.Stats()
		logf(cmd.ErrOrStderr(), "etc: cache %s: %d blocks taken, %d computed, %d damaged", f.cacheDir,
			s.Hits, s.Misses, s.Damaged)
		if s.Err != nil {
			logf(cmd.ErrOrStderr(), "etc: cache %s: nothing more was kept: %v", f.cacheDir, s.Err)
		}
	}, nil
}

// sourceHash is the hash of a source, which is computed once, or never where the cache knows the file.
type sourceHash struct {
	kept *cache.Cache
	name string // in the cache
	make func(context.Context) ([]byte, error)
	once sync.Once
	hash []byte
	err  error
}

func (h *sourceHash) get(ctx context.Context) ([]byte, error) {
	h.once.Do(func() {
		var known bool
		if h.hash, known = h.kept.Get(h.name); known {
			return
		}
		if h.hash, h.err = h.make(ctx); h.err == nil {
			h.kept.Put(h.name, h.hash)
		}
	})
	return h.hash, h.err
}

// cachedHashes returns the hashes of the sources by their provenance, and lets the record take them from there. A
// file is the one that was hashed when path, size, time of change, head and tail are the same.
func cachedHashes(kept *cache.Cache, file *codegen.File, c *loaders.Checkpoint) (map[string]*sourceHash, error) {
	out := map[string]*sourceHash{}
	files := map[string]string{} // identity by path
	for i, s := range c.Sources() {
		path, _, ok := s.Place()
		if !ok || s.Provenance() == "" {
			continue
		}
		if files[path] == "" {
			properties, err := record.IdentityOfFile(path)
			if err != nil {
				return nil, err
			}
			var values []string
			for _, p := range properties {
				values = append(values, p.Value)
			}
			files[path] = strings.Join(values, "\n")
		}
		field := &file.Record.Fields[i]
		h := &sourceHash{kept: kept, name: cache.Name("source", files[path], s.Name), make: field.Make}
		field.Make = h.get
		out[s.Provenance()] = h
	}
	return out, nil
}

// parseSize reads a number of bytes.
func parseSize(flag, value string) (int64, error) {
	n, err := humanize.ParseBytes(value)
	if err != nil || n == 0 || int64(n) < 0 {
		return 0, usagef("%s %q, want a number of bytes, as 2GiB or 500MB", flag, value)
	}
	return int64(n), nil
}
