package museglimmer_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/gguf"
	"github.com/etc-ml/etc/loaders/inputtest"
	"github.com/etc-ml/etc/loaders/museglimmer"
)

// file is a GGUF file of one layer with a head of 4 rows, as far as FromGGUF reads it.
type file struct {
	keys  map[string]any
	norms map[string][]float32 // "q" and "k" of layers 0 and 1
}

func valid() file {
	keys := map[string]any{"block_count": 2, "context_length": 64, "embedding_length": 2, "feed_forward_length": 3,
		"attention.head_count": 1, "attention.head_count_kv": 1, "attention.key_length": 4, "attention.value_length": 4,
		"attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 5e5, "final_logit_softcapping": 20.0,
		"logit_scale": 0.25, "attention.sliding_window": 8, "attention.sliding_window_pattern": []bool{true, false}}
	return file{keys, map[string][]float32{"0.attn_q": {3.5, 3.5, 3.5, 3.5}, "0.attn_k": {1, 1, 1, 1},
		"1.attn_q": {3.5, 3.5, 3.5, 3.5}, "1.attn_k": {1, 1, 1, 1}}}
}

func (f file) open(t *testing.T) *gguf.Model {
	t.Helper()
	g := &inputtest.GGUF{}
	g.Key("general.architecture", "muse-glimmer")
	for _, name := range slices.Sorted(maps.Keys(f.keys)) {
		g.Key("muse-glimmer."+name, f.keys[name])
	}
	f32 := inputtest.Encodings["F32"]
	add := func(name string, shape []int, values ...float32) {
		g.Tensor(name, f32.Number, shape, f32.Encode(values))
	}
	add("token_embd.weight", []int{2, 2}, 1, 2, 3, 4)
	add("blk.0.attn_q.weight", []int{4, 2}, 0, 1, 10, 11, 20, 21, 30, 31)
	add("blk.0.attn_v.weight", []int{4, 2}, 0, 1, 10, 11, 20, 21, 30, 31)
	for _, name := range slices.Sorted(maps.Keys(f.norms)) {
		add("blk."+name+"_norm.weight", []int{len(f.norms[name])}, f.norms[name]...)
	}
	p := g.Bytes()
	m, err := gguf.New("x.gguf", bytes.NewReader(p), int64(len(p)))
	require.NoError(t, err)
	return m
}

// TestFromGGUF: rows of queries are halves again, the norms of heads are a number of the configuration.
func TestFromGGUF(t *testing.T) {
	config, tensors, err := museglimmer.FromGGUF(valid().open(t), false)
	require.NoError(t, err)
	require.Equal(t, 3.5, config["qk_scale_factor"])
	require.Equal(t, []float64{5e5, 0}, config["layer_rope_theta"])
	require.Equal(t, []string{"sliding_attention", "full_attention"}, config["layer_types"])
	require.Equal(t, true, config["tie_word_embeddings"])
	values := map[string][]float32{}
	for _, x := range tensors {
		raw, err := ir.ReadData(x.Data)
		require.NoError(t, err)
		values[x.As] = make([]float32, len(raw)/4)
		numeric.F32SliceFromBytes(values[x.As], raw)
	}
	require.Equal(t, map[string][]float32{"embed_tokens.weight": {1, 2, 3, 4},
		"layers.0.self_attn.q_proj.weight": {0, 1, 20, 21, 10, 11, 30, 31},
		"layers.0.self_attn.v_proj.weight": {0, 1, 10, 11, 20, 21, 30, 31}}, values)

	f := valid()
	f.keys["rope.freq_base_swa"], f.keys["rope.scaling.type"] = 1e4, "none"
	delete(f.keys, "final_logit_softcapping")
	config, _, err = museglimmer.FromGGUF(f.open(t), false)
	require.NoError(t, err)
	require.Equal(t, []float64{1e4, 0}, config["layer_rope_theta"])
	require.Nil(t, config["final_logit_softcapping"])
}

// TestFromGGUFRefuses: what the model has no place for is refused by its name.
func TestFromGGUFRefuses(t *testing.T) {
	for message, change := range map[string]func(f file){
		"tensor blk.1.attn_q_norm.weight: expected 3.5 everywhere, as the model has one number": func(f file) {
			f.norms["1.attn_q"] = []float32{3.5, 3.5, 3, 3.5}
		},
		"tensor blk.0.attn_k_norm.weight: expected 1 everywhere": func(f file) {
			f.norms["0.attn_k"] = []float32{1, 1, 1, 2}
		},
		"tensor blk.0.attn_q_norm.weight: expected F32 [4], found F32 [3]": func(f file) {
			f.norms["0.attn_q"] = []float32{1, 1, 1}
		},
		"tensor blk.1.attn_k_norm.weight: expected F32 [4], found none": func(f file) { delete(f.norms, "1.attn_k") },
		"metadata muse-glimmer.attention.sliding_window_pattern: expected a flag for each of 2 layers": func(f file) {
			f.keys["attention.sliding_window_pattern"] = []bool{true}
		},
		"metadata muse-glimmer.attention.key_length: expected an even number": func(f file) {
			f.keys["attention.key_length"] = 5
		},
		"metadata muse-glimmer.rope.dimension_count: expected 4, attention.key_length": func(f file) {
			f.keys["rope.dimension_count"] = 2
		},
		`metadata muse-glimmer.rope.scaling.type: expected "none"`: func(f file) {
			f.keys["rope.scaling.type"] = "yarn"
		},
		"metadata muse-glimmer.logit_scale: expected a number > 0": func(f file) { delete(f.keys, "logit_scale") },
	} {
		f := valid()
		change(f)
		_, _, err := museglimmer.FromGGUF(f.open(t), false)
		require.ErrorContains(t, err, message)
	}
}
