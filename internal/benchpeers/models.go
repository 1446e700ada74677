package main

import (
	"fmt"
	"math"
)

// model is a published model with fewer layers.
type model struct {
	name      string // in results and file names
	label     string // in tables
	synthetic string // what etc synthetic calls it
	layers    int
	gguf      func(layers int) *gguf
}

func models() map[string]model {
	all := map[string]model{}
	add := func(name, label, synthetic string, gguf func(layers int) *gguf, layers ...int) {
		for _, n := range layers {
			all[fmt.Sprintf("%s%d", name, n)] = model{fmt.Sprintf("%s%d", name, n),
				fmt.Sprintf("%s, %d layers", label, n), synthetic, n, gguf}
		}
	}
	add("qwen", "Qwen3.5-35B-A3B", "qwen35moe-35b", qwen35MoE.gguf, 4, 8, 12, 40)
	add("gemma", "Gemma4-31B", "gemma4-31b", gemma31B.gguf, 6, 12, 60)
	add("qwen-dense", "Qwen3.5-27B", "qwen35-27b", qwen35Dense.gguf, 4, 8, 64)
	add("qwen-next", "Qwen3-Next-80B-A3B", "qwen3next-80b", qwen3Next.gguf, 4, 16)
	add("gemma-moe", "Gemma4-26B-A4B", "gemma4-26b", gemma26B.gguf, 6, 12, 30)
	return all
}

// modelNamed returns the model of that name.
func modelNamed(name string) (model, error) {
	m, ok := models()[name]
	if !ok {
		return model{}, fmt.Errorf("-models: there is no %q", name)
	}
	return m, nil
}

func start(arch string, layers int) *gguf {
	g := &gguf{}
	g.set("general.architecture", arch)
	g.set("general.name", "synthetic")
	g.set("general.quantization_version", uint32(2))
	g.set("tokenizer.ggml.model", "no_vocab")
	g.set(arch+".block_count", uint32(layers))
	g.set(arch+".context_length", uint32(32768))
	g.set(arch+".attention.layer_norm_rms_epsilon", float32(1e-6))
	return g
}

// qwen has the dimensions of a Qwen model whose layers are gated delta nets, but for every fourth, which has attention.
type qwen struct {
	arch                 string
	hidden, vocab        uint64
	heads, kvHeads       uint64 // heads of attention, each of 256 numbers
	keyHeads, valueHeads uint64 // heads of the delta nets, each of 128 numbers
	inner                uint64 // inner width of a feed-forward network: of each expert and of the shared one
	experts, used        uint64 // experts of a layer, and those that a token uses; 0: a layer has one network
	together             bool   // one product computes both gates of a delta net
}

var (
	qwen35MoE   = qwen{"qwen35moe", 2048, 248320, 16, 2, 16, 32, 512, 256, 8, false}
	qwen35Dense = qwen{"qwen35", 5120, 248320, 24, 4, 16, 48, 17408, 0, 0, false}
	qwen3Next   = qwen{"qwen3next", 2048, 151936, 16, 2, 16, 32, 512, 512, 10, true}
)

func (q qwen) gguf(layers int) *gguf {
	g := start(q.arch, layers)
	entries := []entry{
		{"vocab_size", uint32(q.vocab)}, {"embedding_length", uint32(q.hidden)},
		{"feed_forward_length", uint32(q.inner)},
		{"attention.head_count", uint32(q.heads)}, {"attention.head_count_kv", uint32(q.kvHeads)},
		{"attention.key_length", uint32(256)}, {"attention.value_length", uint32(256)},
		{"rope.freq_base", float32(1e7)}, {"rope.dimension_count", uint32(64)},
		{"ssm.conv_kernel", uint32(4)}, {"ssm.inner_size", uint32(q.valueHeads * 128)}, {"ssm.state_size", uint32(128)},
		{"ssm.time_step_rank", uint32(q.valueHeads)}, {"ssm.group_count", uint32(q.keyHeads)},
		{"full_attention_interval", uint32(4)},
	}
	if !q.together {
		entries = append(entries, entry{"rope.dimension_sections", []int32{11, 11, 10, 0}})
	}
	if q.experts > 0 {
		entries = append(entries, entry{"expert_count", uint32(q.experts)}, entry{"expert_used_count", uint32(q.used)},
			entry{"expert_feed_forward_length", uint32(q.inner)},
			entry{"expert_shared_feed_forward_length", uint32(q.inner)})
	}
	for _, e := range entries {
		g.set(q.arch+"."+e.key, e.value)
	}
	g.quantized("token_embd.weight", q.hidden, q.vocab)
	g.tensors[0].active = 0 // one row of it
	g.constant("output_norm.weight", 1, q.hidden)
	g.quantized("output.weight", q.hidden, q.vocab)
	for i := range layers {
		b := fmt.Sprintf("blk.%d.", i)
		g.constant(b+"attn_norm.weight", 1, q.hidden)
		g.constant(b+"post_attention_norm.weight", 1, q.hidden)
		if (i+1)%4 == 0 {
			g.quantized(b+"attn_q.weight", q.hidden, 2*q.heads*256)
			g.quantized(b+"attn_k.weight", q.hidden, q.kvHeads*256)
			g.quantized(b+"attn_v.weight", q.hidden, q.kvHeads*256)
			g.quantized(b+"attn_output.weight", q.heads*256, q.hidden)
			g.constant(b+"attn_q_norm.weight", 1, 256)
			g.constant(b+"attn_k_norm.weight", 1, 256)
		} else {
			q.deltaNet(g, b)
		}
		q.network(g, b)
	}
	return g
}

func (q qwen) deltaNet(g *gguf, block string) {
	values, all := q.valueHeads*128, (2*q.keyHeads+q.valueHeads)*128
	g.quantized(block+"attn_qkv.weight", q.hidden, all)
	g.quantized(block+"attn_gate.weight", q.hidden, values)
	g.constant(block+"ssm_conv1d.weight", 0.3, 4, all)
	g.constant(block+"ssm_dt.bias", 0.1, q.valueHeads)
	g.constant(block+"ssm_a", -1, q.valueHeads)
	if q.together {
		g.tensors = append(g.tensors, tensor{block + "ssm_ba.weight", typeQ8_0, []uint64{q.hidden, 2 * q.valueHeads}, 0,
			1})
	} else {
		g.tensors = append(g.tensors, tensor{block + "ssm_beta.weight", typeQ8_0, []uint64{q.hidden, q.valueHeads}, 0,
			1},
			tensor{block + "ssm_alpha.weight", typeQ8_0, []uint64{q.hidden, q.valueHeads}, 0, 1})
	}
	g.constant(block+"ssm_norm.weight", 1, 128)
	g.quantized(block+"ssm_out.weight", values, q.hidden)
}

func (q qwen) network(g *gguf, block string) {
	if q.experts == 0 {
		g.quantized(block+"ffn_gate.weight", q.hidden, q.inner)
		g.quantized(block+"ffn_up.weight", q.hidden, q.inner)
		g.quantized(block+"ffn_down.weight", q.inner, q.hidden)
		return
	}
	g.constant(block+"ffn_gate_inp.weight", float32(math.NaN()), q.hidden, q.experts)
	g.expert(block+"ffn_down_exps.weight", q.used, q.inner, q.hidden, q.experts)
	g.expert(block+"ffn_gate_exps.weight", q.used, q.hidden, q.inner, q.experts)
	g.expert(block+"ffn_up_exps.weight", q.used, q.hidden, q.inner, q.experts)
	g.constant(block+"ffn_gate_inp_shexp.weight", 0.01, q.hidden)
	g.quantized(block+"ffn_gate_shexp.weight", q.hidden, q.inner)
	g.quantized(block+"ffn_up_shexp.weight", q.hidden, q.inner)
	g.quantized(block+"ffn_down_shexp.weight", q.inner, q.hidden)
}

// gemma has the dimensions of a model in which every sixth layer has full attention, with heads of 512 numbers, and the
// others have sliding windows, with heads of 256.
type gemma struct {
	hidden, inner           uint64
	heads, kvHeads, kvFull  uint64
	experts, used, inExpert uint64 // beside the network; 0: none
}

var (
	gemma31B = gemma{5376, 21504, 32, 16, 4, 0, 0, 0}
	gemma26B = gemma{2816, 2112, 16, 8, 2, 128, 8, 704}
)

func (m gemma) gguf(layers int) *gguf {
	const a, vocab = "gemma4.", 262144
	g := start("gemma4", layers)
	kvHeads, sliding := make([]int32, layers), make([]bool, layers)
	for i := range layers {
		kvHeads[i], sliding[i] = int32(m.kvHeads), (i+1)%6 != 0
		if !sliding[i] {
			kvHeads[i] = int32(m.kvFull)
		}
	}
	entries := []entry{
		{"vocab_size", uint32(vocab)}, {"embedding_length", uint32(m.hidden)}, {"feed_forward_length", uint32(m.inner)},
		{"attention.head_count", uint32(m.heads)}, {"attention.head_count_kv", kvHeads},
		{"attention.sliding_window_pattern", sliding},
		{"attention.key_length", uint32(512)}, {"attention.value_length", uint32(512)},
		{"attention.key_length_swa", uint32(256)}, {"attention.value_length_swa", uint32(256)},
		{"attention.sliding_window", uint32(1024)}, {"attention.shared_kv_layers", uint32(0)},
		{"rope.freq_base", float32(1e6)}, {"rope.freq_base_swa", float32(1e4)},
		{"rope.dimension_count", uint32(512)}, {"rope.dimension_count_swa", uint32(256)},
		{"final_logit_softcapping", float32(30)}, {"embedding_length_per_layer_input", uint32(0)},
	}
	if m.experts > 0 {
		entries = append(entries, entry{"expert_count", uint32(m.experts)}, entry{"expert_used_count", uint32(m.used)},
			entry{"expert_feed_forward_length", uint32(m.inExpert)})
	}
	for _, e := range entries {
		g.set(a+e.key, e.value)
	}
	g.quantized("token_embd.weight", m.hidden, vocab) // the head too
	g.constant("output_norm.weight", 1, m.hidden)
	g.constant("rope_freqs.weight", 1, 256)
	for i := range layers {
		b := fmt.Sprintf("blk.%d.", i)
		size := uint64(512)
		if sliding[i] {
			size = 256
		}
		q, kv := m.heads*size, uint64(kvHeads[i])*size
		g.constant(b+"attn_norm.weight", 1, m.hidden)
		g.quantized(b+"attn_q.weight", m.hidden, q)
		g.quantized(b+"attn_k.weight", m.hidden, kv)
		if sliding[i] {
			g.quantized(b+"attn_v.weight", m.hidden, kv)
		}
		g.quantized(b+"attn_output.weight", q, m.hidden)
		g.constant(b+"attn_q_norm.weight", 1, size)
		g.constant(b+"attn_k_norm.weight", 1, size)
		g.constant(b+"post_attention_norm.weight", 1, m.hidden)
		g.constant(b+"layer_output_scale.weight", 1, 1)
		m.network(g, b)
	}
	return g
}

func (m gemma) network(g *gguf, block string) {
	g.constant(block+"ffn_norm.weight", 1, m.hidden)
	g.quantized(block+"ffn_gate.weight", m.hidden, m.inner)
	g.quantized(block+"ffn_up.weight", m.hidden, m.inner)
	g.quantized(block+"ffn_down.weight", m.inner, m.hidden)
	g.constant(block+"post_ffw_norm.weight", 1, m.hidden)
	if m.experts == 0 {
		return
	}
	g.constant(block+"ffn_gate_inp.weight", float32(math.NaN()), m.hidden, m.experts)
	g.constant(block+"ffn_gate_inp.scale", 1, m.hidden)
	g.constant(block+"pre_ffw_norm_2.weight", 1, m.hidden)
	g.constant(block+"post_ffw_norm_1.weight", 1, m.hidden)
	g.constant(block+"post_ffw_norm_2.weight", 1, m.hidden)
	g.expert(block+"ffn_gate_up_exps.weight", m.used, m.hidden, 2*m.inExpert, m.experts)
	g.expert(block+"ffn_down_exps.weight", m.used, m.inExpert, m.hidden, m.experts)
	g.constant(block+"ffn_down_exps.scale", 1, m.experts)
}
