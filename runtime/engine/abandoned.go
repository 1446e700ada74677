package engine

import "fmt"

// AbandonedError is the error of a call that its context ended after it had begun: buffers of the instance may be
// written in part. See [Instance].
type AbandonedError struct {
	// Cause is the context's error: context.Canceled or context.DeadlineExceeded.
	Cause error
}

func (e *AbandonedError) Error() string {
	return fmt.Sprintf("the call was abandoned before its end: %v", e.Cause)
}

// Unwrap is the context's error.
func (e *AbandonedError) Unwrap() error { return e.Cause }
