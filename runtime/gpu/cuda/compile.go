//go:build (linux && !nocuda) || windows

package cuda

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/etc-ml/etc/runtime/gpu/artifact"
	"github.com/etc-ml/etc/runtime/gpu/device"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// compiler is NVRTC, with a cache of what it made.
type compiler struct {
	api     *api
	version string
	options []string
	binary  bool   // whether it makes the GPU's own code, else PTX, which the driver compiles
	cache   string // "" for none

	transfers bool // whether it knows bulk copies to threadgroup memory: Hopper's code and CUDA 12
	groups    bool // whether four simdgroups multiply together (wgmma), which Hopper alone knows
}

// nvrtc is NVRTC's library, loaded once.
var nvrtc = sync.OnceValues(func() (*api, error) {
	path, library, err := find("libnvrtc", nvrtcNames, "ETC_NVRTC")
	if err != nil {
		return nil, err
	}
	return newAPI(path, library, []string{
		"nvrtcVersion", "nvrtcGetNumSupportedArchs", "nvrtcGetSupportedArchs", "nvrtcGetErrorString",
		"nvrtcCreateProgram", "nvrtcDestroyProgram",
		"nvrtcCompileProgram", "nvrtcGetProgramLogSize", "nvrtcGetProgramLog", "nvrtcGetCUBINSize", "nvrtcGetCUBIN",
		"nvrtcGetPTXSize", "nvrtcGetPTX",
	})
})

// newCompiler makes the compiler for GPUs of a compute capability.
func newCompiler(cache string, major, minor int) (*compiler, error) {
	api, err := nvrtc()
	if err != nil {
		return nil, err
	}
	c := &compiler{api: api, cache: cache}
	var version [2]int32
	if err := c.call("nvrtcVersion", uintptr(unsafe.Pointer(&version[0])),
		uintptr(unsafe.Pointer(&version[1]))); err != nil {
		return nil, err
	}
	c.version = fmt.Sprintf("%d.%d", version[0], version[1])
	var count int32
	if err := c.call("nvrtcGetNumSupportedArchs", uintptr(unsafe.Pointer(&count))); err != nil {
		return nil, err
	}
	supported := make([]int32, max(1, count))
	if err := c.call("nvrtcGetSupportedArchs", uintptr(unsafe.Pointer(&supported[0]))); err != nil {
		return nil, err
	}
	architecture, name, binary, err := chooseArchitecture(int32(10*major+minor), supported)
	if err != nil {
		return nil, fmt.Errorf("cuda: NVRTC %s (%s): %w", c.version, api.path, err)
	}
	c.binary = binary
	c.transfers = version[0] >= 12 && architecture >= 90
	c.groups = c.transfers && architecture == 90 && binary
	c.options = append([]string{"--gpu-architecture=" + name}, kernels.NVRTCOptions...)
	c.cache = artifact.Dir(c.cache)
	if c.cache != "" && os.MkdirAll(c.cache, 0o700) != nil {
		c.cache = "" // a read-only home: every start compiles
	}
	return c, nil
}

// chooseArchitecture returns the architecture for a GPU and NVRTC's name of it: its own where NVRTC knows it, with the
// instructions that only it has (a) from Hopper on; else the last before it, as PTX.
func chooseArchitecture(gpu int32, supported []int32) (architecture int32, name string, binary bool, err error) {
	if gpu >= 80 && slices.Contains(supported, gpu) {
		if gpu >= 90 {
			return gpu, fmt.Sprintf("sm_%da", gpu), true, nil
		}
		return gpu, fmt.Sprintf("sm_%d", gpu), true, nil
	}
	last := int32(0)
	for _, s := range supported {
		if s < gpu {
			last = max(last, s)
		}
	}
	if gpu < 80 || last < 80 { // bf16 and ldmatrix
		return 0, "", false, fmt.Errorf(
			"the GPU has compute capability %d.%d, it supports %v; 8.0 (Ampere) is the least that the kernels need: %w",
			gpu/10, gpu%10, supported, device.ErrUnavailable)
	}
	return last, fmt.Sprintf("compute_%d", last), false, nil
}

// call calls a function of NVRTC.
//
//go:uintptrescapes
func (c *compiler) call(name string, args ...uintptr) error {
	if status := c.api.result(name, args...); status != 0 {
		return fmt.Errorf("cuda: %s: NVRTC's error %d", name, status)
	}
	return nil
}

// compile gives the code of a text, ending in a zero as the driver wants PTX, from the cache if it is there.
func (c *compiler) compile(name, text string) ([]byte, error) {
	path := filepath.Join(c.cache, artifact.Hash(c.version, strings.Join(c.options, " "), text)+".cubin")
	if c.cache != "" {
		// The last bytes are the hash of what is before them.
		if code, err := os.ReadFile(path); err == nil && len(code) > sha256.Size {
			code, sum := code[:len(code)-sha256.Size], code[len(code)-sha256.Size:]
			if sha256.Sum256(code) == [sha256.Size]byte(sum) {
				return code, nil
			}
		}
	}
	code, err := c.run(name, text)
	if err != nil {
		return nil, err
	}
	if c.cache != "" {
		sum := sha256.Sum256(code)
		_ = artifact.Write(path, append(slices.Clip(code), sum[:]...)) // a full disk does not stop anybody
	}
	return code, nil
}

func (c *compiler) run(name, text string) ([]byte, error) {
	var program uintptr
	if err := c.call("nvrtcCreateProgram", uintptr(unsafe.Pointer(&program)), uintptr(unsafe.Pointer(cBytes(text))),
		uintptr(unsafe.Pointer(cBytes(name))), 0, 0, 0); err != nil {
		return nil, err
	}
	defer c.call("nvrtcDestroyProgram", uintptr(unsafe.Pointer(&program)))
	options := make([]*byte, len(c.options))
	for i, o := range c.options {
		options[i] = cBytes(o)
	}
	status := c.api.result("nvrtcCompileProgram", program, uintptr(len(options)),
		uintptr(unsafe.Pointer(unsafe.SliceData(options))))
	runtime.KeepAlive(options)
	if status != 0 {
		log, err := c.output(program, "nvrtcGetProgramLog")
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("cuda: compiling %s: NVRTC's error %d\n%s", name, status,
			strings.TrimRight(string(log), "\x00\n"))
	}
	if c.binary {
		return c.output(program, "nvrtcGetCUBIN")
	}
	return c.output(program, "nvrtcGetPTX")
}

// output calls a function of NVRTC that writes a result to memory. Another function returns the size of that result.
func (c *compiler) output(program uintptr, function string) ([]byte, error) {
	var size uint64
	if err := c.call(function+"Size", program, uintptr(unsafe.Pointer(&size))); err != nil {
		return nil, err
	}
	out := make([]byte, size+1)
	return out, c.call(function, program, uintptr(unsafe.Pointer(&out[0])))
}

// library is a loaded module.
type library struct {
	device *gpu
	source device.Source
	module uintptr
	early  bool // whether its kernels may start before those they depend on are done
}

func (d *gpu) Compile(source device.Source) (device.Library, error) {
	text, early := source.Text, false
	if d.overlap {
		text, early = startEarly(text)
	}
	code, err := d.compiler.compile(source.Name, text)
	if err != nil {
		return nil, err
	}
	l := &library{device: d, source: source, early: early}
	err = d.do(func() error {
		return d.call("cuModuleLoadData", uintptr(unsafe.Pointer(&l.module)), uintptr(unsafe.Pointer(&code[0])))
	})
	if err != nil {
		return nil, fmt.Errorf("cuda: loading %s: %w", source.Name, err)
	}
	return l, nil
}

func (l *library) Kernel(name string) (device.Kernel, error) {
	d := l.device
	k := &kernel{name: name, device: d, early: l.early}
	var ok bool
	if k.arguments, ok = device.CountArguments(l.source.Text, name); !ok {
		return nil, fmt.Errorf("cuda: %s has no kernel %s", l.source.Name, name)
	}
	var threads int32
	err := d.do(func() error {
		if err := d.call("cuModuleGetFunction", uintptr(unsafe.Pointer(&k.function)), l.module,
			uintptr(unsafe.Pointer(cBytes(name+"_entry")))); err != nil {
			return err
		}
		return d.call("cuFuncGetAttribute", uintptr(unsafe.Pointer(&threads)), functionMaxThreads, k.function)
	})
	if err != nil {
		return nil, fmt.Errorf("%w (kernel %s of %s)", err, name, l.source.Name)
	}
	k.threads = int(threads)
	return k, nil
}

func (l *library) Close() error {
	module := l.module
	l.module = 0
	if module == 0 {
		return nil
	}
	return l.device.do(func() error { return l.device.call("cuModuleUnload", module) })
}

// kernel is a function of a module.
type kernel struct {
	name               string
	device             *gpu
	function           uintptr
	threads, arguments int
	early              bool
	memory             int // the dynamic shared memory that the driver knows of
}

// allow tells the driver that a kernel may be launched with so much dynamic shared memory, which beyond 48 KB it
// refuses else.
func (k *kernel) allow(memory int) error {
	if memory <= k.memory {
		return nil
	}
	for _, a := range [][2]uintptr{{functionDynamicShared, uintptr(memory)}, {functionCarveout, 100}} {
		if err := k.device.call("cuFuncSetAttribute", k.function, a[0], a[1]); err != nil {
			return fmt.Errorf("%w (kernel %s, %d bytes of TG_MEMORY)", err, k.name, memory)
		}
	}
	k.memory = memory
	return nil
}

func (k *kernel) Name() string    { return k.name }
func (k *kernel) MaxThreads() int { return k.threads }
func (k *kernel) Close() error    { return nil }
