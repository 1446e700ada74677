package engine

import (
	"context"
	"errors"
	"fmt"
)

// AbandonedError is the error of a call that was stopped because its context ended. Buffers of the instance may be half
// written: see [Instance].
type AbandonedError struct {
	// Cause is the context's error: context.Canceled or context.DeadlineExceeded.
	Cause error
}

func (e *AbandonedError) Error() string {
	return fmt.Sprintf("the call was abandoned before its end: %v", e.Cause)
}

// Unwrap returns the context's error.
func (e *AbandonedError) Unwrap() error { return e.Cause }

// Ended reports whether an error says that a context has ended, because it was cancelled or at its deadline.
func Ended(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
