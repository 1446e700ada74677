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
	logDecay weight // [Hv], A_log, float32; or else
	rate     weight // [Hv], -exp(A_log), float32
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
	w := weights{embedding: t.Matrix("embed_tokens.weight", c.VocabSize, c.HiddenSize)}
	layout := layout{t, t.Multipliers || hasMLXLayout(c, t)}
	for i, kind := range c.Layers {
		l := layer{prefix: fmt.Sprintf("layers.%d", i)}
		l.inputNorm = layout.norm(l.prefix+".input_layernorm.weight", c.HiddenSize)
		if kind == huggingface.FullAttention {
			l.attention = readAttention(c, t, layout, l.prefix+".self_attn.")
		} else {
			l.deltaNet = readDeltaNet(c, t, layout, l.prefix+".linear_attn.")
		}
		l.attentionNorm = layout.norm(l.prefix+".post_attention_layernorm.weight", c.HiddenSize)
		l.experts = readExperts(c, t, l.prefix+".mlp.")
		w.layers = append(w.layers, l)
	}
	w.norm = layout.norm("norm.weight", c.HiddenSize)
	w.head = w.embedding
	if !c.TieWordEmbeddings || t.Has(builder.Head) {
		w.head = t.Matrix(builder.Head, c.VocabSize, c.HiddenSize)
	}
	return w
}

func readAttention(c *huggingface.Qwen35MoE, t *builder.Tensors, layout layout, prefix string) *attention {
	h := c.HiddenSize
	return &attention{
		query:     t.Matrix(prefix+"q_proj.weight", 2*c.Heads*c.HeadDim, h),
		key:       t.Matrix(prefix+"k_proj.weight", c.KVHeads*c.HeadDim, h),
		value:     t.Matrix(prefix+"v_proj.weight", c.KVHeads*c.HeadDim, h),
		output:    t.Matrix(prefix+"o_proj.weight", h, c.Heads*c.HeadDim),
		queryNorm: layout.norm(prefix+"q_norm.weight", c.HeadDim),
		keyNorm:   layout.norm(prefix+"k_norm.weight", c.HeadDim),
	}
}

func readDeltaNet(c *huggingface.Qwen35MoE, t *builder.Tensors, layout layout, prefix string) *deltaNet {
	h, heads, channels := c.HiddenSize, c.LinearValueHeads, c.ConvChannels()
	width := heads * c.LinearValueHeadDim
	d := &deltaNet{
		qkv:      t.Matrix(prefix+"in_proj_qkv.weight", channels, h),
		z:        t.Matrix(prefix+"in_proj_z.weight", width, h),
		b:        t.Matrix(prefix+"in_proj_b.weight", heads, h),
		a:        t.Matrix(prefix+"in_proj_a.weight", heads, h),
		stepBias: t.Weight(prefix+"dt_bias", heads).Float32(),
		norm:     t.Weight(prefix+"norm.weight", c.LinearValueHeadDim),
		output:   t.Matrix(prefix+"out_proj.weight", h, width),
	}
	if layout.mlx {
		d.conv = t.Weight(prefix+"conv1d.weight", channels, c.ConvKernel, 1)
	} else {
		d.conv = t.Weight(prefix+"conv1d.weight", channels, 1, c.ConvKernel).Reshape(channels, c.ConvKernel, 1)
	}
	if t.Has(prefix + Rate) {
		d.rate = t.Weight(prefix+Rate, heads).Float32()
	} else {
		d.logDecay = t.Weight(prefix+"A_log", heads).Float32()
	}
	return d
}

// Rate is the name behind a delta net's prefix of -exp(A_log) [Hv], which some formats hold instead of A_log.
const Rate = "A"

// layout is how a checkpoint holds what transformers and MLX hold differently: MLX has the convolution as
// [C,taps,1], transformers as [C,1,taps], and MLX then has norms as what they multiply by
// (mlx_lm/models/qwen3_5.py, sanitize).
type layout struct {
	tensors *builder.Tensors
	mlx     bool
}

// hasMLXLayout reports whether every convolution has MLX's layout.
func hasMLXLayout(c *huggingface.Qwen35MoE, t *builder.Tensors) bool {
	found := false
	for i, kind := range c.Layers {
		if kind != huggingface.LinearAttention {
			continue
		}
		if !t.HasShape(fmt.Sprintf("layers.%d.linear_attn.conv1d.weight", i), c.ConvChannels(), c.ConvKernel, 1) {
			return false
		}
		found = true
	}
	return found && c.ConvKernel > 1
}

// norm reads a norm as what it multiplies by.
func (l layout) norm(name string, size int) weight {
	w := l.tensors.Weight(name, size)
	if l.mlx {
		return w.Float32()
	}
	return w.OnePlus()
}

func readExperts(c *huggingface.Qwen35MoE, t *builder.Tensors, prefix string) experts {
	h, shared := c.HiddenSize, c.SharedExpertIntermediate
	e := experts{
		router:       t.Matrix(prefix+"gate.weight", c.Experts, h),
		sharedGate:   t.Matrix(prefix+"shared_expert.gate_proj.weight", shared, h),
		sharedUp:     t.Matrix(prefix+"shared_expert.up_proj.weight", shared, h),
		sharedDown:   t.Matrix(prefix+"shared_expert.down_proj.weight", h, shared),
		sharedRouter: t.Matrix(prefix+"shared_expert_gate.weight", 1, h),
	}
	n, rows, routed := c.Experts, c.ExpertIntermediate, prefix+"experts."
	if t.HasUnder(routed + "0.") { // one by one
		stack := func(name string, shape ...int) weight {
			return t.Stack(routed+name, n, func(i int) string { return fmt.Sprintf("%s%d.%s.weight", routed, i, name) }, shape...)
		}
		e.gate, e.up, e.down = stack("gate_proj", rows, h), stack("up_proj", rows, h), stack("down_proj", h, rows)
		return e
	}
	for _, separate := range []string{routed, prefix + "switch_mlp."} { // the latter is mlx-lm's name
		if t.Has(separate + "gate_proj.weight") {
			stack := func(name string, shape ...int) weight {
				w := t.Matrix(separate+name+".weight", shape...)
				w.Name = routed + name
				return w
			}
			e.gate, e.up, e.down = stack("gate_proj", n, rows, h), stack("up_proj", n, rows, h), stack("down_proj", n, h, rows)
			return e
		}
	}
	gateUp := t.Matrix(routed+"gate_up_proj", n, 2*rows, h)
	e.gate, e.up = gateUp.Part(routed+"gate_proj", 0, rows), gateUp.Part(routed+"up_proj", rows, rows)
	e.down = t.Matrix(routed+"down_proj", n, h, rows)
	return e
}
