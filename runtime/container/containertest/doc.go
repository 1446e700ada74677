// Package containertest takes program files apart and puts them together again, for tests that change what is in them.
//
// It imports runtime/container and schema. It is for tests, and for internal/execfuzz, which is one.
package containertest
