package codegen

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"

	"github.com/etc-ml/etc/internal/outfile"
)

// A part file holds some ranges of a file, for [Link] to put them together:
//
//	8 bytes   "etcpart1"
//	8 bytes   length of the header, little-endian
//	header    JSON (partHeader), then zeros up to a multiple of 4 KiB
//	ranges    one after the other, in the order of the file
//	32 bytes  the root hash (RootHash) of all of the above
const (
	partMagic     = "etcpart1"
	partAlignment = 4 << 10
	partTrailer   = 32
	// maxPartHeader bounds the bytes that are read of a header.
	maxPartHeader = 64 << 20
	// MaxParts bounds the number of parts of a file.
	MaxParts = 1 << 16
)

type partHeader struct {
	// Plan is the hash of the layout of the file, Identity what else its bytes follow from; both are the same
	// in all parts.
	Plan     string     `json:"plan"`
	Identity []Property `json:"identity"`
	Size     int64      `json:"size"`
	// Part is from 1 to Parts.
	Part  int `json:"part"`
	Parts int `json:"parts"`
	// Extents are offset and size of the ranges, ascending.
	Extents [][2]int64 `json:"extents"`
}

// PartError is a part file that is none, or one that does not go with the others.
type PartError struct{ Path, Problem string }

func (e *PartError) Error() string { return e.Path + ": " + e.Problem }

// WritePart writes part number part, from 1, of parts of a file under path: the weights that this part is of,
// and their hashes for the record. All parts together are linked to the very bytes that [Write] gives. A weight
// is never cut in two, so there are no more parts of use than weights. What is said of interruption in [Write]
// goes for parts too.
func WritePart(ctx context.Context, path string, f File, part, parts int) error {
	if part < 1 || part > parts || parts > MaxParts {
		return fmt.Errorf("%s: part %d of %d, want one of 1 to %d of at most %d", path, part, parts, parts, MaxParts)
	}
	l, err := Plan(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	tasks, extents := choosePart(l.tasks(), part, parts)
	h := partHeader{Plan: l.hash(), Identity: []Property{}, Size: l.Size, Part: part,
		Parts: parts, Extents: [][2]int64{}}
	for _, p := range f.Identity {
		if !p.Local {
			h.Identity = append(h.Identity, p)
		}
	}
	for _, e := range extents {
		h.Extents = append(h.Extents, [2]int64{e.offset, e.size})
	}
	header, err := encodePartHeader(h)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	at, end := placeExtents(extents, int64(len(header)))
	return write(ctx, path, f, image{size: end + partTrailer,
		key: fmt.Sprintf("%s, part %d of %d", l.hash(), part,
			parts), tasks: tasks, at: at, finish: func(out outfile.File) error {
			if _, err := out.WriteAt(header, 0); err != nil {
				return err
			}
			root, err := partRoot(ctx, out, end, f.Workers())
			if err != nil {
				return err
			}
			_, err = out.WriteAt(root, end)
			return err
		}})
}

// choosePart returns the tasks of a part, numbered anew, and the ranges that they write. Parts are sections of the list
// of tasks. The list has a weight next to the hashes of its sources, so a part reads only the files that it needs. All
// arithmetic is in integers, because parts may be made on machines of different kinds.
func choosePart(all []task, part, parts int) ([]task, []extent) {
	var total [2]int64 // of writing, and of the record's fields, which count for one half each
	kind := func(t task) int {
		if t.field {
			return 1
		}
		return 0
	}
	for _, t := range all {
		total[kind(t)] += t.size
	}
	cost := map[*group]int64{}
	var order []*group
	for _, t := range all {
		if _, known := cost[t.group]; !known {
			order = append(order, t.group)
		}
		cost[t.group] += t.size
	}
	fields := map[*group]int{}
	for _, t := range all {
		fields[t.group] = kind(t)
	}
	const unit = 1 << 20
	sum := int64(0)
	for _, g := range order {
		n := max(total[fields[g]], 1)
		cost[g] = cost[g]/n*unit + cost[g]%n*unit/n // cost·unit/n; the sizes are less than 2^43
		sum += cost[g]
	}
	chosen := map[*group]bool{}
	before := int64(0)
	for _, g := range order {
		middle := before + cost[g]/2
		if min(middle*int64(parts)/max(sum, 1), int64(parts-1)) == int64(part-1) {
			chosen[g] = true
		}
		before += cost[g]
	}
	var tasks []task
	var extents []extent
	taken := map[*group]bool{}
	for _, t := range all {
		if !chosen[t.group] {
			continue
		}
		t.id = len(tasks)
		tasks = append(tasks, t)
		if !taken[t.group] {
			taken[t.group] = true
			extents = append(extents, t.group.extents...)
		}
	}
	return tasks, mergeExtents(extents)
}

// mergeExtents sorts ranges and joins those that touch. Empty ones are dropped.
func mergeExtents(extents []extent) []extent {
	slices.SortFunc(extents, func(a, b extent) int { return cmp.Compare(a.offset, b.offset) })
	var out []extent
	for _, e := range extents {
		if n := len(out); e.size > 0 && n > 0 && out[n-1].offset+out[n-1].size == e.offset {
			out[n-1].size += e.size
		} else if e.size > 0 {
			out = append(out, e)
		}
	}
	return out
}

// placeExtents puts ranges one after the other from start on: where a byte of the file lies, and their end.
func placeExtents(extents []extent, start int64) (at func(int64) int64, end int64) {
	places := make([]int64, len(extents))
	end = start
	for i, e := range extents {
		places[i] = end
		end += e.size
	}
	return func(offset int64) int64 {
		i := sort.Search(len(extents), func(i int) bool { return extents[i].offset > offset }) - 1
		return places[i] + offset - extents[i].offset
	}, end
}

func encodePartHeader(h partHeader) ([]byte, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	if len(text) > maxPartHeader {
		return nil, fmt.Errorf("a header of %d bytes, at most %d can be read", len(text), maxPartHeader)
	}
	out := append([]byte(partMagic), binary.LittleEndian.AppendUint64(nil, uint64(len(text)))...)
	out = append(out, text...)
	return append(out, make([]byte, align(int64(len(out)), partAlignment)-int64(len(out)))...), nil
}

// partRoot returns the root hash of the first bytes of a part file.
func partRoot(ctx context.Context, r io.ReaderAt, size int64, jobs int) ([]byte, error) {
	root, err := RootHash(ctx, r, size, jobs)
	if err != nil {
		return nil, err
	}
	return hex.DecodeString(root)
}

// readPartHeader reads and checks the header of a part file of a size: every range lies in the file that the part
// is of, and what the ranges hold in the part.
func readPartHeader(r io.ReaderAt, size int64) (h partHeader, start int64, err error) {
	var head [16]byte
	if size < int64(len(head)) {
		return h, 0, fmt.Errorf("expected a part file, found %d bytes", size)
	}
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return h, 0, err
	}
	if string(head[:8]) != partMagic {
		return h, 0, fmt.Errorf("expected a part file, which begins with %q, found %q", partMagic, head[:8])
	}
	length := binary.LittleEndian.Uint64(head[8:])
	if length > maxPartHeader || int64(length) > size-int64(len(head)) {
		return h, 0, fmt.Errorf("expected a header of at most %d bytes, found the length %d",
			min(maxPartHeader, size-int64(len(head))), length)
	}
	text := make([]byte, length)
	if _, err := r.ReadAt(text, int64(len(head))); err != nil {
		return h, 0, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		return h, 0, fmt.Errorf("the header: %w", err)
	}
	if h.Part < 1 || h.Part > h.Parts || h.Parts > MaxParts || h.Size < 0 {
		return h, 0, fmt.Errorf("the header: part %d of %d of a file of %d bytes", h.Part, h.Parts, h.Size)
	}
	start = align(int64(len(head))+int64(length), partAlignment)
	end, at := start, int64(0)
	for i, e := range h.Extents {
		if e[0] < at || e[1] <= 0 || e[1] > h.Size || e[0] > h.Size-e[1] {
			return h, 0, fmt.Errorf("the header: range %d of %d bytes at %d, want it in bytes %d to %d", i,
				e[1], e[0], at, h.Size)
		}
		at = e[0] + e[1]
		end += e[1]
	}
	if end != size-partTrailer {
		return h, 0, fmt.Errorf("expected %d bytes, as the header says, found %d", end+partTrailer, size)
	}
	return h, start, nil
}

// partFile is an open part.
type partFile struct {
	*os.File
	path   string
	header partHeader
	start  int64 // of the ranges
	size   int64
}

func openPart(path string) (*partFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("expected a part file, found no regular file")
	}
	p := &partFile{File: f, path: path}
	if err == nil {
		p.size = info.Size()
		p.header, p.start, err = readPartHeader(f, p.size)
	}
	if err != nil {
		return nil, errors.Join(&PartError{path, err.Error()}, f.Close())
	}
	return p, nil
}

// check computes the root hash of a part again.
func (p *partFile) check(ctx context.Context, jobs int) error {
	root, err := partRoot(ctx, p, p.size-partTrailer, jobs)
	if err != nil {
		return err
	}
	found := make([]byte, partTrailer)
	if _, err := p.ReadAt(found, p.size-partTrailer); err != nil {
		return err
	}
	if !bytes.Equal(root, found) {
		return &PartError{p.path, fmt.Sprintf("damaged: its root hash is %x, it says %x", root, found)}
	}
	return nil
}
