package batch_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/cache/disk"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/fuse/fusetest"
)

// diskRunner is a runner with a prefix cache of so many bytes, which evicts to a folder. end closes both.
func diskRunner(t *testing.T, m *ir.Module, dir, program string, prefix int64) (r *batch.Runner, end func()) {
	t.Helper()
	f, err := disk.Open(dir, disk.Options{Limit: 1 << 30, Failed: func(err error) { t.Error(err) }})
	require.NoError(t, err)
	x, err := batch.NewRagged(m, cpu.Engine{}, batch.RaggedOptions{Rows: 16, Sequences: 4, BlockRows: 4,
		Engine: engine.Options{Precision: eval.Mixed}})
	require.NoError(t, err)
	require.True(t, batch.UsesDisk(x))
	budget := x.Layout().Bytes(x.Units())
	if prefix == 0 {
		prefix = budget / 2
	}
	r, err = batch.New(x, batch.Options{Queue: 10, Budget: budget, Prefix: prefix, Disk: f, DiskProgram: program})
	require.NoError(t, err)
	end = func() {
		require.NoError(t, r.Close())
		require.NoError(t, f.Close())
	}
	t.Cleanup(end)
	return r, end
}

// TestPrefixesOnDisk: what a runner evicts, and what it has at its end, another one finds, and answers as if it had
// computed it; a runner of another program does not.
func TestPrefixesOnDisk(t *testing.T) {
	for name, graph := range map[string]string{"windows": "etc-gemma4-chat-sample", "hybrid": "etc-qwen35moe-chat-sample"} {
		t.Run(name, func(t *testing.T) {
			m := fusetest.Load(t, graph)
			dir := t.TempDir()
			q := plain()
			for _, id := range ids(0, 19) {
				q.Prompt = append(q.Prompt, int(id))
			}
			q.MaxTokens, q.Marks, q.Stop = 6, []int{18}, nil
			want, _ := ask(t, raggedRunner(t, m, cpu.Engine{}, eval.Mixed), q)

			r, end := diskRunner(t, m, dir, "one", 1) // evicts all that nobody uses
			got, last := ask(t, r, q)
			require.Zero(t, last.Cached)
			require.Equal(t, want, got)
			got, last = ask(t, r, q)
			require.Equal(t, 18, last.Cached, "from the folder, in the same runner")
			require.Equal(t, want, got)
			requireIdle(t, r)
			end()

			r, end = diskRunner(t, m, dir, "two", 0)
			got, last = ask(t, r, q)
			require.Zero(t, last.Cached)
			require.Equal(t, want, got)
			end() // stores what it has

			for _, program := range []string{"one", "two"} {
				r, end = diskRunner(t, m, dir, program, 0)
				got, last = ask(t, r, q)
				require.Equal(t, 18, last.Cached, program)
				require.Equal(t, want, got)
				end()
			}

			// Damaged files are as good as none.
			files, err := filepath.Glob(filepath.Join(dir, "*.prefix"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			for _, file := range files {
				require.NoError(t, os.Truncate(file, 20))
			}
			r, end = diskRunner(t, m, dir, "one", 0)
			got, last = ask(t, r, q)
			require.Zero(t, last.Cached)
			require.Equal(t, want, got)
			requireIdle(t, r)
			end()
		})
	}
}
