//go:build (linux && !nocuda) || windows

package cuda

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/device/devicetest"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// open opens the first GPU, or the stand-in, with a cache of the test's own, or skips the test.
func open(t testing.TB) device.Device {
	checkStandIn(t, "")
	d, err := Open(Options{Cache: t.TempDir()})
	if errors.Is(err, device.ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	return d
}

func TestConformance(t *testing.T) {
	for name, overlap := range map[string]bool{"one after another": false, "early starts": true} {
		t.Run(name, func(t *testing.T) {
			devicetest.Run(t, func(t testing.TB) device.Device {
				d := open(t).(*gpu)
				if overlap && !d.overlap {
					t.Skip("the GPU or its driver has no programmatic dependent launch")
				}
				d.overlap = overlap
				return d
			})
		})
	}
}

func TestStartEarly(t *testing.T) {
	source := devicetest.Source(kernels.CUDA).Text
	text, ok := startEarly(source)
	require.True(t, ok)
	require.Equal(t, 6, strings.Count(text, "griddepcontrol.wait;"))
	require.Contains(t, text, "place_entry(float* y) {\n  asm volatile(\"griddepcontrol.launch_dependents;\"")
	without := regexp.MustCompile(`\n  asm volatile\("griddepcontrol\.(wait|launch_dependents);.*`).ReplaceAllString(
		text, "")
	require.True(t, without == source, "something else than the two instructions has changed")
	launch, err := kernels.Embedding{Format: kernels.Format{Bits: 16}, N: 8, K: 32, Multiplier: 1}.Launch(1)
	require.NoError(t, err)
	embedding, err := launch.Source(kernels.CUDA)
	require.NoError(t, err)
	_, ok = startEarly(embedding)
	require.True(t, ok, "the form of the entries has changed")
	launch, err = kernels.MatVec{Vectors: kernels.Vectors{Format: kernels.Format{Bits: 16}, K: 64, M: 1},
		N: 8}.Launch(kernels.Tuning{})
	require.NoError(t, err)
	product, err := launch.Source(kernels.CUDA)
	require.NoError(t, err)
	product, ok = startEarly(product)
	require.True(t, ok)
	require.Equal(t, 3, strings.Count(product, "griddepcontrol.launch_dependents;"))
	require.NotContains(t, product, "griddepcontrol.wait;", "its kernels wait by themselves")
	launch, err = kernels.Experts{Format: kernels.Format{Bits: 16}, Count: 4, Top: 2, Hidden: 64,
		Inner: 64}.LaunchUp(kernels.Tuning{}, 1)
	require.NoError(t, err)
	experts, err := launch.Source(kernels.CUDA)
	require.NoError(t, err)
	experts, ok = startEarly(experts)
	require.True(t, ok)
	require.NotContains(t, experts, "griddepcontrol.launch_dependents;", "its kernels release theirs by themselves")
	other := source + "\n__global__ void other() {}\n"
	text, ok = startEarly(other)
	require.False(t, ok)
	require.Equal(t, other, text)
}

func TestInfo(t *testing.T) {
	d := open(t)
	info := d.Info()
	t.Logf("%+v", info)
	require.NotZero(t, info.Memory)
	require.NotZero(t, info.Cores)
	require.GreaterOrEqual(t, info.ThreadgroupMemory, 48<<10)
	require.Equal(t, 1024, info.MaxThreads)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close(), "twice")
}

// A compiled kernel comes from the cache the second time, and a damaged file of the cache is made again.
func TestCache(t *testing.T) {
	d := open(t)
	defer func() { require.NoError(t, d.Close()) }()
	cache := d.(*gpu).compiler.cache
	compile := func() {
		library, err := d.Compile(devicetest.Source(kernels.CUDA))
		require.NoError(t, err)
		require.NoError(t, library.Close())
	}
	compile()
	found, err := filepath.Glob(filepath.Join(cache, "*"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	first, err := os.ReadFile(found[0])
	require.NoError(t, err)
	for _, damaged := range [][]byte{nil, first[:len(first)/2], append([]byte{first[0] ^ 1}, first[1:]...)} {
		require.NoError(t, os.WriteFile(found[0], damaged, 0o600))
		compile()
		again, err := os.ReadFile(found[0])
		require.NoError(t, err)
		require.True(t, bytes.Equal(first, again))
	}
}

func TestUnavailable(t *testing.T) {
	_, err := Open(Options{Device: 1 << 20})
	require.ErrorIs(t, err, device.ErrUnavailable)
	t.Log(err)
}

func TestChooseArchitecture(t *testing.T) {
	for _, c := range []struct {
		gpu       int32
		supported []int32
		want      int32
		name      string
		binary    bool
		err       string
	}{
		{80, []int32{75, 80, 86, 90}, 80, "sm_80", true, ""},
		{90, []int32{75, 80, 86, 90}, 90, "sm_90a", true, ""},
		{89, []int32{75, 80, 86, 90}, 86, "compute_86", false, ""},
		{120, []int32{80, 90, 100}, 100, "compute_100", false, ""},
		{75, []int32{75, 80}, 0, "", false, "the GPU has compute capability 7.5"},
		{90, []int32{70, 75}, 0, "", false, "8.0 (Ampere) is the least"},
	} {
		architecture, name, binary, err := chooseArchitecture(c.gpu, c.supported)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
			require.ErrorIs(t, err, device.ErrUnavailable)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, architecture)
		require.Equal(t, c.name, name)
		require.Equal(t, c.binary, binary)
	}
}

func TestFind(t *testing.T) {
	t.Setenv("ETC_TEST_LIBRARY", "")
	_, _, err := find("libetc-absent", []string{"libetc-absent.so"}, "ETC_TEST_LIBRARY")
	require.ErrorIs(t, err, device.ErrUnavailable)
	require.ErrorContains(t, err, "cuda: libetc-absent is needed")
	require.ErrorContains(t, err, "or name the file in ETC_TEST_LIBRARY")

	path := filepath.Join(t.TempDir(), "no-library")
	require.NoError(t, os.WriteFile(path, []byte("text"), 0o600))
	t.Setenv("ETC_TEST_LIBRARY", path)
	_, _, err = find("libetc-absent", []string{"libetc-absent.so"}, "ETC_TEST_LIBRARY")
	require.ErrorContains(t, err, "ETC_TEST_LIBRARY="+path)
}

// TestStaging writes and reads more than the places of the staging memory hold, in both directions and again.
func TestStaging(t *testing.T) {
	d := open(t).(*gpu)
	d.large.bytes = 4096
	const n = 50*4096 + 77
	var buffers []device.Buffer
	for round := range 2 {
		content := make([]byte, n)
		for i := range content {
			content[i] = byte(i*i>>7 + i/4096*13 + i*round) // every piece is another
		}
		b, err := d.NewBuffer(n + 8)
		require.NoError(t, err)
		require.NoError(t, b.Write(3, content))
		want := bytes.Clone(content)
		clear(content) // the bytes are taken at once
		got := make([]byte, n)
		require.NoError(t, b.Read(3, got))
		require.True(t, bytes.Equal(want, got))
		buffers = append(buffers, b)
	}
	for _, b := range buffers {
		require.NoError(t, b.Close())
	}
	require.NoError(t, d.Close())
}

func TestParallelCopy(t *testing.T) {
	old := runtime.GOMAXPROCS(3)
	defer runtime.GOMAXPROCS(old)
	for _, n := range []int{0, 1, 1 << 20, 2<<20 + 1, 5<<20 + 7} {
		from, to := make([]byte, n), make([]byte, n)
		for i := range from {
			from[i] = byte(i * i >> 3)
		}
		parallelCopy(to, from)
		require.True(t, bytes.Equal(from, to), "%d bytes", n)
	}
}
