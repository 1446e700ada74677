package codegen_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/codegen"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/program"
)

// parse reads a module and gives its constants random bytes, other ones for every constant.
func parse(t testing.TB, text string) *ir.Module {
	t.Helper()
	m, err := ir.Parse(text)
	require.NoError(t, err)
	for i, c := range m.Constants {
		dims, _ := c.Value.Type.Static()
		p := make([]byte, ir.Elements(dims)*int64(c.Value.Type.DType.Size()))
		r := rand.NewPCG(uint64(i), 5)
		for j := range p {
			p[j] = byte(r.Uint64())
			if c.Value.Type.DType == ir.Bool {
				p[j] &= 1
			}
		}
		c.Data = ir.Bytes(c.Value.Type.DType, dims, p)
	}
	return m
}

// write writes a file with one worker and gives its path and its bytes.
func write(t testing.TB, f codegen.File) (string, []byte) {
	t.Helper()
	if f.Jobs == 0 {
		f.Jobs = 1
	}
	path := filepath.Join(t.TempDir(), "model.pte")
	require.NoError(t, codegen.Write(t.Context(), path, f))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return path, b
}

// open opens a file, which every check of the container must accept.
func open(t testing.TB, path string) *program.Program {
	t.Helper()
	p, err := program.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	return p
}

// lifted gives the module of a file's method.
func lifted(t testing.TB, p *program.Program, method string) *ir.Module {
	t.Helper()
	m, err := p.Module(method)
	require.NoError(t, err)
	return m
}

// requireSameConstants compares the bytes of the constants of two modules.
func requireSameConstants(t testing.TB, want, got *ir.Module) {
	t.Helper()
	require.Equal(t, len(want.Constants), len(got.Constants))
	for i, c := range want.Constants {
		a, err := ir.ReadData(c.Data)
		require.NoError(t, err)
		b, err := ir.ReadData(got.Constants[i].Data)
		require.NoError(t, err)
		require.Equal(t, a, b, c.Name)
	}
}

// requireRoundTrip writes a module, lifts the file to the same module, and writes it again from its text
// and the file's weights to the same bytes.
func requireRoundTrip(t testing.TB, f codegen.File) (*program.Program, []byte) {
	t.Helper()
	path, want := write(t, f)
	p := open(t, path)
	m, err := p.Whole(f.Module.Entry.Name)
	require.NoError(t, err)
	require.Equal(t, f.Module.String(), m.String())
	requireSameConstants(t, f.Module, m)

	again, err := ir.Parse(m.String())
	require.NoError(t, err)
	require.NoError(t, p.Bind(again))
	second := f
	second.Module = again
	_, got := write(t, second)
	requireSameBytes(t, want, got)
	return p, want
}

func requireSameBytes(t testing.TB, want, got []byte) {
	t.Helper()
	require.Equal(t, len(want), len(got))
	for i := range want {
		if want[i] != got[i] {
			require.Fail(t, "the files differ",
				fmt.Sprintf("first at byte %d of %d: %#x and %#x", i, len(want), want[i], got[i]))
		}
	}
}
