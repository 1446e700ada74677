package engine

import "time"

// Call is the kind of the step that stands for a whole call: it is told of after the steps of the call.
const Call = "call"

// NoLayer is the layer of steps that belong to none: embeddings, the head, the sampler.
const NoLayer = -1

// Step is what an engine did in a part of a call, for Options.Observe. It is valid until the observer returns.
type Step struct {
	// Kind says what was done, "linear" or "attention", or is Call.
	Kind string
	// Name is the weight or buffer that the step is about, "" for none.
	Name string
	// Layer is the number of the model's layer, as names of weights and buffers tell it, or NoLayer.
	Layer int
	// Tokens is the size of the call: the largest of the symbolic dims of its inputs.
	Tokens int
	// Start and Time are when the step began and how long it took.
	Start time.Time
	Time  time.Duration
	// Bytes is what the step read of weights and state, Operations the number of its floating-point
	// multiplications and additions, of products only.
	Bytes, Operations int
}
