package engine

import "fmt"

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
