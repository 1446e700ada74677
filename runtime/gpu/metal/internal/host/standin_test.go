//go:build linux && (amd64 || arm64)

package host

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/emulator"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// standIn is the stand-in library, with what tests ask it.
type standIn struct {
	path                                 string
	live                                 func() int32
	complaints                           func() string
	reset                                func()
	largestBuffer, residencySets, noCopy func(uintptr)
}

// putBytesEntry is the emulator's entry of the host's own kernel.
const putBytesEntry = `
extern "C" void put_bytes_entry(void* const* a) {
  put_bytes((uchar*)a[0], (const uchar*)a[1], *(const WriteRange*)a[2], PORT_thread_position_in_grid().x);
}
PORT_ENTRY(put_bytes, 64, 3)
`

// compile makes a shared object of a text for Metal: the prelude is exchanged for the emulator's. Its first
// result tells whether the second is a path or an error.
func compile(text string) (bool, string) {
	body, ok := strings.CutPrefix(text, kernels.Prelude(kernels.Metal))
	if !ok {
		if body, ok = strings.CutPrefix(text, "#include <metal_stdlib>\nusing namespace metal;\n"); !ok {
			return false, "the text begins with no prelude for Metal"
		}
		body += putBytesEntry
	}
	path, err := emulator.SharedObject(kernels.Prelude(kernels.CPU) + body)
	if err != nil {
		return false, err.Error()
	}
	return true, path
}

// loadStandIn builds and loads the stand-in, once in the process.
var loadStandIn = sync.OnceValues(func() (*standIn, error) {
	cc, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "cc"))
	if err != nil {
		return nil, errors.Join(errors.New("the stand-in for Metal needs a C compiler"), device.ErrUnavailable)
	}
	folder, err := os.MkdirTemp("", "standin")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	s := &standIn{path: filepath.Join(folder, "standin.so")}
	build := exec.Command(cc, "-O1", "-shared", "-fPIC", "-o", s.path, "testdata/standin.c", "-pthread")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, errors.New(string(out))
	}
	if err := load(Libraries{ObjectiveC: s.path, Metal: s.path, Others: []string{s.path}}); err != nil {
		return nil, err
	}
	handle, err := purego.Dlopen(s.path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, err
	}
	purego.RegisterLibFunc(&s.live, handle, "standin_live")
	purego.RegisterLibFunc(&s.complaints, handle, "standin_complaints")
	purego.RegisterLibFunc(&s.reset, handle, "standin_reset")
	purego.RegisterLibFunc(&s.largestBuffer, handle, "standin_largest_buffer")
	purego.RegisterLibFunc(&s.residencySets, handle, "standin_residency_sets")
	purego.RegisterLibFunc(&s.noCopy, handle, "standin_no_copy")
	var compiler func(uintptr)
	purego.RegisterLibFunc(&compiler, handle, "standin_compiler")
	compiler(purego.NewCallback(func(text, out uintptr, size uintptr) uintptr {
		ok, result := compile(cText(text))
		to := unsafe.Slice((*byte)(pointer(out)), size)
		to[copy(to[:size-1], result)] = 0
		if ok {
			return 1
		}
		return 0
	}))
	return s, nil
})

func cText(address uintptr) string {
	start := pointer(address)
	n := 0
	for *(*byte)(unsafe.Add(start, n)) != 0 {
		n++
	}
	return strings.Clone(unsafe.String((*byte)(start), n))
}

// newStandIn gives the stand-in as it is at the start. At the test's end no object may be left, and there must
// have been no complaint but those that want names.
func newStandIn(t testing.TB, want ...string) *standIn {
	s, err := loadStandIn()
	if errors.Is(err, device.ErrUnavailable) {
		t.Skip(err)
	}
	require.NoError(t, err)
	if _, err := exec.LookPath(cmp.Or(os.Getenv("CXX"), "c++")); err != nil {
		t.Skip("kernels on the stand-in need a C++ compiler:", err)
	}
	s.reset()
	t.Cleanup(func() {
		got := strings.FieldsFunc(s.complaints(), func(r rune) bool { return r == '\n' })
		require.Len(t, got, len(want), "complaints: %q", got)
		for i := range want {
			require.Contains(t, got[i], want[i])
		}
		require.Zero(t, s.live(), "objects that are left")
	})
	return s
}

// open opens the stand-in's device.
func (s *standIn) open(t testing.TB) *gpu {
	d, err := Open(Libraries{})
	require.NoError(t, err)
	return d.(*gpu)
}
