package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/etc-ml/etc/runtime/batch"
	"github.com/etc-ml/etc/runtime/schedule"
)

// apiError is an error as clients are told it.
type apiError struct {
	status  int
	kind    string // type in OpenAI's and Anthropic's errors
	code    string // OpenAI's, "" for none
	param   string // the parameter to blame, "" for none
	message string
	retry   int // seconds for Retry-After, 0: none
}

func (e *apiError) Error() string { return e.message }

// Kinds of errors; Anthropic has names of its own for the same.
const (
	kindInvalid     = "invalid_request_error"
	kindKey         = "authentication_error"
	kindForbidden   = "permission_error"
	kindNotFound    = "not_found_error"
	kindLarge       = "request_too_large"
	kindRate        = "rate_limit_error"
	kindInternal    = "api_error"
	kindUnavailable = "overloaded_error"
	kindTimeout     = "timeout_error"
)

// invalid returns the error of a parameter.
func invalid(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: kindInvalid, param: param,
		message: fmt.Sprintf(format, args...)}
}

// within names the place of an error that is in a part of a parameter.
func (e *apiError) within(param string) *apiError {
	e.param = param
	return e
}

// parameterNames are the parameters of the API by the names of batch.
var parameterNames = map[string]string{
	"Temperature": "temperature", "TopK": "top_k", "TopP": "top_p", "MinP": "min_p", "Repeat": "repeat_penalty",
	"Presence": "presence_penalty", "Frequency": "frequency_penalty", "Bias": "logit_bias", "Logprobs": "logprobs",
	"MaxTokens": "max_tokens", "Prompt": "prompt", "Constraint": "response_format",
}

// errorOf makes an error for clients of any error.
func errorOf(err error) *apiError {
	var api *apiError
	var parameter *batch.ParameterError
	var long *batch.ContextError
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &parameter):
		name := parameterNames[parameter.Name]
		return invalid(name, "%s: %s", name, parameter.Reason)
	case errors.As(err, &long):
		e := invalid("messages", "%v", err)
		e.code = "context_length_exceeded"
		return e
	case errors.Is(err, schedule.ErrTooLong):
		e := invalid("messages", "%v", err)
		e.code = "context_length_exceeded"
		return e
	case errors.Is(err, batch.ErrFull):
		return &apiError{status: http.StatusTooManyRequests, kind: kindRate, code: "rate_limit_exceeded", retry: 1,
			message: "all places of the queue are taken; try again later"}
	case errors.Is(err, batch.ErrClosed):
		return &apiError{status: http.StatusServiceUnavailable, kind: kindUnavailable, retry: 10,
			message: "the server is shutting down"}
	case errors.Is(err, context.DeadlineExceeded):
		return &apiError{status: http.StatusGatewayTimeout, kind: kindTimeout,
			message: "the answer took longer than the server's --request-timeout"}
	case errors.Is(err, context.Canceled):
		return &apiError{status: 499, kind: kindInternal, message: "the request was cancelled"}
	}
	return &apiError{status: http.StatusInternalServerError, kind: kindInternal, message: err.Error()}
}

// body returns an error in the shape of an API.
func (e *apiError) body(anthropic bool) any {
	if anthropic {
		return map[string]any{"type": "error", "error": map[string]any{"type": e.kind, "message": e.message}}
	}
	nullable := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	return map[string]any{"error": map[string]any{"message": e.message, "type": e.kind, "param": nullable(e.param),
		"code": nullable(e.code)}}
}

// write answers with the error.
func (e *apiError) write(w http.ResponseWriter, anthropic bool) {
	if e.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(e.retry))
	}
	writeJSON(w, e.status, e.body(anthropic))
}
