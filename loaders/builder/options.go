package builder

import "fmt"

// Options are the user's options for a forward.
type Options struct {
	// MaxSeqLen is the number of positions of the caches; 0 is 4096, or the number that the model was
	// made for if that is less.
	MaxSeqLen int
	// MaxPrefillChunk is the most tokens of a call; 0 is the architecture's default.
	MaxPrefillChunk int
	// NoSampler makes forward return the logits of all tokens instead of a sampled token.
	NoSampler bool
}

// DefaultMaxSeqLen is the default of Options.MaxSeqLen for models that were made for as many positions.
const DefaultMaxSeqLen = 4096

// maxSeqLen keeps positions and cache sizes within 32 bits, the size of a delegate's registers.
const maxSeqLen = 1 << 30

// Limits are the limits of an architecture.
type Limits struct {
	// Positions is the number of positions that the model was made for; 0 if unknown.
	Positions int
	// Chunk is the default prefill chunk, where the sequence is longer.
	Chunk int
	// Window is the number of positions that sliding layers see; 0 without such layers.
	Window int
}

// resolve fills in defaults and refuses what is out of range.
func (o Options) resolve(l Limits) (Options, error) {
	most, why := l.Positions, "the positions that the model was made for"
	if most == 0 || most > maxSeqLen {
		most, why = maxSeqLen, "which positions in 32 bits allow"
	}
	if o.MaxSeqLen == 0 {
		o.MaxSeqLen = min(DefaultMaxSeqLen, most)
	}
	if o.MaxSeqLen < 2 || o.MaxSeqLen > most {
		return o, fmt.Errorf("max_seq_len: expected 2 to %d, %s, found %d", most, why, o.MaxSeqLen)
	}
	largest := o.MaxSeqLen
	why = "max_seq_len"
	if l.Window > 0 && l.Window < largest {
		largest, why = l.Window, "the window of the sliding layers, whose cache a longer chunk would overrun"
	}
	if o.MaxPrefillChunk == 0 {
		o.MaxPrefillChunk = min(l.Chunk, largest, o.MaxSeqLen-1) // as ExecuTorch's exporter bounds it
	}
	if o.MaxPrefillChunk < 1 || o.MaxPrefillChunk > largest {
		return o, fmt.Errorf("max_prefill_chunk: expected 1 to %d, %s, found %d", largest, why, o.MaxPrefillChunk)
	}
	return o, nil
}
