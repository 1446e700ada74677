package synthetic

import (
	"fmt"

	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// prefix is what the language model's tensors are named under in multimodal checkpoints.
const prefix = "model.language_model."

// Distributions that keep activations in the range of trained models.
var (
	linear     = distribution{0, 0.02} // projections, embeddings, experts: the initializer_range of both families
	offsetNorm = distribution{0, 0.02} // norms that multiply by 1+w
	plainNorm  = distribution{1, 0.02} // norms that multiply by w
	one        = distribution{1, 0}    // layer_scalar
	convTap    = distribution{0, 0.25} // as of uniform numbers up to 1/√4
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

// tensors lists the tensors of a checkpoint, layer by layer.
func tensors(config huggingface.Config) ([]tensor, error) {
	switch c := config.(type) {
	case *huggingface.Qwen:
		return qwenTensors(c), nil
	case *huggingface.Gemma4:
		return gemmaTensors(c), nil
	}
	return nil, fmt.Errorf("expected a configuration of Qwen3.5-MoE or Gemma4, found %T", config)
}

// Bytes is the size of the weights of a checkpoint of the given configuration.
func Bytes(config huggingface.Config) (int64, error) {
	list, err := tensors(config)
	total := int64(0)
	for _, t := range list {
		total += t.bytes()
	}
	return total, err
}

// list collects tensors under a prefix.
type list struct {
	prefix  string
	tensors []tensor
}

func (l *list) add(name string, d distribution, shape ...int) {
	l.tensors = append(l.tensors, tensor{l.prefix + name, safetensors.BF16, shape, d})
}

// addF32 is for the tensors that the published Qwen checkpoints keep in float32.
func (l *list) addF32(name string, d distribution, shape ...int) {
	l.tensors = append(l.tensors, tensor{l.prefix + name, safetensors.F32, shape, d})
}

func qwenTensors(c *huggingface.Qwen) []tensor {
	l := &list{prefix: prefix}
	h := c.HiddenSize
	l.add("embed_tokens.weight", linear, c.VocabSize, h)
	for i, kind := range c.Layers {
		l.prefix = fmt.Sprintf("%slayers.%d.", prefix, i)
		l.add("input_layernorm.weight", offsetNorm, h)
		if kind == huggingface.FullAttention {
			l.add("self_attn.q_proj.weight", linear, 2*c.Heads*c.HeadDim, h)
			l.add("self_attn.k_proj.weight", linear, c.KVHeads*c.HeadDim, h)
			l.add("self_attn.v_proj.weight", linear, c.KVHeads*c.HeadDim, h)
			l.add("self_attn.o_proj.weight", linear, h, c.Heads*c.HeadDim)
			l.add("self_attn.q_norm.weight", offsetNorm, c.HeadDim)
			l.add("self_attn.k_norm.weight", offsetNorm, c.HeadDim)
		} else {
			value := c.LinearValueHeads * c.LinearValueHeadDim
			l.add("linear_attn.in_proj_qkv.weight", linear, c.ConvChannels(), h)
			l.add("linear_attn.in_proj_z.weight", linear, value, h)
			l.add("linear_attn.in_proj_b.weight", linear, c.LinearValueHeads, h)
			l.add("linear_attn.in_proj_a.weight", linear, c.LinearValueHeads, h)
			l.add("linear_attn.conv1d.weight", convTap, c.ConvChannels(), 1, c.ConvKernel)
			l.addF32("linear_attn.A_log", logDecay, c.LinearValueHeads)
			l.add("linear_attn.dt_bias", stepBias, c.LinearValueHeads)
			l.addF32("linear_attn.norm.weight", plainNorm, c.LinearValueHeadDim)
			l.add("linear_attn.out_proj.weight", linear, h, value)
		}
		l.add("post_attention_layernorm.weight", offsetNorm, h)
		l.add("mlp.gate.weight", linear, c.Experts, h)
		l.add("mlp.experts.gate_up_proj", linear, c.Experts, 2*c.ExpertIntermediate, h)
		l.add("mlp.experts.down_proj", linear, c.Experts, h, c.ExpertIntermediate)
		l.add("mlp.shared_expert.gate_proj.weight", linear, c.SharedExpertIntermediate, h)
		l.add("mlp.shared_expert.up_proj.weight", linear, c.SharedExpertIntermediate, h)
		l.add("mlp.shared_expert.down_proj.weight", linear, h, c.SharedExpertIntermediate)
		l.add("mlp.shared_expert_gate.weight", linear, 1, h)
	}
	l.prefix = prefix
	l.add("norm.weight", offsetNorm, h)
	if !c.TieWordEmbeddings {
		l.prefix = ""
		l.add("lm_head.weight", linear, c.VocabSize, h)
	}
	return l.tensors
}

func gemmaTensors(c *huggingface.Gemma4) []tensor {
	l := &list{prefix: prefix}
	h := c.HiddenSize
	l.add("embed_tokens.weight", linear, c.VocabSize, h)
	for i, kind := range c.Layers {
		l.prefix = fmt.Sprintf("%slayers.%d.", prefix, i)
		g := c.Sliding
		if kind == huggingface.FullAttention {
			g = c.Full
		}
		l.add("input_layernorm.weight", plainNorm, h)
		l.add("self_attn.q_proj.weight", linear, g.Heads*g.HeadDim, h)
		l.add("self_attn.k_proj.weight", linear, g.KVHeads*g.HeadDim, h)
		if kind == huggingface.SlidingAttention {
			l.add("self_attn.v_proj.weight", linear, g.KVHeads*g.HeadDim, h)
		}
		l.add("self_attn.o_proj.weight", linear, h, g.Heads*g.HeadDim)
		l.add("self_attn.q_norm.weight", plainNorm, g.HeadDim)
		l.add("self_attn.k_norm.weight", plainNorm, g.HeadDim)
		l.add("post_attention_layernorm.weight", plainNorm, h)
		l.add("pre_feedforward_layernorm.weight", plainNorm, h)
		l.add("mlp.gate_proj.weight", linear, c.IntermediateSize, h)
		l.add("mlp.up_proj.weight", linear, c.IntermediateSize, h)
		l.add("mlp.down_proj.weight", linear, h, c.IntermediateSize)
		l.add("post_feedforward_layernorm.weight", plainNorm, h)
		l.add("layer_scalar", one, 1)
	}
	l.prefix = prefix
	l.add("norm.weight", plainNorm, h)
	if !c.TieWordEmbeddings {
		l.prefix = ""
		l.add("lm_head.weight", linear, c.VocabSize, h)
	}
	return l.tensors
}
