package batch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/etc-ml/etc/runtime/cache"
)

// Disk keeps contents under names, for a prefix cache: disk.Folder is one. A name stands for one content for ever.
// Only the runner's goroutine calls it.
type Disk interface {
	// Has reports whether Get would find the name.
	Has(name string) bool
	// Put keeps a content, which is the disk's from then on, or forgets it.
	Put(name string, content []byte)
	// Get returns the content of a name. The caller may change it.
	Get(name string) ([]byte, error)
}

// diskTier puts blocks and checkpoints of a prefix cache on a disk: the parts of their units, one after the other.
type diskTier struct {
	exec PartSaver
	disk Disk
	id   string // begins all names: contents of other programs and forms have other ones
}

// UsesDisk reports whether a runner of this executor uses Options.Disk: whether the executor can copy parts of its
// state.
func UsesDisk(x Executor) bool {
	parted, ok := x.(PartSaver)
	if !ok || x.Limits().NoCopies {
		return false
	}
	_, err := parted.Parts(nil)
	return err == nil
}

// newDiskTier returns the tier of an executor, nil if there is no disk or the executor does without.
func newDiskTier(x Executor, o Options) cache.Tier {
	if o.Disk == nil || !UsesDisk(x) {
		return nil
	}
	parted := x.(PartSaver)
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", o.DiskProgram, parted.Form()))
	return &diskTier{exec: parted, disk: o.Disk, id: hex.EncodeToString(sum[:8])}
}

// name returns the name of a content: the program, the prefix of tokens, and what of it.
func (t *diskTier) name(k cache.Key) string {
	what := "block"
	if k.Checkpoint {
		what = "checkpoint"
	}
	return fmt.Sprintf("%s-%x-%s", t.id, k.Prefix, what)
}

// Has implements cache.Tier.
func (t *diskTier) Has(k cache.Key) bool { return t.disk.Has(t.name(k)) }

// Store implements cache.Tier. What the disk has already is not copied again.
func (t *diskTier) Store(k cache.Key, units []cache.Unit) {
	name := t.name(k)
	if t.disk.Has(name) {
		return
	}
	parts, err := t.exec.Parts(units)
	if err != nil {
		return
	}
	var all []byte
	for _, p := range parts {
		content, err := t.exec.SavePart(p)
		if err != nil {
			return
		}
		all = append(all, content...)
	}
	t.disk.Put(name, all)
}

// Load implements cache.Tier.
func (t *diskTier) Load(k cache.Key, units []cache.Unit) error {
	content, err := t.disk.Get(t.name(k))
	if err != nil {
		return err
	}
	parts, err := t.exec.Parts(units)
	if err != nil {
		return err
	}
	size := 0
	for _, p := range parts {
		size += p.Size()
	}
	if size != len(content) {
		return fmt.Errorf("%s has %d bytes, expected %d", t.name(k), len(content), size)
	}
	for _, p := range parts {
		if err := t.exec.RestorePart(p, content[:p.Size()]); err != nil {
			return err
		}
		content = content[p.Size():]
	}
	return nil
}
