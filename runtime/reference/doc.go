// Package reference is the engine that runs every operation with the IR's reference semantics: plain Go,
// slow, and the oracle of every other engine.
//
// Package reference imports ir, ir/eval and runtime/engine and must never import another engine.
package reference
