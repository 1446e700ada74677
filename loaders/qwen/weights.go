package qwen

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
	attentionNorm weight // [H], before the MLP or the experts
	mlp           *mlp   // nil where there are experts
	experts       *experts
}

// mlp is a gated MLP with I rows.
type mlp struct {
	gate, up, down weight // [I,hidden], [I,hidden], [hidden,I]
}

// attention is gated full attention with H heads of queries, KV of keys and values, D elements each.
type attention struct {
	query      weight // [2·H·D,hidden]: for each head its rows of the query, then those of the gate; or [H·D,hidden]
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

// experts are the E routed experts with I rows each, and the shared one.
type experts struct {
	router       weight // [E,hidden]
	gate, up     weight // [E,I,hidden]
	down         weight // [E,hidden,I]
	shared       *mlp   // nil for none
	sharedRouter weight // [1,hidden]
}

// read asks for all tensors; what is missing is noted in t.
func read(c *huggingface.Qwen, t *builder.Tensors, layout layout) weights {
	w := weights{embedding: t.Matrix("embed_tokens.weight", c.VocabSize, c.HiddenSize)}
	for i, kind := range c.Layers {
		w.layers = append(w.layers, readLayer(c, t, layout, fmt.Sprintf("layers.%d", i), kind, c.HasExperts(i)))
	}
	w.norm = layout.norm("norm.weight", c.HiddenSize)
	w.head = w.embedding
	if !c.TieWordEmbeddings || t.Has(builder.Head) {
		w.head = t.Matrix(builder.Head, c.VocabSize, c.HiddenSize)
	}
	return w
}

// readLayer asks for the tensors of a layer, whose names begin with prefix.
func readLayer(c *huggingface.Qwen, t *builder.Tensors, layout layout, prefix string, kind huggingface.LayerKind,
	hasExperts bool) layer {
	l := layer{prefix: prefix}
	l.inputNorm = layout.norm(l.prefix+".input_layernorm.weight", c.HiddenSize)
	if kind == huggingface.FullAttention {
		l.attention = readAttention(c, t, layout, l.prefix+".self_attn.")
	} else {
		l.deltaNet = readDeltaNet(c, t, layout, l.prefix+".linear_attn.")
	}
	l.attentionNorm = layout.norm(l.prefix+".post_attention_layernorm.weight", c.HiddenSize)
	if hasExperts {
		l.experts = readExperts(c, t, l.prefix+".mlp.")
	} else {
		l.mlp = readMLP(t, l.prefix+".mlp.", c.Intermediate, c.HiddenSize)
	}
	return l
}

func readAttention(c *huggingface.Qwen, t *builder.Tensors, layout layout, prefix string) *attention {
	h, rows := c.HiddenSize, c.Heads*c.HeadDim
	if !c.NoGate {
		rows *= 2
	}
	// A factor of the rotation becomes one of the norm in front of it.
	scaled := func(name string) weight {
		return layout.norm(prefix+name, c.HeadDim).ScaleRotated(c.RotaryDim, builder.RopeAttention(c.RopeScaling))
	}
	return &attention{
		query:     t.Matrix(prefix+"q_proj.weight", rows, h),
		key:       t.Matrix(prefix+"k_proj.weight", c.KVHeads*c.HeadDim, h),
		value:     t.Matrix(prefix+"v_proj.weight", c.KVHeads*c.HeadDim, h),
		output:    t.Matrix(prefix+"o_proj.weight", h, c.Heads*c.HeadDim),
		queryNorm: scaled("q_norm.weight"),
		keyNorm:   scaled("k_norm.weight"),
	}
}

func readDeltaNet(c *huggingface.Qwen, t *builder.Tensors, layout layout, prefix string) *deltaNet {
	h, heads, channels := c.HiddenSize, c.LinearValueHeads, c.ConvChannels()
	width := heads * c.LinearValueHeadDim
	d := &deltaNet{
		stepBias: t.Weight(prefix+"dt_bias", heads).Float32(),
		norm:     t.Weight(prefix+"norm.weight", c.LinearValueHeadDim),
		output:   t.Matrix(prefix+"out_proj.weight", h, width),
	}
	if c.JointProjections && !t.Has(prefix+"in_proj_qkv.weight") {
		d.splitProjections(c, t.Matrix(prefix+"in_proj_qkvz.weight", channels+width, h), prefix)
	} else {
		d.qkv, d.z = t.Matrix(prefix+"in_proj_qkv.weight", channels, h), t.Matrix(prefix+"in_proj_z.weight", width, h)
	}
	if c.JointProjections && !t.Has(prefix+"in_proj_b.weight") {
		d.splitGates(c, t.Matrix(prefix+"in_proj_ba.weight", 2*heads, h), prefix)
	} else {
		d.b, d.a = t.Matrix(prefix+"in_proj_b.weight", heads, h), t.Matrix(prefix+"in_proj_a.weight", heads, h)
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

// splitProjections takes a joint projection apart, whose rows are grouped by key head: [q | k | v | z], with the values
// of all heads that use that key.
func (d *deltaNet) splitProjections(c *huggingface.Qwen, qkvz weight, prefix string) {
	values := c.LinearValueHeads / c.LinearKeyHeads
	keyRows, valueRows := c.LinearKeyHeadDim, values*c.LinearValueHeadDim
	group := 2*keyRows + 2*valueRows
	q, k, v := builder.Span{0, keyRows}, builder.Span{keyRows, keyRows}, builder.Span{2 * keyRows, valueRows}
	z := builder.Span{2*keyRows + valueRows, valueRows}
	d.qkv = qkvz.GroupedRows(prefix+"in_proj_qkv.weight", c.LinearKeyHeads, group, q, k, v)
	d.z = qkvz.GroupedRows(prefix+"in_proj_z.weight", c.LinearKeyHeads, group, z)
}

// splitGates is splitProjections for [b | a].
func (d *deltaNet) splitGates(c *huggingface.Qwen, ba weight, prefix string) {
	values := c.LinearValueHeads / c.LinearKeyHeads
	d.b = ba.GroupedRows(prefix+"in_proj_b.weight", c.LinearKeyHeads, 2*values, builder.Span{0, values})
	d.a = ba.GroupedRows(prefix+"in_proj_a.weight", c.LinearKeyHeads, 2*values, builder.Span{values, values})
}

// Rate is the name after a delta net's prefix of -exp(A_log) [Hv], which some formats hold instead of A_log.
const Rate = "A"

// layout is how a checkpoint holds what transformers and MLX hold differently: MLX has the convolution as
// [C,taps,1], transformers as [C,1,taps], and MLX then has norms as what they multiply by
// (mlx_lm/models/qwen3_5.py, sanitize).
type layout struct {
	tensors          *builder.Tensors
	mlx, multipliers bool
}

// layoutOf finds the layout of a checkpoint.
func layoutOf(c *huggingface.Qwen, t *builder.Tensors) layout {
	l := layout{t, hasMLXLayout(c, t), c.PlainNorms}
	l.multipliers = l.multipliers || l.mlx || t.Multipliers
	return l
}

// hasMLXLayout reports whether every convolution has MLX's layout.
func hasMLXLayout(c *huggingface.Qwen, t *builder.Tensors) bool {
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

// norm reads the weight of a norm, as a factor.
func (l layout) norm(name string, size int) weight {
	w := l.tensors.Weight(name, size)
	if l.multipliers {
		return w.Float32()
	}
	return w.OnePlus()
}

func readMLP(t *builder.Tensors, prefix string, rows, hidden int) *mlp {
	return &mlp{
		gate: t.Matrix(prefix+"gate_proj.weight", rows, hidden),
		up:   t.Matrix(prefix+"up_proj.weight", rows, hidden),
		down: t.Matrix(prefix+"down_proj.weight", hidden, rows),
	}
}

func readExperts(c *huggingface.Qwen, t *builder.Tensors, prefix string) *experts {
	h := c.HiddenSize
	e := &experts{router: t.Matrix(prefix+"gate.weight", c.Experts, h)}
	if c.SharedExpertIntermediate > 0 {
		e.shared = readMLP(t, prefix+"shared_expert.", c.SharedExpertIntermediate, h)
		e.sharedRouter = t.Matrix(prefix+"shared_expert_gate.weight", 1, h)
	}
	e.gate, e.up, e.down = t.Experts(prefix, c.Experts, c.ExpertIntermediate, h)
	return e
}
