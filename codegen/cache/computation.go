package cache

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"

	"github.com/etc-ml/etc/ir"
)

// Skipper is implemented by computations that can be told that a block will not be asked for, so that they free its
// memory.
type Skipper interface{ Skip(block int) }

// Wrap returns data that takes its bytes from the cache and leaves there what it has to compute, where the data is an
// output of a computation in blocks; other data stays as it is. version changes when computations of one provenance
// give other bytes. content gives a hash of the bytes of a leaf of the data ([ir.Leaves]) and false where it knows
// none; then nothing is cached.
func (c *Cache) Wrap(version string, content func(leaf ir.Data) (string, bool, error)) func(ir.Data) ir.Data {
	known := map[string]*computation{}
	return func(d ir.Data) ir.Data {
		j, ok := d.(ir.Joint)
		if !ok {
			return d
		}
		inner, output := j.Group()
		blocked, ok := inner.(ir.Blocked)
		if !ok {
			return d
		}
		key := inner.Provenance()
		w := known[key]
		if w == nil {
			w = &computation{Blocked: blocked, cache: c, leaves: ir.Leaves(d), version: version, content: content}
			known[key] = w
		}
		return part{d, w, output}
	}
}

// part is an output of a cached computation.
type part struct {
	ir.Data
	c      *computation
	output int
}

func (p part) Group() (ir.Computation, int) { return p.c, p.output }
func (p part) From() []ir.Data              { return p.c.leaves }

// computation is a computation whose blocks are cached.
type computation struct {
	ir.Blocked
	cache   *Cache
	leaves  []ir.Data
	version string
	content func(ir.Data) (string, bool, error)

	naming sync.Once
	base   string // of the names of all blocks; empty: they are not cached
	err    error
}

// From returns the data that it reads.
func (c *computation) From() []ir.Data { return c.leaves }

// sized is implemented by computations that report their memory to codegen.
type sized interface {
	WorkerBytes() int64
	SharedBytes() int64
}

// entryBytes is the memory of a worker for an entry, in addition to the block: the content, and the content with its
// frame.
const entryBytes = 4 << 20

// WorkerBytes returns the memory that a worker needs.
func (c *computation) WorkerBytes() int64 {
	if s, ok := c.Blocked.(sized); ok {
		return s.WorkerBytes() + entryBytes
	}
	return 2 * entryBytes
}

// SharedBytes returns the memory that workers share.
func (c *computation) SharedBytes() int64 {
	if s, ok := c.Blocked.(sized); ok {
		return s.SharedBytes()
	}
	return 0
}

// Skip passes on that a block is not needed.
func (c *computation) Skip(i int) {
	if s, ok := c.Blocked.(Skipper); ok {
		s.Skip(i)
	}
}

// Produce emits all blocks in order.
func (c *computation) Produce(emit func(output int, offset int64, p []byte) error) error {
	for i := range c.Blocks() {
		if err := c.ProduceBlock(i, emit); err != nil {
			return err
		}
	}
	return nil
}

// ProduceBlock emits block i: from the cache, or computed, which it then adds to the cache.
func (c *computation) ProduceBlock(i int, emit func(output int, offset int64, p []byte) error) error {
	name, ok, err := c.name(i)
	if err != nil {
		return err
	}
	if !ok {
		return c.Blocked.ProduceBlock(i, emit)
	}
	if content, ok := c.cache.Get(name); ok {
		pieces, err := decode(content)
		if err != nil {
			return fmt.Errorf("cache entry %s: %w", name, err) // its hash is right, so it was written so
		}
		c.cache.hits.Add(1)
		c.Skip(i)
		for _, p := range pieces {
			if err := emit(p.output, p.offset, p.bytes); err != nil {
				return err
			}
		}
		return nil
	}
	var content []byte
	if err := c.Blocked.ProduceBlock(i, func(output int, offset int64, p []byte) error {
		content = encode(content, output, offset, p)
		return emit(output, offset, p)
	}); err != nil {
		return err
	}
	c.cache.misses.Add(1)
	c.cache.Put(name, content)
	return nil
}

// name returns the name of block i, false where it has none.
func (c *computation) name(i int) (string, bool, error) {
	c.naming.Do(func() {
		parts := []string{c.version, c.Provenance(), strconv.Itoa(c.Blocks())}
		for _, l := range c.leaves {
			hash, ok, err := c.content(l)
			if c.err = err; !ok || err != nil {
				return
			}
			parts = append(parts, l.Provenance(), hash)
		}
		c.base = Name(parts...)
	})
	if c.base == "" {
		return "", false, c.err
	}
	return Name(c.base, strconv.Itoa(i)), true, nil
}

// piece is a part of a block that is passed on at once.
type piece struct {
	output int
	offset int64
	bytes  []byte
}

// encode appends a piece to an entry's content: output, offset and length, then the bytes.
func encode(content []byte, output int, offset int64, p []byte) []byte {
	content = binary.AppendUvarint(content, uint64(output))
	content = binary.AppendUvarint(content, uint64(offset))
	content = binary.AppendUvarint(content, uint64(len(p)))
	return append(content, p...)
}

// decode reads the pieces of an entry's content.
func decode(content []byte) ([]piece, error) {
	var out []piece
	for len(content) > 0 {
		var v [3]uint64
		for i := range v {
			x, n := binary.Uvarint(content)
			if n <= 0 {
				return nil, fmt.Errorf("a piece of it is cut off")
			}
			v[i], content = x, content[n:]
		}
		if v[0] > 1<<20 || v[1] > 1<<62 || v[2] > uint64(len(content)) {
			return nil, fmt.Errorf("a piece of %d bytes at %d of output %d, %d bytes are left", v[2],
				v[1], v[0], len(content))
		}
		out = append(out, piece{int(v[0]), int64(v[1]), content[:v[2]]})
		content = content[v[2]:]
	}
	return out, nil
}
