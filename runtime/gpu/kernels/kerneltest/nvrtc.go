//go:build linux && (amd64 || arm64)

package kerneltest

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// nvrtc is NVRTC's library.
type nvrtc struct {
	create  func(program *uintptr, source, name string, headers int32, texts, names uintptr) int32
	compile func(program uintptr, count int32, options unsafe.Pointer) int32
	logSize func(program uintptr, size *uintptr) int32
	log     func(program uintptr, text unsafe.Pointer) int32
	destroy func(program *uintptr) int32
}

var openNVRTC = sync.OnceValues(func() (*nvrtc, error) {
	path := os.Getenv("ETC_NVRTC")
	if path == "" {
		return nil, nil
	}
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("ETC_NVRTC: %w", err)
	}
	var n nvrtc
	purego.RegisterLibFunc(&n.create, handle, "nvrtcCreateProgram")
	purego.RegisterLibFunc(&n.compile, handle, "nvrtcCompileProgram")
	purego.RegisterLibFunc(&n.logSize, handle, "nvrtcGetProgramLogSize")
	purego.RegisterLibFunc(&n.log, handle, "nvrtcGetProgramLog")
	purego.RegisterLibFunc(&n.destroy, handle, "nvrtcDestroyProgram")
	return &n, nil
})

var compiledCUDA once[struct{}]

// CompileCUDA compiles a text for CUDA, if there is an NVRTC. ETC_NVRTC_ARCH is sm_90 unless it is set.
func CompileCUDA(text string) error {
	n, err := openNVRTC()
	if n == nil || err != nil {
		return err
	}
	_, err = compiledCUDA.get(text, func() (struct{}, error) { return struct{}{}, n.check(text) })
	return err
}

func (n *nvrtc) check(text string) error {
	var program uintptr
	if code := n.create(&program, text, "kernel.cu", 0, 0, 0); code != 0 {
		return fmt.Errorf("nvrtcCreateProgram: error %d", code)
	}
	defer n.destroy(&program)
	var held [][]byte
	var options []unsafe.Pointer
	for _, o := range append([]string{"--gpu-architecture=" + cmp.Or(os.Getenv("ETC_NVRTC_ARCH"), "sm_90")},
		kernels.NVRTCOptions...) {
		b := append([]byte(o), 0)
		held = append(held, b)
		options = append(options, unsafe.Pointer(&b[0]))
	}
	code := n.compile(program, int32(len(options)), unsafe.Pointer(&options[0]))
	var size uintptr
	n.logSize(program, &size)
	log := make([]byte, size+1)
	n.log(program, unsafe.Pointer(&log[0]))
	_ = held
	if log = bytes.TrimSpace(bytes.Trim(log, "\x00")); code != 0 {
		return fmt.Errorf("NVRTC: error %d\n%s", code, log)
	}
	return nil
}
