package codegen_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/container"
)

// entries is the module of testdata that has two.
func entries(t *testing.T) *ir.Module {
	text, err := os.ReadFile("testdata/entries.ir")
	require.NoError(t, err)
	return parse(t, string(text))
}

// TestEntries: a method for each entry, before the constant methods; each weight is stored once, whoever uses it, and
// each graph has what its entry needs and no more.
func TestEntries(t *testing.T) {
	m := entries(t)
	path, _ := write(t, codegen.File{Module: m})
	p := open(t, path)
	require.Equal(t, []string{"forward", "draft"}, p.Methods())
	var methods []string
	for _, k := range p.File.Methods() {
		methods = append(methods, k.Name)
	}
	require.Equal(t, []string{"forward", "draft", "get_max_seq_len", "use_kv_cache"}, methods)

	named := p.File.NamedData()
	require.Len(t, named, len(m.Constants))
	segments := map[int]bool{}
	for i, c := range m.Constants {
		require.Equal(t, c.Name, named[i].Key)
		require.False(t, segments[named[i].Segment], "%s has a segment of its own", c.Name)
		segments[named[i].Segment] = true
	}
	require.Len(t, p.File.Segments(), 1+len(m.Entries())+len(m.Constants), "the empty one, two graphs, the weights")

	for name, want := range map[string]struct{ constants, buffers string }{
		"forward": {"embedding.packed embedding.scales embedding.biases norm zero unused", "sum"},
		"draft":   {"embedding.packed embedding.scales embedding.biases zero draft.norm draft.zero", "sum draft.sum"},
	} {
		one := lifted(t, p, name)
		require.Equal(t, name, one.Entry.Name)
		require.Empty(t, one.More)
		var constants, buffers []string
		for _, c := range one.Constants {
			constants = append(constants, c.Name)
		}
		for _, b := range one.Buffers {
			buffers = append(buffers, b.Name)
		}
		require.Equal(t, strings.Fields(want.constants), constants)
		require.Equal(t, strings.Fields(want.buffers), buffers)
	}
}

// TestEntryStaysAsItWas: the graph of forward in a file with a draft is that of the module without the draft.
func TestEntryStaysAsItWas(t *testing.T) {
	m := entries(t)
	parts, err := m.Parts()
	require.NoError(t, err)
	for i, part := range parts {
		both, _ := write(t, codegen.File{Module: m})
		alone, _ := write(t, codegen.File{Module: part})
		name := m.Entries()[i].Name
		a, okA := open(t, both).File.Method(name)
		b, okB := open(t, alone).File.Method(name)
		require.True(t, okA && okB)
		require.Equal(t, b.Delegates[0].Payload, a.Delegates[0].Payload)
		require.Equal(t, b.Values, a.Values)
		require.Equal(t, []string{container.MLXBackend}, []string{a.Delegates[0].ID})
	}
}

// TestEntriesRefused: what the writer does not take.
func TestEntriesRefused(t *testing.T) {
	m := entries(t)
	_, err := codegen.Encode(m)
	require.EqualError(t, err, "a module of 2 entries has a graph for each of them; encode its parts")
	slices.Reverse(m.Buffers)
	_, err = codegen.Plan(codegen.File{Module: m})
	require.ErrorContains(t, err, "the buffers do not stand in the order of the entries that need them")
	m = entries(t)
	m.Metadata = append(m.Metadata, ir.Method{Name: "draft", Values: []any{int64(1)}})
	_, err = codegen.Plan(codegen.File{Module: m})
	require.EqualError(t, err, "method draft is an entry and a constant method")
}

// TestEntriesJSON: the textual form has the graph of every entry.
func TestEntriesJSON(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, codegen.WriteJSON(&b, codegen.File{Module: entries(t)}))
	type graph struct {
		MutableBuffers int `json:"num_mutable_buffer_tensors"`
	}
	var got struct {
		Delegate  graph
		Delegates map[string]graph
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &got))
	require.Equal(t, graph{1}, got.Delegate)
	require.Equal(t, map[string]graph{"draft": {2}}, got.Delegates)
}
