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
	for _, layers := range []int{4, 8, 12} {
		name := fmt.Sprintf("qwen%d", layers)
		all[name] = model{name, fmt.Sprintf("Qwen3.5-35B-A3B, %d layers", layers), "qwen35moe-35b", layers, qwen}
	}
	for _, layers := range []int{6, 12} {
		name := fmt.Sprintf("gemma%d", layers)
		all[name] = model{name, fmt.Sprintf("Gemma4-31B, %d layers", layers), "gemma4-31b", layers, gemma}
	}
	return all
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

// qwen has the dimensions of Qwen3.5-35B-A3B.
func qwen(layers int) *gguf {
	const a, hidden, vocab, experts, used, inner = "qwen35moe.", 2048, 248320, 256, 8, 512
	g := start("qwen35moe", layers)
	for _, e := range []entry{
		{"vocab_size", uint32(vocab)}, {"embedding_length", uint32(hidden)}, {"feed_forward_length", uint32(inner)},
		{"attention.head_count", uint32(16)}, {"attention.head_count_kv", uint32(2)},
		{"attention.key_length", uint32(256)}, {"attention.value_length", uint32(256)},
		{"rope.freq_base", float32(1e7)}, {"rope.dimension_count", uint32(64)}, {"rope.dimension_sections", []int32{11, 11, 10, 0}},
		{"expert_count", uint32(experts)}, {"expert_used_count", uint32(used)},
		{"expert_feed_forward_length", uint32(inner)}, {"expert_shared_feed_forward_length", uint32(inner)},
		{"ssm.conv_kernel", uint32(4)}, {"ssm.inner_size", uint32(4096)}, {"ssm.state_size", uint32(128)},
		{"ssm.time_step_rank", uint32(32)}, {"ssm.group_count", uint32(16)}, {"full_attention_interval", uint32(4)},
	} {
		g.set(a+e.key, e.value)
	}
	g.quantized("token_embd.weight", hidden, vocab)
	g.tensors[0].active = 0 // one row of it
	g.constant("output_norm.weight", 1, hidden)
	g.quantized("output.weight", hidden, vocab)
	for i := range layers {
		b := fmt.Sprintf("blk.%d.", i)
		g.constant(b+"attn_norm.weight", 1, hidden)
		g.constant(b+"post_attention_norm.weight", 1, hidden)
		if (i+1)%4 == 0 {
			g.quantized(b+"attn_q.weight", hidden, 2*16*256)
			g.quantized(b+"attn_k.weight", hidden, 512)
			g.quantized(b+"attn_v.weight", hidden, 512)
			g.quantized(b+"attn_output.weight", 4096, hidden)
			g.constant(b+"attn_q_norm.weight", 1, 256)
			g.constant(b+"attn_k_norm.weight", 1, 256)
		} else {
			g.quantized(b+"attn_qkv.weight", hidden, 8192)
			g.quantized(b+"attn_gate.weight", hidden, 4096)
			g.constant(b+"ssm_conv1d.weight", 0.3, 4, 8192)
			g.constant(b+"ssm_dt.bias", 0.1, 32)
			g.constant(b+"ssm_a", -1, 32)
			g.tensors = append(g.tensors, tensor{b + "ssm_beta.weight", typeQ8_0, []uint64{hidden, 32}, 0, 1},
				tensor{b + "ssm_alpha.weight", typeQ8_0, []uint64{hidden, 32}, 0, 1})
			g.constant(b+"ssm_norm.weight", 1, 128)
			g.quantized(b+"ssm_out.weight", 4096, hidden)
		}
		g.constant(b+"ffn_gate_inp.weight", float32(math.NaN()), hidden, experts)
		for _, t := range []tensor{{"ffn_down_exps.weight", typeQ4_0, []uint64{inner, hidden, experts}, 0, experts / used},
			{"ffn_gate_exps.weight", typeQ4_0, []uint64{hidden, inner, experts}, 0, experts / used},
			{"ffn_up_exps.weight", typeQ4_0, []uint64{hidden, inner, experts}, 0, experts / used}} {
			t.name = b + t.name
			g.tensors = append(g.tensors, t)
		}
		g.constant(b+"ffn_gate_inp_shexp.weight", 0.01, hidden)
		g.quantized(b+"ffn_gate_shexp.weight", hidden, inner)
		g.quantized(b+"ffn_up_shexp.weight", hidden, inner)
		g.quantized(b+"ffn_down_shexp.weight", inner, hidden)
	}
	return g
}

// gemma has the dimensions of Gemma4-31B.
func gemma(layers int) *gguf {
	const a, hidden, vocab, inner, heads = "gemma4.", 5376, 262144, 21504, 32
	g := start("gemma4", layers)
	kvHeads, sliding := make([]int32, layers), make([]bool, layers)
	for i := range layers {
		kvHeads[i], sliding[i] = 16, (i+1)%6 != 0
		if !sliding[i] {
			kvHeads[i] = 4
		}
	}
	for _, e := range []entry{
		{"vocab_size", uint32(vocab)}, {"embedding_length", uint32(hidden)}, {"feed_forward_length", uint32(inner)},
		{"attention.head_count", uint32(heads)}, {"attention.head_count_kv", kvHeads}, {"attention.sliding_window_pattern", sliding},
		{"attention.key_length", uint32(512)}, {"attention.value_length", uint32(512)},
		{"attention.key_length_swa", uint32(256)}, {"attention.value_length_swa", uint32(256)},
		{"attention.sliding_window", uint32(1024)}, {"attention.shared_kv_layers", uint32(0)},
		{"rope.freq_base", float32(1e6)}, {"rope.freq_base_swa", float32(1e4)},
		{"rope.dimension_count", uint32(512)}, {"rope.dimension_count_swa", uint32(256)},
		{"final_logit_softcapping", float32(30)}, {"embedding_length_per_layer_input", uint32(0)},
	} {
		g.set(a+e.key, e.value)
	}
	g.quantized("token_embd.weight", hidden, vocab) // the head too
	g.constant("output_norm.weight", 1, hidden)
	g.constant("rope_freqs.weight", 1, 256)
	for i := range layers {
		b := fmt.Sprintf("blk.%d.", i)
		size := uint64(512)
		if sliding[i] {
			size = 256
		}
		q, kv := heads*size, uint64(kvHeads[i])*size
		g.constant(b+"attn_norm.weight", 1, hidden)
		g.quantized(b+"attn_q.weight", hidden, q)
		g.quantized(b+"attn_k.weight", hidden, kv)
		if sliding[i] {
			g.quantized(b+"attn_v.weight", hidden, kv)
		}
		g.quantized(b+"attn_output.weight", q, hidden)
		g.constant(b+"attn_q_norm.weight", 1, size)
		g.constant(b+"attn_k_norm.weight", 1, size)
		g.constant(b+"post_attention_norm.weight", 1, hidden)
		g.constant(b+"layer_output_scale.weight", 1, 1)
		g.constant(b+"ffn_norm.weight", 1, hidden)
		g.quantized(b+"ffn_gate.weight", hidden, inner)
		g.quantized(b+"ffn_up.weight", hidden, inner)
		g.quantized(b+"ffn_down.weight", inner, hidden)
		g.constant(b+"post_ffw_norm.weight", 1, hidden)
	}
	return g
}
