// Package profile sums up and draws what an engine tells of its steps: where the time of calls goes, by kind
// of step and by layer, and how near that is to what the machine can do.
//
// # Invariants
//
//   - Nothing here knows an engine or a model: it goes by the steps of runtime/engine.
//   - Profiles do not grow with the number of calls; traces are written as they come.
//
// Package profile imports runtime/engine; it must never import an engine.
package profile
