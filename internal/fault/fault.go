package fault

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// Error is a panic as an error: a fault that no input should be able to cause.
type Error struct {
	// During says what was being done, as "running forward"; "" if that is not known.
	During string
	// Value is the argument of panic.
	Value any
	// Stack is the stack of the goroutine that panicked, as the runtime prints it.
	Stack []byte
}

func (e *Error) Error() string {
	text := fmt.Sprint(e.Value)
	if e.Unreadable() {
		text = "memory that a file is mapped to cannot be read: the file was cut, or its disk fails"
	}
	text = strings.Join(strings.Fields(text), " ")
	if e.During != "" {
		return e.During + ": " + text
	}
	return text
}

// Unwrap returns the value of the panic if that is an error.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Unreadable reports whether the fault was an access to memory that cannot be accessed, such as a mapped file that was
// cut (SIGBUS). It requires [Readable].
func (e *Error) Unreadable() bool {
	x, ok := e.Value.(interface{ Addr() uintptr })
	return ok && x.Addr() >= 1<<12 // less is a nil pointer
}

// Of makes an error from the argument of a panic. An *Error stays as it is. The function that recovers calls it, so
// that the stack is that of the panic.
func Of(during string, value any) *Error {
	if e, ok := value.(*Error); ok {
		return e
	}
	return &Error{during, value, debug.Stack()}
}

// Recover turns a panic into the error of the function that defers it.
func Recover(during string, err *error) {
	if r := recover(); r != nil {
		*err = Of(during, r)
	}
}

// Readable lets the calling goroutine panic, instead of ending the process, when it reads mapped memory that the file
// no longer fills. That holds for reads by Go and by our assembly; drivers and the kernel return errors of their own.
// Every goroutine that reads mapped files calls it.
func Readable() { debug.SetPanicOnFault(true) }
