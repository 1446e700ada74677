package synthetic

import (
	"fmt"

	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// Beginnings of the names of a language model's tensors: in multimodal checkpoints, and in those of text alone.
const (
	prefix     = "model.language_model."
	textPrefix = "model."
)

// Distributions that keep activations in the range of trained models.
var (
	linear     = distribution{0, 0.02} // projections, embeddings, experts: the initializer_range of both families
	offsetNorm = distribution{0, 0.02} // norms that multiply by 1+w
	plainNorm  = distribution{1, 0.02} // norms that multiply by w
	one        = distribution{1, 0}    // layer_scalar
	convTap    = distribution{0, 0.25} // about the deviation of uniform numbers between ±1/√4, the default of torch
	logDecay   = distribution{1, 0.5}  // A_log: rates of about 1 to 8
	stepBias   = distribution{-3, 1}   // dt_bias: steps of about 0.02 to 0.3, so that states last
)

// tensor is one tensor of a checkpoint.
type tensor struct {
	name  string
	dtype safetensors.DType
	shape []int
	distribution
}

func (t tensor) elements() int64 {
	n := int64(1)
	for _, d := range t.shape {
		n *= int64(d)
	}
	return n
}

func (t tensor) bytes() int64 { return t.elements() * int64(t.dtype.Bits()/8) }

// tensors lists the tensors of a checkpoint of the given configuration, layer by layer.
func tensors(config huggingface.Config) ([]tensor, error) {
	switch c := config.(type) {
	case *huggingface.Qwen:
		return qwenTensors(c), nil
	case *huggingface.Gemma4:
		return gemmaTensors(c), nil
	case *huggingface.MuseGlimmer:
		return museTensors(c), nil
	}
	return nil, fmt.Errorf("expected a configuration of a supported family, found %T", config)
}

// Bytes returns the size of the weights of a checkpoint of the given configuration.
func Bytes(config huggingface.Config) (int64, error) {
	list, err := tensors(config)
	total := int64(0)
	for _, t := range list {
		total += t.bytes()
	}
	return total, err
}

// list collects tensors. prefix is the beginning of the names of those that are added next.
type list struct {
	prefix  string
	tensors []tensor
}

func (l *list) add(name string, d distribution, shape ...int) {
	l.tensors = append(l.tensors, tensor{l.prefix + name, safetensors.BF16, shape, d})
}

// addF32 adds a tensor in float32, for the few that the published Qwen checkpoints keep so.
func (l *list) addF32(name string, d distribution, shape ...int) {
	l.tensors = append(l.tensors, tensor{l.prefix + name, safetensors.F32, shape, d})
}

func qwenTensors(c *huggingface.Qwen) []tensor {
	base, norm := prefix, offsetNorm
	if len(family(qwenFamily(c)).Types) == 1 {
		base = textPrefix
	}
	if c.PlainNorms {
		norm = plainNorm
	}
	l := &list{prefix: base}
	h := c.HiddenSize
	l.add("embed_tokens.weight", linear, c.VocabSize, h)
	for i, kind := range c.Layers {
		l.prefix = fmt.Sprintf("%slayers.%d.", base, i)
		l.add("input_layernorm.weight", norm, h)
		if kind == huggingface.FullAttention {
			l.qwenAttention(c, norm)
		} else {
			l.deltaNet(c)
		}
		l.add("post_attention_layernorm.weight", norm, h)
		if c.HasExperts(i) {
			l.qwenExperts(c)
		} else {
			l.mlp("mlp.", c.Intermediate, h)
		}
	}
	l.prefix = base
	l.add("norm.weight", norm, h)
	if !c.TieWordEmbeddings {
		l.prefix = ""
		l.add("lm_head.weight", linear, c.VocabSize, h)
	}
	return l.tensors
}

func (l *list) mlp(prefix string, rows, hidden int) {
	l.add(prefix+"gate_proj.weight", linear, rows, hidden)
	l.add(prefix+"up_proj.weight", linear, rows, hidden)
	l.add(prefix+"down_proj.weight", linear, hidden, rows)
}

func (l *list) qwenAttention(c *huggingface.Qwen, norm distribution) {
	h, rows := c.HiddenSize, c.Heads*c.HeadDim
	if !c.NoGate {
		rows *= 2
	}
	l.add("self_attn.q_proj.weight", linear, rows, h)
	l.add("self_attn.k_proj.weight", linear, c.KVHeads*c.HeadDim, h)
	l.add("self_attn.v_proj.weight", linear, c.KVHeads*c.HeadDim, h)
	l.add("self_attn.o_proj.weight", linear, h, c.Heads*c.HeadDim)
	l.add("self_attn.q_norm.weight", norm, c.HeadDim)
	l.add("self_attn.k_norm.weight", norm, c.HeadDim)
}

// deltaNet adds the tensors of a layer of linear attention. Qwen3-Next joins its projections in two tensors and has
// everything in bf16; Qwen3.5 has four projections, and A_log and the norm in float32.
func (l *list) deltaNet(c *huggingface.Qwen) {
	h, value, exact := c.HiddenSize, c.LinearValueHeads*c.LinearValueHeadDim, l.addF32
	if c.JointProjections {
		l.add("linear_attn.in_proj_qkvz.weight", linear, c.ConvChannels()+value, h)
		l.add("linear_attn.in_proj_ba.weight", linear, 2*c.LinearValueHeads, h)
		exact = l.add
	} else {
		l.add("linear_attn.in_proj_qkv.weight", linear, c.ConvChannels(), h)
		l.add("linear_attn.in_proj_z.weight", linear, value, h)
		l.add("linear_attn.in_proj_b.weight", linear, c.LinearValueHeads, h)
		l.add("linear_attn.in_proj_a.weight", linear, c.LinearValueHeads, h)
	}
	l.add("linear_attn.conv1d.weight", convTap, c.ConvChannels(), 1, c.ConvKernel)
	exact("linear_attn.A_log", logDecay, c.LinearValueHeads)
	l.add("linear_attn.dt_bias", stepBias, c.LinearValueHeads)
	exact("linear_attn.norm.weight", plainNorm, c.LinearValueHeadDim)
	l.add("linear_attn.out_proj.weight", linear, h, value)
}

// qwenExperts adds the experts of a layer. Qwen3.5 and later stack those of a layer in one tensor; before that each
// expert has tensors of its own.
func (l *list) qwenExperts(c *huggingface.Qwen) {
	h := c.HiddenSize
	l.add("mlp.gate.weight", linear, c.Experts, h)
	if c.PlainNorms || c.JointProjections {
		for e := range c.Experts {
			l.mlp(fmt.Sprintf("mlp.experts.%d.", e), c.ExpertIntermediate, h)
		}
	} else {
		l.add("mlp.experts.gate_up_proj", linear, c.Experts, 2*c.ExpertIntermediate, h)
		l.add("mlp.experts.down_proj", linear, c.Experts, h, c.ExpertIntermediate)
	}
	if c.SharedExpertIntermediate > 0 {
		l.mlp("mlp.shared_expert.", c.SharedExpertIntermediate, h)
		l.add("mlp.shared_expert_gate.weight", linear, 1, h)
	}
}

func gemmaTensors(c *huggingface.Gemma4) []tensor {
	l := &list{prefix: prefix}
	h := c.HiddenSize
	l.add("embed_tokens.weight", linear, c.VocabSize, h)
	if c.PerLayerInput > 0 {
		l.add("embed_tokens_per_layer.weight", linear, c.VocabSize, len(c.Layers)*c.PerLayerInput)
		l.add("per_layer_model_projection.weight", linear, len(c.Layers)*c.PerLayerInput, h)
		l.add("per_layer_projection_norm.weight", plainNorm, c.PerLayerInput)
	}
	for i := range c.Layers {
		l.prefix = fmt.Sprintf("%slayers.%d.", prefix, i)
		l.gemmaLayer(c, i)
	}
	l.prefix = prefix
	l.add("norm.weight", plainNorm, h)
	if !c.TieWordEmbeddings {
		l.prefix = ""
		l.add("lm_head.weight", linear, c.VocabSize, h)
	}
	return l.tensors
}

// gemmaLayer adds layer i. A layer that uses the keys and values of another one has its own projections for them all
// the same, as in the published checkpoints.
func (l *list) gemmaLayer(c *huggingface.Gemma4, i int) {
	h, g := c.HiddenSize, c.Sliding
	if c.Layers[i] == huggingface.FullAttention {
		g = c.Full
	}
	l.add("input_layernorm.weight", plainNorm, h)
	l.add("self_attn.q_proj.weight", linear, g.Heads*g.HeadDim, h)
	l.add("self_attn.k_proj.weight", linear, g.KVHeads*g.HeadDim, h)
	if c.Layers[i] == huggingface.SlidingAttention || c.FullValues {
		l.add("self_attn.v_proj.weight", linear, g.KVHeads*g.HeadDim, h)
	}
	l.add("self_attn.o_proj.weight", linear, h, g.Heads*g.HeadDim)
	l.add("self_attn.q_norm.weight", plainNorm, g.HeadDim)
	l.add("self_attn.k_norm.weight", plainNorm, g.HeadDim)
	l.add("post_attention_layernorm.weight", plainNorm, h)
	l.add("pre_feedforward_layernorm.weight", plainNorm, h)
	l.mlp("mlp.", c.MLPRows(i), h)
	l.add("post_feedforward_layernorm.weight", plainNorm, h)
	l.add("layer_scalar", one, 1)
	if c.Experts > 0 {
		l.add("router.proj.weight", linear, c.Experts, h)
		l.add("router.scale", plainNorm, h)
		l.add("router.per_expert_scale", plainNorm, c.Experts)
		l.add("experts.gate_up_proj", linear, c.Experts, 2*c.ExpertIntermediate, h)
		l.add("experts.down_proj", linear, c.Experts, h, c.ExpertIntermediate)
		l.add("post_feedforward_layernorm_1.weight", plainNorm, h)
		l.add("pre_feedforward_layernorm_2.weight", plainNorm, h)
		l.add("post_feedforward_layernorm_2.weight", plainNorm, h)
	}
	if c.PerLayerInput > 0 {
		l.add("per_layer_input_gate.weight", linear, c.PerLayerInput, h)
		l.add("per_layer_projection.weight", linear, h, c.PerLayerInput)
		l.add("post_per_layer_input_norm.weight", plainNorm, h)
	}
}

func museTensors(c *huggingface.MuseGlimmer) []tensor {
	l := &list{prefix: prefix}
	h := c.HiddenSize
	l.add("embed_tokens.weight", linear, c.VocabSize, h)
	for i := range c.Layers {
		l.prefix = fmt.Sprintf("%slayers.%d.", prefix, i)
		l.add("input_layernorm.weight", offsetNorm, h)
		l.add("self_attn.q_proj.weight", linear, c.Heads*c.HeadDim, h)
		l.add("self_attn.k_proj.weight", linear, c.KVHeads*c.HeadDim, h)
		l.add("self_attn.v_proj.weight", linear, c.KVHeads*c.HeadDim, h)
		l.add("self_attn.gate_proj.weight", linear, c.Heads*c.HeadDim, h)
		l.add("self_attn.o_proj.weight", linear, h, c.Heads*c.HeadDim)
		l.add("post_attention_layernorm.weight", offsetNorm, h)
		l.add("pre_feedforward_layernorm.weight", offsetNorm, h)
		l.mlp("mlp.", c.Intermediate, h)
		l.add("post_feedforward_layernorm.weight", offsetNorm, h)
	}
	l.prefix = prefix
	l.add("norm.weight", plainNorm, h)
	if !c.TieWordEmbeddings {
		l.prefix = ""
		l.add("lm_head.weight", linear, c.VocabSize, h)
	}
	return l.tensors
}
