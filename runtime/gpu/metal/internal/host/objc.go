//go:build darwin || linux

package host

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/etc-ml/etc/runtime/gpu/device"
)

// Libraries are the paths of the libraries that are loaded.
type Libraries struct {
	ObjectiveC, Metal string
	// Others must be loaded too.
	Others []string
}

// id is an object or a class; 0 is nil.
type id uintptr

// objc are the functions that are called by address.
var objc struct {
	load     sync.Once
	err      error
	send     uintptr
	register uintptr
	class    uintptr
	poolPush uintptr
	poolPop  uintptr
	device   uintptr
	seconds  func(object id, selector uintptr) float64 // objc_msgSend where the result is a double
}

// load loads the libraries; a process loads one set of them.
func load(libraries Libraries) error {
	objc.load.Do(func() {
		runtimeLibrary, err := purego.Dlopen(libraries.ObjectiveC, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		var metal uintptr
		if err == nil {
			metal, err = purego.Dlopen(libraries.Metal, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		}
		for _, path := range libraries.Others {
			if err == nil {
				_, err = purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
			}
		}
		for _, s := range []struct {
			to      *uintptr
			library uintptr
			name    string
		}{
			{&objc.send, runtimeLibrary, "objc_msgSend"},
			{&objc.register, runtimeLibrary, "sel_registerName"},
			{&objc.class, runtimeLibrary, "objc_getClass"},
			{&objc.poolPush, runtimeLibrary, "objc_autoreleasePoolPush"},
			{&objc.poolPop, runtimeLibrary, "objc_autoreleasePoolPop"},
			{&objc.device, metal, "MTLCreateSystemDefaultDevice"},
		} {
			if err == nil {
				*s.to, err = purego.Dlsym(s.library, s.name)
			}
		}
		if err != nil {
			objc.err = fmt.Errorf("metal: %w: %w", err, device.ErrUnavailable)
			return
		}
		purego.RegisterFunc(&objc.seconds, objc.send)
	})
	return objc.err
}

// selector is the name of a message, registered when it is first sent.
type selector struct {
	name  string
	once  sync.Once
	value uintptr
}

func sel(name string) *selector { return &selector{name: name} }

func (s *selector) get() uintptr {
	s.once.Do(func() {
		s.value, _, _ = purego.SyscallN(objc.register, uintptr(unsafe.Pointer(cBytes(s.name))))
	})
	return s.value
}

// send sends a message. Pointers given as uintptr(unsafe.Pointer(p)) in the call stay valid during it.
//
//go:uintptrescapes
func send(to id, s *selector, args ...uintptr) uintptr {
	var r uintptr
	switch len(args) { // by hand, which keeps the arguments off the heap
	case 0:
		r, _, _ = purego.SyscallN(objc.send, uintptr(to), s.get())
	case 1:
		r, _, _ = purego.SyscallN(objc.send, uintptr(to), s.get(), args[0])
	case 2:
		r, _, _ = purego.SyscallN(objc.send, uintptr(to), s.get(), args[0], args[1])
	case 3:
		r, _, _ = purego.SyscallN(objc.send, uintptr(to), s.get(), args[0], args[1], args[2])
	default:
		r, _, _ = purego.SyscallN(objc.send, uintptr(to), s.get(), args[0], args[1], args[2], args[3])
	}
	return r
}

// seconds sends a message whose result is a time.
func seconds(to id, s *selector) float64 { return objc.seconds(to, s.get()) }

var (
	selNew         = sel("new")
	selRetain      = sel("retain")
	selRelease     = sel("release")
	selResponds    = sel("respondsToSelector:")
	selUTF8        = sel("UTF8String")
	selWithUTF8    = sel("stringWithUTF8String:")
	selDescription = sel("localizedDescription")
)

func release(objects ...id) {
	for _, o := range objects {
		if o != 0 {
			send(o, selRelease)
		}
	}
}

// responds tells whether an object knows a message. A BOOL is the low byte of the result.
func responds(to id, s *selector) bool { return byte(send(to, selResponds, s.get())) != 0 }

func class(name string) id {
	c, _, _ := purego.SyscallN(objc.class, uintptr(unsafe.Pointer(cBytes(name))))
	return id(c)
}

// nsString makes a string that is autoreleased: within pool.
func nsString(s string) id {
	return id(send(class("NSString"), selWithUTF8, uintptr(unsafe.Pointer(cBytes(s)))))
}

func goString(s id) string {
	if s == 0 {
		return ""
	}
	address := send(s, selUTF8)
	if address == 0 {
		return ""
	}
	start := pointer(address)
	n := 0
	for *(*byte)(unsafe.Add(start, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(start), n))
}

// nsError returns an error of Metal's, which may be nil though there was one.
func nsError(e id) error {
	if e == 0 {
		return errors.New("the system gives no reason")
	}
	return errors.New(goString(id(send(e, selDescription))))
}

// pool runs f on one thread within an autorelease pool.
func pool(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, _, _ := purego.SyscallN(objc.poolPush)
	defer purego.SyscallN(objc.poolPop, p)
	return f()
}

// cBytes returns a string with a zero at the end.
func cBytes(s string) *byte { return unsafe.SliceData(append([]byte(s), 0)) }

// pointer returns an address of memory that is not Go's.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
