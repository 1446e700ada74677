package qwen35moe

import (
	"fmt"

	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// weight is a shorthand for the many fields below.
type weight = builder.Weight

// weights are the tensors of the language model. Norms are given as what they multiply by.
type weights struct {
	embedding weight // [V,H]
	layers    []layer
	norm      weight // [H]
	head      weight // [V,H]; the embedding if it is tied
}

type layer struct {
	prefix        string // of names: "layers.0"
	inputNorm     weight // [H]
	attention     *attention
	deltaNet      *deltaNet
	attentionNorm weight // [H], before the experts
	experts       experts
}

// attention is gated full attention with H heads of queries, KV of keys and values, D elements each.
type attention struct {
	query      weight // [2·H·D,hidden]: for each head its rows of the query, then those of the gate
	key, value weight // [KV·D,hidden]
	output     weight // [hidden,H·D]
	queryNorm  weight // [D]
	keyNorm    weight // [D]
}

// deltaNet is a gated delta net with Hk heads of queries and keys of Dk elements and Hv heads of values of Dv.
type deltaNet struct {
	qkv      weight // [2·Hk·Dk+Hv·Dv,hidden]: rows of q, k and v
	z        weight // [Hv·Dv,hidden]: output gate
	b, a     weight // [Hv,hidden]: beta and step size
	conv     weight // [C,taps,1], the layout of MLX: C = channels of qkv
	logDecay weight // [Hv], A_log, float32
	stepBias weight // [Hv], dt_bias, float32
	norm     weight // [Dv], plain
	output   weight // [hidden,Hv·Dv]
}

// experts are the E routed experts and the shared one, with I rows each.
type experts struct {
	router                           weight // [E,hidden]
	gate, up                         weight // [E,I,hidden]
	down                             weight // [E,hidden,I]
	sharedGate, sharedUp, sharedDown weight
	sharedRouter                     weight // [1,hidden]
}

// read asks for all tensors; what is missing is noted in t.
func read(c *huggingface.Qwen35MoE, t *builder.Tensors) weights {
	w := weights{embedding: t.Weight("embed_tokens.weight", c.VocabSize, c.HiddenSize)}
	for i, kind := range c.Layers {
		l := layer{prefix: fmt.Sprintf("layers.%d", i)}
		l.inputNorm = t.Weight(l.prefix+".input_layernorm.weight", c.HiddenSize).OnePlus()
		if kind == huggingface.FullAttention {
			l.attention = readAttention(c, t, l.prefix+".self_attn.")
		} else {
			l.deltaNet = readDeltaNet(c, t, l.prefix+".linear_attn.")
		}
		l.attentionNorm = t.Weight(l.prefix+".post_attention_layernorm.weight", c.HiddenSize).OnePlus()
		l.experts = readExperts(c, t, l.prefix+".mlp.")
		w.layers = append(w.layers, l)
	}
	w.norm = t.Weight("norm.weight", c.HiddenSize).OnePlus()
	w.head = w.embedding
	if !c.TieWordEmbeddings || t.Has(builder.Head) {
		w.head = t.Weight(builder.Head, c.VocabSize, c.HiddenSize)
	}
	return w
}

func readAttention(c *huggingface.Qwen35MoE, t *builder.Tensors, prefix string) *attention {
	h := c.HiddenSize
	return &attention{
		query:     t.Weight(prefix+"q_proj.weight", 2*c.Heads*c.HeadDim, h),
		key:       t.Weight(prefix+"k_proj.weight", c.KVHeads*c.HeadDim, h),
		value:     t.Weight(prefix+"v_proj.weight", c.KVHeads*c.HeadDim, h),
		output:    t.Weight(prefix+"o_proj.weight", h, c.Heads*c.HeadDim),
		queryNorm: t.Weight(prefix+"q_norm.weight", c.HeadDim).OnePlus(),
		keyNorm:   t.Weight(prefix+"k_norm.weight", c.HeadDim).OnePlus(),
	}
}

func readDeltaNet(c *huggingface.Qwen35MoE, t *builder.Tensors, prefix string) *deltaNet {
	h, heads, channels := c.HiddenSize, c.LinearValueHeads, c.ConvChannels()
	width := heads * c.LinearValueHeadDim
	return &deltaNet{
		qkv:      t.Weight(prefix+"in_proj_qkv.weight", channels, h),
		z:        t.Weight(prefix+"in_proj_z.weight", width, h),
		b:        t.Weight(prefix+"in_proj_b.weight", heads, h),
		a:        t.Weight(prefix+"in_proj_a.weight", heads, h),
		conv:     t.Weight(prefix+"conv1d.weight", channels, 1, c.ConvKernel).Reshape(channels, c.ConvKernel, 1),
		logDecay: t.Weight(prefix+"A_log", heads).Float32(),
		stepBias: t.Weight(prefix+"dt_bias", heads).Float32(),
		norm:     t.Weight(prefix+"norm.weight", c.LinearValueHeadDim),
		output:   t.Weight(prefix+"out_proj.weight", h, width),
	}
}

func readExperts(c *huggingface.Qwen35MoE, t *builder.Tensors, prefix string) experts {
	h, shared := c.HiddenSize, c.SharedExpertIntermediate
	e := experts{
		router:       t.Weight(prefix+"gate.weight", c.Experts, h),
		sharedGate:   t.Weight(prefix+"shared_expert.gate_proj.weight", shared, h),
		sharedUp:     t.Weight(prefix+"shared_expert.up_proj.weight", shared, h),
		sharedDown:   t.Weight(prefix+"shared_expert.down_proj.weight", h, shared),
		sharedRouter: t.Weight(prefix+"shared_expert_gate.weight", 1, h),
	}
	n, rows, routed := c.Experts, c.ExpertIntermediate, prefix+"experts."
	if t.HasUnder(routed + "0.") { // one by one
		stack := func(name string, shape ...int) weight {
			return t.Stack(routed+name, n, func(i int) string { return fmt.Sprintf("%s%d.%s.weight", routed, i, name) }, shape...)
		}
		e.gate, e.up, e.down = stack("gate_proj", rows, h), stack("up_proj", rows, h), stack("down_proj", h, rows)
		return e
	}
	gateUp := t.Weight(routed+"gate_up_proj", n, 2*rows, h)
	e.gate, e.up = gateUp.Part(routed+"gate_proj", 0, rows), gateUp.Part(routed+"up_proj", rows, rows)
	e.down = t.Weight(routed+"down_proj", n, h, rows)
	return e
}
