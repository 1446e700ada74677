package tensorfile_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/internal/tensorfile"
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// What is written is read back bit for bit, in every dtype; an integer is a tensor of no dims.
func TestReadBack(t *testing.T) {
	var entries []safetensors.Entry
	want := map[string]eval.Value{"int": {Int: -5}}
	for _, d := range []ir.DType{ir.Bool, ir.U8, ir.I8, ir.U16, ir.I16, ir.U32, ir.I32, ir.I64, ir.F16, ir.BF16, ir.F32} {
		v, err := eval.NewTensor(d, 2)
		require.NoError(t, err)
		if d.IsFloat() {
			v.F[1] = 1.5
		} else {
			v.I[1] = 1
		}
		want[d.String()] = eval.Value{Tensor: v}
		named, ok := tensorfile.DTypeNamed(d.String())
		require.True(t, ok)
		require.Equal(t, d, named)
	}
	for name, v := range want {
		entries = append(entries, tensorfile.Entry(name, v))
	}
	path := filepath.Join(t.TempDir(), "x.safetensors")
	var file bytes.Buffer
	require.NoError(t, safetensors.Write(&file, entries, nil))
	require.NoError(t, os.WriteFile(path, file.Bytes(), 0o600))
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for name, v := range want {
		got, err := tensorfile.Read(f, name)
		require.NoError(t, err, name)
		if v.Tensor == nil {
			require.Equal(t, []int64{v.Int}, got.I)
			require.Empty(t, got.Shape)
			continue
		}
		require.Equal(t, v.Tensor, got, name)
	}
	_, err = tensorfile.Read(f, "other")
	require.ErrorContains(t, err, `no tensor "other"`)
}
