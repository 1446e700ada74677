//go:build (linux && !nocuda) || windows

package cuda

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUpload: parts of all sizes arrive, whatever slab and pieces they lie in, and their buffers are as Wrap's.
func TestUpload(t *testing.T) {
	d := open(t).(*gpu)
	d.slab = 3 << 20
	random := rand.New(rand.NewPCG(1, 2))
	var parts [][]byte
	for _, size := range []int{1, uploadPiece, uploadPiece + 1, 300, 3*uploadPiece - 7, 1 << 20, 1 << 20, 1} {
		p := make([]byte, size)
		for i := range p {
			p[i] = byte(random.Uint32())
		}
		parts = append(parts, p)
	}
	u, err := d.Upload(parts)
	require.NoError(t, err)
	for _, i := range []int{7, 0, 4, 1, 2, 3, 5, 6, 4} {
		b, err := u.Buffer(i)
		require.NoError(t, err)
		require.Equal(t, len(parts[i]), b.Size())
		got := make([]byte, len(parts[i]))
		require.NoError(t, b.Read(0, got))
		require.True(t, string(got) == string(parts[i]), "part %d", i)
		require.Error(t, b.Write(0, []byte{1}), "it is only read")
		if i != 4 {
			require.NoError(t, b.Close())
		}
	}
	require.NoError(t, u.Close())
	require.NoError(t, d.Close())
}

// TestUploadIsStopped: an upload that nobody waits for ends early, and gives its memory back.
func TestUploadIsStopped(t *testing.T) {
	d := open(t).(*gpu)
	u, err := d.Upload([][]byte{make([]byte, 64<<20), make([]byte, 64<<20)})
	require.NoError(t, err)
	require.NoError(t, u.Close())
	_, err = d.Upload([][]byte{{1}, nil})
	require.ErrorContains(t, err, "part 1 of an upload is empty")
	require.NoError(t, d.Close())
}

// TestUploadOfAFileThatWasCut: what cannot be read is an error of the parts that it belongs to or that come after it,
// not of the process.
func TestUploadOfAFileThatWasCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	require.NoError(t, os.WriteFile(path, make([]byte, 8<<20), 0o600))
	memory := mapped(t, path)
	require.NoError(t, os.Truncate(path, 4096))
	d := open(t).(*gpu)
	u, err := d.Upload([][]byte{memory[:4<<20], memory[4<<20:]})
	require.NoError(t, err)
	_, err = u.Buffer(1)
	require.ErrorContains(t, err, "the file was cut")
	require.NoError(t, u.Close())
	require.NoError(t, d.Close())
}
