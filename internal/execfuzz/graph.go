package execfuzz

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/schema"
	"github.com/etc-ml/etc/schema/mlxgraph"
	wire "github.com/etc-ml/etc/schema/program"
)

// Seed is a file that mutants are made of.
type Seed struct {
	Name  string
	Bytes []byte
}

// parts is a file taken apart: the program, the graph of its only delegate and its segments.
type parts struct {
	program  *wire.ProgramT
	graph    *mlxgraph.MLXGraphT
	segments [][]byte
	payload  int // the segment of the graph
}

// takeApart reads a file with one delegate.
func takeApart(s Seed) (*parts, error) {
	f, err := container.OpenBytes(s.Name, slices.Clone(s.Bytes)) // parts of what is unpacked are views of it
	if err != nil {
		return nil, err
	}
	p := &parts{program: f.Program().UnPack()}
	for i := range f.Segments() {
		p.segments = append(p.segments, f.SegmentBytes(i))
	}
	for _, plan := range p.program.ExecutionPlan {
		for _, d := range plan.Delegates {
			p.payload = int(d.Processed.Index)
			graph, err := schema.MLXGraphBytes(p.segments[p.payload])
			if err != nil {
				return nil, err
			}
			p.graph = mlxgraph.GetRootAsMLXGraph(graph, 0).UnPack()
		}
	}
	if p.graph == nil {
		return nil, fmt.Errorf("%s: no delegate", s.Name)
	}
	return p, nil
}

// bytes puts the file together again; an error says what the wire cannot hold.
func (p *parts) bytes() ([]byte, error) {
	graph, err := schema.Marshal(schema.MLXGraph(), p.graph)
	if err != nil {
		return nil, err
	}
	p.segments[p.payload] = schema.MLXPayload(graph)
	p.program.Segments = nil
	var data []byte
	for _, s := range p.segments {
		p.program.Segments = append(p.program.Segments, &wire.DataSegmentT{Offset: uint64(len(data)), Size: uint64(len(s))})
		data = append(data, s...)
		data = append(data, make([]byte, -len(data)&127)...)
	}
	head, err := schema.Marshal(schema.Program(), p.program)
	if err != nil {
		return nil, err
	}
	out, header := schema.WithExtendedHeader(head, uint64(len(data)), func(n uint64) uint64 { return (n + 127) &^ 127 })
	out = append(out, make([]byte, header.SegmentBase-header.ProgramSize)...)
	return append(out, data...), nil
}
