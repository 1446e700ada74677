//go:build darwin || linux

package host

import (
	"fmt"
	"unsafe"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

var (
	selSetLanguage  = sel("setLanguageVersion:")
	selSetMath      = sel("setMathMode:")
	selSetFunctions = sel("setMathFloatingPointFunctions:")
	selSetFastMath  = sel("setFastMathEnabled:")
	selNewLibrary   = sel("newLibraryWithSource:options:error:")
	selNewFunction  = sel("newFunctionWithName:")
	selNewPipeline  = sel("newComputePipelineStateWithFunction:error:")
	selMaxThreads   = sel("maxTotalThreadsPerThreadgroup")
	selWidth        = sel("threadExecutionWidth")
	selStatic       = sel("staticThreadgroupMemoryLength")
)

// library is a compiled text.
type library struct {
	device *gpu
	id     id
	source device.Source
}

func (d *gpu) Compile(source device.Source) (device.Library, error) { return d.compile(source) }

func (d *gpu) compile(source device.Source) (l *library, err error) {
	err = pool(func() error {
		options := id(send(class("MTLCompileOptions"), selNew))
		defer release(options)
		send(options, selSetLanguage, language31)
		if responds(options, selSetMath) { // macOS 15
			send(options, selSetMath, mathSafe)
			send(options, selSetFunctions, functionsPrecise)
		} else {
			send(options, selSetFastMath, 0)
		}
		var failure id
		compiled := id(send(d.device, selNewLibrary, uintptr(nsString(source.Text)), uintptr(options),
			uintptr(unsafe.Pointer(&failure))))
		if compiled == 0 {
			return fmt.Errorf("metal: compiling %s (Metal 3.1, which wants macOS 14): %w",
				source.Name, nsError(failure))
		}
		l = &library{d, compiled, source} // failure may hold warnings
		return nil
	})
	return l, err
}

func (l *library) Close() error {
	release(l.id)
	l.id = 0
	return nil
}

// kernel is a pipeline state.
type kernel struct {
	name               string
	device             *gpu
	id                 id
	threads, arguments int
}

func (l *library) Kernel(name string) (device.Kernel, error) { return l.kernel(name) }

func (l *library) kernel(name string) (k *kernel, err error) {
	arguments, ok := device.CountArguments(l.source.Text, name)
	if !ok {
		return nil, fmt.Errorf("metal: %s has no kernel %s", l.source.Name, name)
	}
	err = pool(func() error {
		function := id(send(l.id, selNewFunction, uintptr(nsString(name))))
		if function == 0 {
			return fmt.Errorf("metal: %s has no kernel %s", l.source.Name, name)
		}
		defer release(function)
		var failure id
		state := id(send(l.device.device, selNewPipeline, uintptr(function), uintptr(unsafe.Pointer(&failure))))
		if state == 0 {
			return fmt.Errorf("metal: kernel %s of %s: %w", name, l.source.Name, nsError(failure))
		}
		k = &kernel{name, l.device, state, int(send(state, selMaxThreads)), arguments}
		if width := send(state, selWidth); width != 32 {
			err = fmt.Errorf("metal: kernel %s of %s has simdgroups of %d threads, want 32", name, l.source.Name, width)
		} else if memory := int(send(state, selStatic)); memory > l.device.info.ThreadgroupMemory {
			err = fmt.Errorf("metal: kernel %s of %s takes %d bytes of threadgroup memory, the GPU has %d", name,
				l.source.Name, memory, l.device.info.ThreadgroupMemory)
		}
		if err != nil {
			release(state)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

func (k *kernel) Name() string    { return k.name }
func (k *kernel) MaxThreads() int { return k.threads }

func (k *kernel) Close() error {
	release(k.id)
	k.id = 0
	return nil
}
