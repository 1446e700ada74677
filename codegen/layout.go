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
	// smallAlignment is that of the others, as ExecuTorch's exporter has it.
	smallAlignment = 128
)

// segment is a piece of the file after the program.
type segment struct {
	offset, size int64
	bytes        []byte  // known at layout time
	data         ir.Data // streamed
	record       *Record // its bytes are known but for its fields
	hashes       []int   // offsets of the fields of the record that are its SHA-256
}

// extent is a range of the file.
type extent struct{ offset, size int64 }

// Layout is where everything of a file lies.
type Layout struct {
	// Program is the FlatBuffer with its headers, at the start of the file.
	Program []byte
	// Base is the offset that segments count from.
	Base int64
	// Size is the size of the file.
	Size     int64
	segments []*segment
	graphs   int // segments of delegate graphs, after the constant segment
}

// Plan lays a file out: every offset follows from shapes, nothing is read.
func Plan(f File) (*Layout, error) {
	parts, err := f.Module.Parts()
	if err != nil {
		return nil, err
	}
	payloads := make([][]byte, len(parts))
	for i, part := range parts {
		graph, err := Encode(part)
		if err != nil {
			return nil, err
		}
		buf, err := schema.Marshal(schema.MLXGraph(), graph)
		if err != nil {
			return nil, fmt.Errorf("delegate graph of %s: %w", part.Entry.Name, err)
		}
		payloads[i] = schema.MLXPayload(buf)
	}
	l := &Layout{}
	add := func(s *segment) int {
		offset := int64(0)
		if n := len(l.segments); n > 0 {
			offset = l.segments[n-1].offset + l.segments[n-1].size
		}
		alignment := int64(smallAlignment)
		if s.size >= largeSegment {
			alignment = pageAlignment
		}
		s.offset = align(offset, alignment)
		l.segments = append(l.segments, s)
		return len(l.segments) - 1
	}
	add(&segment{}) // the constant segment, which delegates leave empty
	p := &program.ProgramT{
		ConstantBuffer:      []*program.BufferT{},
		BackendDelegateData: []*program.BackendDelegateInlineDataT{},
		ConstantSegment:     &program.SubsegmentOffsetsT{Offsets: []uint64{0}},
		MutableDataSegments: []*program.SubsegmentOffsetsT{},
		NamedData:           []*program.NamedDataT{},
	}
	methods := map[string]bool{}
	for i, part := range parts {
		plan, err := entryPlan(part.Entry, add(&segment{size: int64(len(payloads[i])), bytes: payloads[i]}))
		if err != nil {
			return nil, err
		}
		p.ExecutionPlan = append(p.ExecutionPlan, plan)
		methods[part.Entry.Name] = true
	}
	l.graphs = len(parts)
	for _, m := range f.Module.Metadata {
		if methods[m.Name] {
			return nil, fmt.Errorf("method %s is an entry and a constant method", m.Name)
		}
		plan, err := methodPlan(m)
		if err != nil {
			return nil, err
		}
		p.ExecutionPlan = append(p.ExecutionPlan, plan)
	}
	keys := map[string]int{} // segment by key
	name := func(key string, segment int) error {
		if key == StoredProgram {
			return fmt.Errorf("named data %q: the name stands for the program", key)
		}
		if _, twice := keys[key]; twice {
			return fmt.Errorf("named data %q stands twice", key)
		}
		keys[key] = segment
		p.NamedData = append(p.NamedData, &program.NamedDataT{Key: key, SegmentIndex: uint32(segment)})
		return nil
	}
	stored := map[string]int{} // segment by provenance: equal weights are stored once
	for _, c := range f.Module.Constants {
		if c.Data == nil {
			return nil, fmt.Errorf("constant @%s has no bytes", c.Name)
		}
		key := c.Data.Provenance()
		at, known := stored[key]
		if !known {
			at = add(&segment{size: ir.DataSize(c.Data), data: c.Data})
			stored[key] = at
		}
		if err := name(c.Name, at); err != nil {
			return nil, err
		}
	}
	for _, x := range f.Extra {
		if err := name(x.Key, add(&segment{size: int64(len(x.Bytes)), bytes: x.Bytes})); err != nil {
			return nil, err
		}
	}
	if f.Record != nil {
		if err := f.Record.check(); err != nil {
			return nil, err
		}
		if err := name(f.Record.Key, add(&segment{size: int64(len(f.Record.Bytes)), record: f.Record})); err != nil {
			return nil, err
		}
		if err := l.hashedSegments(f.Record, keys); err != nil {
			return nil, err
		}
	}
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
