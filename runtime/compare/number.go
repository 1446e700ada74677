package compare

import (
	"encoding/json"
	"fmt"
	"math"
)

// Number is a figure that may be no finite number, as the error of logits that are NaN. JSON has no such numbers:
// there it is "NaN", "Infinity" or "-Infinity", as in the JSON form of protocol buffers.
type Number float64

// MarshalJSON writes a name for what is no finite number.
func (n Number) MarshalJSON() ([]byte, error) {
	switch v := float64(n); {
	case math.IsNaN(v):
		return []byte(`"NaN"`), nil
	case math.IsInf(v, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(v, -1):
		return []byte(`"-Infinity"`), nil
	default:
		return json.Marshal(v)
	}
}

// Decibel is a ratio in dB, +Inf where two signals are equal. That is null in JSON; what else is not finite is
// written as a [Number].
type Decibel float64

// MarshalJSON writes null for +Inf.
func (d Decibel) MarshalJSON() ([]byte, error) {
	v := float64(d)
	switch {
	case math.IsInf(v, 1):
		return []byte("null"), nil
	case math.IsInf(v, -1) || math.IsNaN(v):
		return Number(v).MarshalJSON()
	}
	return fmt.Appendf(nil, "%.4g", v), nil
}
