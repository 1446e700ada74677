package huggingface

import "fmt"

// RopeScaling changes the frequencies of RoPE for texts that are longer than those the model was trained on. The
// formulas are those of transformers' modeling_rope_utils.
type RopeScaling struct {
	Type   string  // rope_type: "linear" or "yarn"
	Factor float64 // factor: how many times longer

	// The following are of YaRN only (Peng et al., YaRN, 2023).
	Positions          int     // original_max_position_embeddings: positions of the training
	BetaFast, BetaSlow float64 // beta_fast, beta_slow: turns over these positions between which frequencies are mixed
	Truncate           bool    // truncate: the ends of that range are rounded outwards to whole dims
	// Attention is the factor of rotated elements: attention_factor, or 0 where it follows from Factor and the weights
	// MScale and MScaleAllDim (mscale, mscale_all_dim), which are 0 if they are not given.
	Attention, MScale, MScaleAllDim float64
}

// ropeTypes are the supported values of rope_type. "dynamic" differs from "default" beyond max_position_embeddings
// only, where no program of etc goes; "mrope" is an older name of "default" with sections.
const ropeTypes = `"default", "linear", "dynamic" or "yarn", the values that etc supports`

// ropeScaling reads the scaling in a section that has rope_type; nil where there is none. positions is
// max_position_embeddings.
func ropeScaling(s section, positions int) *RopeScaling {
	name := s.text("rope_type")
	if name == "" {
		name = s.text("type")
	}
	switch name {
	case "", "default", "dynamic", "mrope":
		return nil
	case "linear":
		return &RopeScaling{Type: name, Factor: s.number("factor")}
	case "yarn":
		return yarn(s, positions)
	}
	key := "rope_type"
	if !s.has(key) {
		key = "type"
	}
	s.fault(key, ropeTypes)
	return nil
}

// yarn reads the scaling of YaRN with the defaults of transformers.
func yarn(s section, positions int) *RopeScaling {
	r := &RopeScaling{Type: "yarn", Positions: positions, BetaFast: 32, BetaSlow: 1,
		Truncate: s.boolean("truncate", true)}
	if s.has("original_max_position_embeddings") {
		r.Positions = s.integer("original_max_position_embeddings", 1, maxPositions)
	}
	if r.Positions < 1 {
		s.fault("original_max_position_embeddings", fmt.Sprintf("an integer from 1 to %d", maxPositions))
	}
	r.Factor = s.number("factor")
	if s.has("beta_fast") {
		r.BetaFast = s.number("beta_fast")
	}
	if s.has("beta_slow") {
		r.BetaSlow = s.number("beta_slow")
	}
	if r.BetaFast < r.BetaSlow {
		s.fault("beta_fast", fmt.Sprintf("at least beta_slow (%g)", r.BetaSlow))
	}
	for _, option := range []struct {
		key  string
		into *float64
	}{{"attention_factor", &r.Attention}, {"mscale", &r.MScale}, {"mscale_all_dim", &r.MScaleAllDim}} {
		if s.has(option.key) {
			*option.into = s.number(option.key)
		}
	}
	return r
}

// limit returns the number of positions that a model is good for, where max_position_embeddings, 0 if it is not given,
// may be that without YaRN.
func (r *RopeScaling) limit(positions int) int {
	if r == nil || r.Type != "yarn" || positions == 0 {
		return positions
	}
	return max(positions, int(min(float64(r.Positions)*r.Factor, maxPositions)))
}

// Rope is the rotation of the heads of queries and keys: of their first Dims elements, in pairs (i, i+Dims/2), by
// the frequencies Theta^(−2i/Dims), which Scaling may change.
type Rope struct {
	Dims    int
	Theta   float64
	Scaling *RopeScaling // nil for none
}

// readRope reads rope_theta and partial_rotary_factor from rope_parameters; where they are missing, it reads them from
// the level above, with rope_scaling, as in older files. The order matters, because transformers writes a default of
// its own into the level above in newer files. The sections of mrope make no difference for text, whose three positions
// are equal. fallback replaces a missing partial_rotary_factor; with 0 it is required.
func readRope(text section, headDim, positions int, fallback float64) Rope {
	rope, _ := text.object("rope_parameters")
	at := func(key string) section {
		if rope.has(key) {
			return rope
		}
		return text
	}
	r := Rope{Theta: at("rope_theta").number("rope_theta")}
	// rope_scaling goes before, as in transformers.
	if old, ok := text.object("rope_scaling"); ok {
		r.Scaling = ropeScaling(old, positions)
	} else if rope.values != nil {
		r.Scaling = ropeScaling(rope, positions)
	}
	section, factor := at("partial_rotary_factor"), fallback
	if section.has("partial_rotary_factor") || fallback == 0 {
		factor = section.number("partial_rotary_factor")
	}
	r.Dims = int(float64(headDim) * factor)
	if text.doc.sound() && (factor > 1 || r.Dims < 2 || r.Dims%2 != 0) {
		text.doc.fault(section.key("partial_rotary_factor"),
			fmt.Sprintf("an even number ≥ 2 of rotary dims, at most head_dim (%d)", headDim),
			fmt.Sprintf("%d (%g of head_dim)", r.Dims, factor))
	}
	return r
}
