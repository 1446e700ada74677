// Package cachetest has a device for tests of what keeps blocks and slots: it stores a few words for every
// row instead of keys and values. What a row gives is a hash of everything that a model would read for it, so
// that a block which is wrong, stale, poisoned or written under somebody's eyes changes the answer or is an
// error. Alone gives the answers of a sequence that never shares anything.
//
// Package cachetest imports runtime/cache. It is for tests only.
package cachetest
