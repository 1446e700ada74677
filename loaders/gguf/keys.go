package gguf

import (
	"errors"
	"fmt"
	"math"
)

// Keys reads metadata and collects what is missing or wrong, so that a user sees all of it.
type Keys struct {
	model  *Model
	faults []error
}

// Keys returns a reader of the model's metadata.
func (m *Model) Keys() *Keys { return &Keys{model: m} }

// Err joins a [*FormatError] for every key that was wrong.
func (k *Keys) Err() error { return errors.Join(k.faults...) }

// Fault notes that a key's value is not what was expected.
func (k *Keys) Fault(key, expected string) {
	found := "no such key"
	if v, ok := k.model.metadata[key]; ok {
		found = fmt.Sprint(v)
	}
	k.faults = append(k.faults, &FormatError{k.model.path, "metadata " + key, -1, expected, found})
}

// Has reports whether there is a key.
func (k *Keys) Has(key string) bool { _, ok := k.model.metadata[key]; return ok }

// Int returns a required integer from low to 2^31-1.
func (k *Keys) Int(key string, low int) int {
	v, ok := k.model.metadata[key].(int64)
	if !ok || v < int64(low) || v > math.MaxInt32 {
		k.Fault(key, fmt.Sprintf("an integer from %d on", low))
		return low
	}
	return int(v)
}

// IntOr is [Keys.Int] for a key that may be absent.
func (k *Keys) IntOr(key string, fallback int) int {
	if !k.Has(key) {
		return fallback
	}
	return k.Int(key, 0)
}

// Float returns a required number > 0.
func (k *Keys) Float(key string) float64 {
	switch v := k.model.metadata[key].(type) {
	case float64:
		if v > 0 && !math.IsInf(v, 0) {
			return v
		}
	case int64:
		if v > 0 {
			return float64(v)
		}
	}
	k.Fault(key, "a number > 0")
	return 1
}

// Text returns a string; "" where the key is absent.
func (k *Keys) Text(key string) string { return optional[string](k, key, "a string") }

// Texts returns an array of strings; nil where the key is absent.
func (k *Keys) Texts(key string) []string { return optional[[]string](k, key, "an array of strings") }

// Bool returns a bool; false where the key is absent.
func (k *Keys) Bool(key string) bool { return optional[bool](k, key, "a bool") }

// Bools returns an array of bools, which some files have as integers; nil where the key is absent.
func (k *Keys) Bools(key string) []bool {
	if ints, ok := k.model.metadata[key].([]int64); ok {
		out := make([]bool, len(ints))
		for i, v := range ints {
			out[i] = v != 0
		}
		return out
	}
	return optional[[]bool](k, key, "an array of bools")
}

// Ints returns an array of integers, or one for all n; nil where the key is absent.
func (k *Keys) Ints(key string, n int) []int64 {
	if v, ok := k.model.metadata[key].(int64); ok {
		out := make([]int64, n)
		for i := range out {
			out[i] = v
		}
		return out
	}
	out := optional[[]int64](k, key, fmt.Sprintf("an integer, or an array of %d", n))
	if out != nil && len(out) < n {
		k.faults = append(k.faults, &FormatError{k.model.path, "metadata " + key, -1, fmt.Sprintf("%d integers", n),
			fmt.Sprint(len(out))})
		return make([]int64, n)
	}
	return out
}

func optional[T any](k *Keys, key, expected string) T {
	v, ok := k.model.metadata[key].(T)
	if !ok && k.Has(key) {
		k.Fault(key, expected)
	}
	return v
}

// Note notes that a tensor is not what was expected.
func (k *Keys) Note(tensor, expected, found string) {
	k.faults = append(k.faults, &FormatError{k.model.path, "tensor " + tensor, -1, expected, found})
}
