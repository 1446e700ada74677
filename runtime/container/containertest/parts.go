package containertest

import (
	"fmt"
	"slices"

	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/schema"
	"github.com/etc-ml/etc/schema/mlxgraph"
	wire "github.com/etc-ml/etc/schema/program"
)

// Parts is a file taken apart. All of it may be changed.
type Parts struct {
	// Program is the file's program, without its segments, which Bytes makes of Segments.
	Program *wire.ProgramT
	// Graph is the graph of the only delegate. Bytes writes its segment.
	Graph    *mlxgraph.MLXGraphT
	Segments [][]byte
	payload  int // the segment of the graph
}

// TakeApart reads a file with one delegate. The data is not changed when the parts are.
func TakeApart(name string, data []byte) (*Parts, error) {
	f, err := container.OpenBytes(name, slices.Clone(data)) // parts of what is unpacked are views of it
	if err != nil {
		return nil, err
	}
	p := &Parts{Program: f.Program().UnPack()}
	for i := range f.Segments() {
		p.Segments = append(p.Segments, f.SegmentBytes(i))
	}
	for _, plan := range p.Program.ExecutionPlan {
		for _, d := range plan.Delegates {
			p.payload = int(d.Processed.Index)
			graph, err := schema.MLXGraphBytes(p.Segments[p.payload])
			if err != nil {
				return nil, err
			}
			p.Graph = mlxgraph.GetRootAsMLXGraph(graph, 0).UnPack()
		}
	}
	if p.Graph == nil {
		return nil, fmt.Errorf("%s: no delegate", name)
	}
	return p, nil
}

// Bytes puts the file together again, each segment at a multiple of alignment, a power of two. An error says what the
// wire cannot hold.
func (p *Parts) Bytes(alignment int) ([]byte, error) {
	graph, err := schema.Marshal(schema.MLXGraph(), p.Graph)
	if err != nil {
		return nil, err
	}
	p.Segments[p.payload] = schema.MLXPayload(graph)
	p.Program.Segments = nil
	var data []byte
	for _, s := range p.Segments {
		p.Program.Segments = append(p.Program.Segments,
			&wire.DataSegmentT{Offset: uint64(len(data)), Size: uint64(len(s))})
		data = append(data, s...)
		data = append(data, make([]byte, -len(data)&(alignment-1))...)
	}
	head, err := schema.Marshal(schema.Program(), p.Program)
	if err != nil {
		return nil, err
	}
	out, header := schema.WithExtendedHeader(head, uint64(len(data)), func(n uint64) uint64 { return (n + 127) &^ 127 })
	out = append(out, make([]byte, header.SegmentBase-header.ProgramSize)...)
	return append(out, data...), nil
}
