package etc

import (
	"errors"

	"github.com/etc-ml/etc/internal/kind"
	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/passes/quantize"
	"github.com/etc-ml/etc/runtime/container"
	"github.com/etc-ml/etc/runtime/tokenizer"
)

// Kinds of errors, for errors.Is.
var (
	// ErrUsage is an error of what was asked for: an option or a parameter, or what it asks of a file.
	ErrUsage = kind.ErrUsage
	// ErrInvalid is an error of a file's content.
	ErrInvalid = kind.ErrInvalid
	// ErrMemory is an error of a model that does not fit in memory.
	ErrMemory = kind.ErrMemory
)

// content gives an error of a file's content its kind, and passes others on.
func content(err error) error {
	var format *safetensors.FormatError
	var config *huggingface.ConfigError
	var tokens *tokenizer.Error
	var weights *quantize.ValueError
	if errors.Is(err, container.ErrInvalid) || errors.As(err, &format) || errors.As(err, &config) ||
		errors.As(err, &tokens) || errors.As(err, &weights) {
		return kind.Of(kind.ErrInvalid, err)
	}
	return err
}
