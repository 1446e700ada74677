package speculate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/engine"
)

// TestCentroids: an assistant with a centroid head drafts the recorded chain from keys and values that are given as
// inputs, as a file has them. Nothing of the target but its embedding is in use, so its other weights are zeros.
func TestCentroids(t *testing.T) {
	g := openGoldens(t, filepath.Join("testdata", "ordered.safetensors"))
	c, err := loaders.Open(emptyTarget(t, g))
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.OpenDraft(filepath.Join(checkpoints, "gemma4-ordered-assistant")))
	require.Equal(t, loaders.AssistantDraft, c.Draft())
	m, err := c.Build(loaders.Options{MaxSeqLen: 64})
	require.NoError(t, err)
	require.NoError(t, passes.Run(m, &passes.Options{}))
	draft := m.Named("draft")
	require.Len(t, draft.Params, 3+4)
	position := int(g.ints("position")[0])
	for device, e := range engines {
		t.Run(device, func(t *testing.T) {
			x, err := engine.Compile(e, m, engine.Options{Precision: eval.FP32, Threads: 1, Warn: func(string) {}})
			require.NoError(t, err)
			defer x.Close()
			i, err := x.NewInstance()
			require.NoError(t, err)
			defer i.Close()
			p := &pair{t, i}
			var caches []eval.Value
			for n, input := range draft.Params[3:] {
				kind := []string{"sliding_attention", "full_attention"}[n/2]
				require.Contains(t, input.Param, []string{".k_cache", ".v_cache"}[n%2])
				caches = append(caches, eval.Value{Tensor: cacheOf(t, input.Type, g,
					"kv."+kind+"."+[]string{"keys", "values"}[n%2], position)})
			}
			token, hidden := g.ints("token")[0], g.rows("target_hidden")[0]
			for k, want := range g.ints("prompt1.draft_ids")[:3] {
				inputs := append(tokensAt([]int64{token}, position), hiddenOf(hidden))
				logits, out := p.call("draft", append(inputs, caches...)...)
				near(t, g.rows("prompt1.draft_logits")[k:k+1], logits, "logits %d", k)
				near(t, g.rows("prompt1.draft_hidden")[k:k+1], out, "hidden %d", k)
				token, hidden = argmax(logits[0]), out[0]
				require.Equal(t, want, token)
			}
		})
	}
}

// cacheOf puts rows [heads, position, D] into a cache [1, heads, slots, D].
func cacheOf(t *testing.T, as ir.Type, g goldens, name string, position int) *eval.Tensor {
	t.Helper()
	dims, ok := as.Static()
	require.True(t, ok)
	slots, size := int(dims[2]), int(dims[3])
	require.Less(t, position, slots, "no position wraps around here")
	out := make([]float32, int(dims[1])*slots*size)
	for i, row := range g.rows(name) {
		copy(out[(i/position*slots+i%position)*size:], row)
	}
	return eval.Floats(as.DType, []int{1, int(dims[1]), slots, size}, out)
}

// emptyTarget writes a checkpoint of the target that the recorded assistant belongs to, with its embedding.
func emptyTarget(t *testing.T, g goldens) string {
	t.Helper()
	dir := t.TempDir()
	const layers, hidden, mlp = 6, 256, 384
	config := map[string]any{"architectures": []string{"Gemma4ForCausalLM"}, "model_type": "gemma4_text",
		"attention_k_eq_v": true,
		"vocab_size":       256, "hidden_size": hidden, "intermediate_size": mlp, "num_hidden_layers": layers,
		"num_attention_heads": 4,
		"num_key_value_heads": 2, "head_dim": 64, "global_head_dim": 128, "num_global_key_value_heads": 1,
		"sliding_window": 16,
		"rms_norm_eps":   1e-6, "final_logit_softcapping": 30.0, "max_position_embeddings": 4096,
		"hidden_size_per_layer_input": 0,
		"layer_types": []string{"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
			"sliding_attention", "full_attention"},
		"rope_parameters": map[string]any{
			"full_attention": map[string]any{"rope_type": "proportional", "rope_theta": 1e6,
				"partial_rotary_factor": 0.25},
			"sliding_attention": map[string]any{"rope_type": "default", "rope_theta": 1e4}}}
	text, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644))
	_, embedding := g.raw("embed_tokens")
	entries := []safetensors.Entry{{Name: "model.embed_tokens.weight", DType: safetensors.BF16,
		Shape: []int{256, hidden}, Data: safetensors.Bytes(embedding)}}
	zeros := func(name string, shape ...int) {
		n := 2
		for _, d := range shape {
			n *= d
		}
		entries = append(entries, safetensors.Entry{Name: "model." + name + ".weight", DType: safetensors.BF16,
			Shape: shape, Data: safetensors.Bytes(make([]byte, n))})
	}
	zeros("norm", hidden)
	for i := range layers {
		prefix, head, kv := fmt.Sprintf("layers.%d.", i), 64, 2
		if i == layers-1 {
			head, kv = 128, 1
		} else {
			zeros(prefix+"self_attn.v_proj", kv*head, hidden)
		}
		for _, name := range []string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
			"post_feedforward_layernorm"} {
			zeros(prefix+name, hidden)
		}
		zeros(prefix+"self_attn.q_proj", 4*head, hidden)
		zeros(prefix+"self_attn.k_proj", kv*head, hidden)
		zeros(prefix+"self_attn.o_proj", hidden, 4*head)
		zeros(prefix+"self_attn.q_norm", head)
		zeros(prefix+"self_attn.k_norm", head)
		zeros(prefix+"mlp.gate_proj", mlp, hidden)
		zeros(prefix+"mlp.up_proj", mlp, hidden)
		zeros(prefix+"mlp.down_proj", hidden, mlp)
		scalar := safetensors.Entry{Name: "model." + prefix + "layer_scalar", DType: safetensors.BF16, Shape: []int{1},
			Data: safetensors.Bytes([]byte{0x80, 0x3f})}
		entries = append(entries, scalar)
	}
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), entries, nil))
	return dir
}
