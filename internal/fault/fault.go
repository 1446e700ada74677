package fault

import (
	"fmt"
	"runtime/debug"
	"strings"
)

// Error is a fault that no input should be able to cause.
type Error struct {
	// During is what was going on, as "running forward"; "" where nobody said.
	During string
	// Value is the argument of panic.
	Value any
	// Stack is where, as the runtime prints it.
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

// Unwrap is the value of the panic, where that is an error.
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

// Recover is for defer: it makes a panic the error of the function.
func Recover(during string, err *error) {
	if r := recover(); r != nil {
		*err = Of(during, r)
	}
}

// Readable lets the goroutine that calls it panic where it reads memory that a file no longer fills, in place of ending
// the process. It holds for Go and for our assembly; not for what drivers and the kernel read for us, which give errors
// of their own. Every goroutine that reads mapped files calls it.
func Readable() { debug.SetPanicOnFault(true) }
