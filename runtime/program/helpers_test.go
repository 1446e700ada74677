package program

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/schema"
	"github.com/etc-ml/etc/schema/mlxgraph"
	wire "github.com/etc-ml/etc/schema/program"
)

// files are the programs that others have written, by name.
func files(t testing.TB) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob("../container/testdata/*.pte")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	out := map[string][]byte{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		out[filepath.Base(path)] = b
	}
	return out
}

// openBytes opens a file in memory.
func openBytes(t testing.TB, name string, data []byte) *Program {
	t.Helper()
	f, err := container.OpenBytes(name, data)
	require.NoError(t, err)
	p, err := New(f)
	require.NoError(t, err)
	return p
}

// parts is a file taken apart: the program, the graph of its only delegate and its segments.
type parts struct {
	program  *wire.ProgramT
	graph    *mlxgraph.MLXGraphT
	segments [][]byte
	payload  int // the segment of the graph
}

// takeApart reads a file whose first method calls one delegate.
func takeApart(t testing.TB, data []byte) *parts {
	t.Helper()
	f, err := container.OpenBytes("test.pte", data)
	require.NoError(t, err)
	p := &parts{program: f.Program().UnPack()}
	for i := range f.Segments() {
		p.segments = append(p.segments, f.SegmentBytes(i))
	}
	for _, plan := range p.program.ExecutionPlan {
		for _, d := range plan.Delegates {
			p.payload = int(d.Processed.Index)
			graph, err := schema.MLXGraphBytes(p.segments[p.payload])
			require.NoError(t, err)
			p.graph = mlxgraph.GetRootAsMLXGraph(graph, 0).UnPack()
		}
	}
	require.NotNil(t, p.graph)
	return p
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
		data = append(data, make([]byte, -len(data)&15)...)
	}
	head, err := schema.Marshal(schema.Program(), p.program)
	if err != nil {
		return nil, err
	}
	out, header := schema.WithExtendedHeader(head, uint64(len(data)), func(n uint64) uint64 { return (n + 127) &^ 127 })
	out = append(out, make([]byte, header.SegmentBase-header.ProgramSize)...)
	return append(out, data...), nil
}
