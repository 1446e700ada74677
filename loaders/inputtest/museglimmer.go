package inputtest

import (
	"strings"

	"github.com/etc-ml/etc/loaders/huggingface"
)

// museGGUF adds a Muse Glimmer as llama.cpp's conversion/muse_glimmer.py does: norms of layers as 1+w, rows of queries
// and keys in interleaved pairs, and weights for the norms of heads, of which those of queries hold their multiplier.
func (s *Source) museGGUF(g *GGUF, add func(string, *Tensor)) {
	c := s.config.(*huggingface.MuseGlimmer)
	key := func(name string, value any) { g.Key("muse-glimmer."+name, value) }
	key("block_count", len(c.Layers))
	key("context_length", c.MaxPositions)
	key("embedding_length", c.HiddenSize)
	key("feed_forward_length", c.Intermediate)
	key("attention.head_count", c.Heads)
	key("attention.head_count_kv", c.KVHeads)
	key("attention.key_length", c.HeadDim)
	key("attention.value_length", c.HeadDim)
	key("attention.layer_norm_rms_epsilon", c.RMSNormEps)
	key("rope.freq_base", c.RopeTheta)
	key("final_logit_softcapping", c.FinalLogitSoftcap)
	key("logit_scale", c.OutputMultiplier)
	key("attention.sliding_window", c.SlidingWindow)
	var slides []bool
	for _, kind := range c.Layers {
		slides = append(slides, kind == huggingface.SlidingAttention)
	}
	key("attention.sliding_window_pattern", slides)
	names := map[string]string{
		"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight",
		"lm_head.weight":                    "output.weight",
		"input_layernorm.weight":            "attn_norm.weight",
		"post_attention_layernorm.weight":   "post_attention_norm.weight",
		"pre_feedforward_layernorm.weight":  "ffn_norm.weight",
		"post_feedforward_layernorm.weight": "post_ffw_norm.weight",
		"self_attn.q_proj.weight":           "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
		"self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
		"self_attn.gate_proj.weight": "attn_gate.weight", "mlp.gate_proj.weight": "ffn_gate.weight",
		"mlp.up_proj.weight": "ffn_up.weight", "mlp.down_proj.weight": "ffn_down.weight",
	}
	for _, name := range s.Names() {
		t := s.Tensors[name]
		switch {
		case strings.HasSuffix(name, "layernorm.weight"):
			t = t.plus(1)
		case strings.HasSuffix(name, "self_attn.q_proj.weight"):
			base := strings.TrimSuffix(layerName(name, names), ".weight")
			add(base+"_norm.weight", constant(c.HeadDim, float32(c.QKScale)))
			add(strings.TrimSuffix(base, "q")+"k_norm.weight", constant(c.HeadDim, 1))
			t = t.interleaved(c.HeadDim)
		case strings.HasSuffix(name, "self_attn.k_proj.weight"):
			t = t.interleaved(c.HeadDim)
		}
		add(layerName(name, names), t)
	}
}

func constant(n int, v float32) *Tensor {
	t := &Tensor{Shape: []int{n}}
	for range n {
		t.Values = append(t.Values, v)
	}
	return t
}

// interleaved brings rows i and i+dim/2 of every head of dim rows next to each other.
func (t *Tensor) interleaved(dim int) *Tensor {
	cols := t.Shape[1]
	out := &Tensor{Shape: t.Shape}
	for head := 0; head < t.Shape[0]; head += dim {
		for i := range dim / 2 {
			for _, row := range []int{head + i, head + i + dim/2} {
				out.Values = append(out.Values, t.Values[row*cols:(row+1)*cols]...)
			}
		}
	}
	return out
}
