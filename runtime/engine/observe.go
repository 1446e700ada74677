package engine

import "time"

// Call is the kind of the step that stands for a whole call. It is reported after the steps of the call.
const Call = "call"

// NoLayer is the layer of steps that belong to no layer: embeddings, the head, the sampler.
const NoLayer = -1

// Step is one step of a call, as Options.Observe gets it. It is valid until the observer returns.
type Step struct {
	// Kind is the kind of work, such as "linear" or "attention", or Call.
	Kind string
	// Name is the weight or buffer that the step works on, "" for none.
	Name string
	// Layer is the layer's number, taken from the names of weights and buffers, or NoLayer.
	Layer int
	// Tokens is the number of tokens of the call: the largest symbolic dim of its inputs.
	Tokens int
	// Start and Time are when the step began and how long it took.
	Start time.Time
	Time  time.Duration
	// Bytes is the number of bytes of weights and state that the step read. Operations is the number of floating-point
	// multiplications and additions of its matrix products.
	Bytes, Operations int
}
