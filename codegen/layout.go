package codegen

import (
	"fmt"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/schema"
	"github.com/etc-ml/etc/schema/program"
)

const (
	// pageAlignment is the alignment of the segment base and of large segments: Apple's page size, so
	// that each can be mapped into a GPU buffer without a copy.
	pageAlignment = 16 << 10
	// largeSegment is the size from which a segment is page-aligned.
	largeSegment = 64 << 10
	// smallAlignment is the alignment of the other segments, as in ExecuTorch's exporter.
	smallAlignment = 128
)

// segment is a piece of the file after the program.
type segment struct {
	offset, size int64
	bytes        []byte  // the content, where the layout knows it
	data         ir.Data // the content, where it is computed while the file is written: a weight
	record       *Record // the content, where it is the build record
	hashes       []int   // offsets of the record's fields that hold the SHA-256 of this segment
}

// extent is a range of the file.
type extent struct{ offset, size int64 }

// Layout says where in a file everything lies: the offset and size of program and segments.
type Layout struct {
	// Program is the FlatBuffer with its headers, at the start of the file.
	Program []byte
	// Base is the offset of the first segment; the program gives offsets of segments relative to it.
	Base int64
	// Size is the size of the file.
	Size     int64
	segments []*segment
	graphs   int // the number of segments with delegate graphs, which come first after the constant segment
}

// Plan computes the layout of a file. Every offset follows from shapes, so no weight is read.
func Plan(f File) (*Layout, error) {
	b := layoutBuilder{Layout: &Layout{}, keys: map[string]int{}, program: &program.ProgramT{
		ConstantBuffer:      []*program.BufferT{},
		BackendDelegateData: []*program.BackendDelegateInlineDataT{},
		ConstantSegment:     &program.SubsegmentOffsetsT{Offsets: []uint64{0}},
		MutableDataSegments: []*program.SubsegmentOffsetsT{},
		NamedData:           []*program.NamedDataT{},
	}}
	b.add(&segment{}) // the constant segment, which delegates leave empty
	if err := b.methods(f.Module); err != nil {
		return nil, err
	}
	if err := b.constants(f.Module.Constants); err != nil {
		return nil, err
	}
	if err := b.others(f); err != nil {
		return nil, err
	}
	l, p := b.Layout, b.program
	for _, s := range l.segments {
		p.Segments = append(p.Segments, &program.DataSegmentT{Offset: uint64(s.offset), Size: uint64(s.size)})
	}
	last := l.segments[len(l.segments)-1]
	data := last.offset + last.size
	raw, err := schema.Marshal(schema.Program(), p)
	if err != nil {
		return nil, fmt.Errorf("program: %w", err)
	}
	bytes, header := schema.WithExtendedHeader(raw, uint64(data), func(size uint64) uint64 {
		return uint64(align(int64(size), pageAlignment))
	})
	l.Program, l.Base, l.Size = bytes, int64(header.SegmentBase), int64(header.SegmentBase)+data
	for _, s := range l.segments {
		s.offset += l.Base
	}
	return l, nil
}

// layoutBuilder assigns offsets to segments, one after the other, and lists them in the program.
type layoutBuilder struct {
	*Layout
	program *program.ProgramT
	keys    map[string]int // segments by their names
}

// add appends a segment and returns its number.
func (b *layoutBuilder) add(s *segment) int {
	offset := int64(0)
	if n := len(b.segments); n > 0 {
		offset = b.segments[n-1].offset + b.segments[n-1].size
	}
	alignment := int64(smallAlignment)
	if s.size >= largeSegment {
		alignment = pageAlignment
	}
	s.offset = align(offset, alignment)
	b.segments = append(b.segments, s)
	return len(b.segments) - 1
}

// name makes a segment named data.
func (b *layoutBuilder) name(key string, segment int) error {
	if key == StoredProgram {
		return fmt.Errorf("named data %q: the name stands for the program", key)
	}
	if _, twice := b.keys[key]; twice {
		return fmt.Errorf("named data %q stands twice", key)
	}
	b.keys[key] = segment
	b.program.NamedData = append(b.program.NamedData, &program.NamedDataT{Key: key, SegmentIndex: uint32(segment)})
	return nil
}

// methods adds the entries, each with a segment of its graph, and the constant methods.
func (b *layoutBuilder) methods(m *ir.Module) error {
	parts, err := m.Parts()
	if err != nil {
		return err
	}
	payloads := make([][]byte, len(parts))
	for i, part := range parts {
		graph, err := Encode(part)
		if err != nil {
			return err
		}
		buf, err := schema.Marshal(schema.MLXGraph(), graph)
		if err != nil {
			return fmt.Errorf("delegate graph of %s: %w", part.Entry.Name, err)
		}
		payloads[i] = schema.MLXPayload(buf)
	}
	entries := map[string]bool{}
	for i, part := range parts {
		plan, err := entryPlan(part.Entry, b.add(&segment{size: int64(len(payloads[i])), bytes: payloads[i]}))
		if err != nil {
			return err
		}
		b.program.ExecutionPlan = append(b.program.ExecutionPlan, plan)
		entries[part.Entry.Name] = true
	}
	b.graphs = len(parts)
	for _, c := range m.Metadata {
		if entries[c.Name] {
			return fmt.Errorf("method %s is an entry and a constant method", c.Name)
		}
		plan, err := methodPlan(c)
		if err != nil {
			return err
		}
		b.program.ExecutionPlan = append(b.program.ExecutionPlan, plan)
	}
	return nil
}

// constants adds the weights. Equal ones, by their provenance, are stored once.
func (b *layoutBuilder) constants(list []*ir.Constant) error {
	stored := map[string]int{} // segments by provenance
	for _, c := range list {
		if c.Data == nil {
			return fmt.Errorf("constant @%s has no bytes", c.Name)
		}
		key := c.Data.Provenance()
		at, known := stored[key]
		if !known {
			at = b.add(&segment{size: ir.DataSize(c.Data), data: c.Data})
			stored[key] = at
		}
		if err := b.name(c.Name, at); err != nil {
			return err
		}
	}
	return nil
}

// others adds what belongs to the file and is no weight: extra data, and the build record.
func (b *layoutBuilder) others(f File) error {
	for _, x := range f.Extra {
		if err := b.name(x.Key, b.add(&segment{size: int64(len(x.Bytes)), bytes: x.Bytes})); err != nil {
			return err
		}
	}
	if f.Record == nil {
		return nil
	}
	if err := f.Record.check(); err != nil {
		return err
	}
	if err := b.name(f.Record.Key, b.add(&segment{size: int64(len(f.Record.Bytes)), record: f.Record})); err != nil {
		return err
	}
	return b.hashedSegments(f.Record, b.keys)
}
