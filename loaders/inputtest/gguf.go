package inputtest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/etc-ml/etc/ir/numeric"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// GGUF is a GGUF file in the making, version 3.
type GGUF struct {
	pairs   int
	kv      bytes.Buffer
	infos   bytes.Buffer
	data    bytes.Buffer
	tensors int
}

// Key adds a metadata value: a bool, int (u32), float64 (f32), string, or a slice of bools, ints (i32), or strings.
func (g *GGUF) Key(key string, value any) {
	g.pairs++
	text(&g.kv, key)
	switch v := value.(type) {
	case bool:
		put(&g.kv, uint32(7), v)
	case int:
		put(&g.kv, uint32(4), uint32(v))
	case float64:
		put(&g.kv, uint32(6), float32(v))
	case string:
		put(&g.kv, uint32(8))
		text(&g.kv, v)
	case []bool:
		put(&g.kv, uint32(9), uint32(7), uint64(len(v)), v)
	case []int:
		put(&g.kv, uint32(9), uint32(5), uint64(len(v)))
		for _, x := range v {
			put(&g.kv, int32(x))
		}
	case []string:
		put(&g.kv, uint32(9), uint32(8), uint64(len(v)))
		for _, x := range v {
			text(&g.kv, x)
		}
	default:
		panic(fmt.Sprintf("inputtest: a value of type %T", value))
	}
}

func put(b *bytes.Buffer, values ...any) {
	for _, v := range values {
		_ = binary.Write(b, binary.LittleEndian, v) // into memory
	}
}

func text(b *bytes.Buffer, s string) {
	put(b, uint64(len(s)))
	b.WriteString(s)
}

// Tensor adds a tensor. kind is the number of its type in ggml, and shape is in PyTorch's order.
func (g *GGUF) Tensor(name string, kind uint32, shape []int, data []byte) {
	g.tensors++
	for g.data.Len()%32 != 0 {
		g.data.WriteByte(0)
	}
	text(&g.infos, name)
	put(&g.infos, uint32(len(shape)))
	for _, d := range slices.Backward(shape) {
		put(&g.infos, uint64(d))
	}
	put(&g.infos, kind, uint64(g.data.Len()))
	g.data.Write(data)
}

// Bytes returns the file.
func (g *GGUF) Bytes() []byte {
	var b bytes.Buffer
	b.WriteString("GGUF")
	put(&b, uint32(3), uint64(g.tensors), uint64(g.pairs))
	b.Write(g.kv.Bytes())
	b.Write(g.infos.Bytes())
	for b.Len()%32 != 0 {
		b.WriteByte(0)
	}
	b.Write(g.data.Bytes())
	return b.Bytes()
}

// Encoding is a way to store matrices in a GGUF file.
type Encoding struct {
	Number uint32 // of ggml's type
	Encode func(values []float32) []byte
}

// Encodings are the ways to store matrices by the name of ggml's type. Blocks are made in the simplest way there is,
// not in ggml's: what matters is what they say.
var Encodings = map[string]Encoding{
	"F32":  {0, func(v []float32) []byte { p := make([]byte, 4*len(v)); numeric.F32SliceToBytes(p, v); return p }},
	"F16":  {1, func(v []float32) []byte { p := make([]byte, 2*len(v)); numeric.F32SliceToF16(p, v); return p }},
	"BF16": {30, func(v []float32) []byte { p := make([]byte, 2*len(v)); numeric.F32SliceToBF16(p, v); return p }},
	"Q4_0": {2, blocks(32, q4_0)}, "Q4_1": {3, blocks(32, q4_1)}, "Q8_0": {8, blocks(32, q8_0)},
	"Q4_K": {12, blocks(256, q4_K)}, "Q5_K": {13, blocks(256, q5_K)}, "Q6_K": {14, blocks(256, q6_K)},
	"MXFP4": {39, blocks(32, mxfp4)},
}

func blocks(n int, encode func(out []byte, v []float32) []byte) func([]float32) []byte {
	return func(values []float32) (out []byte) {
		for ; len(values) > 0; values = values[n:] {
			out = encode(out, values[:n])
		}
		return out
	}
}

func appendHalf(out []byte, v float32) []byte {
	return binary.LittleEndian.AppendUint16(out, numeric.F32ToF16(v))
}

func extremes(v []float32) (lo, hi, most float32) {
	for _, x := range v {
		lo, hi, most = min(lo, x), max(hi, x), max(most, float32(math.Abs(float64(x))))
	}
	return lo, hi, most
}

// code returns the nearest code of (x-bias)/scale in [lo, hi].
func code(x, scale, bias float32, lo, hi int) int {
	if scale == 0 {
		return max(lo, 0)
	}
	return min(hi, max(lo, int(math.RoundToEven(float64((x-bias)/scale)))))
}

// nibbles puts code j low and code j+16 high in byte j of 16.
func nibbles(out []byte, v []float32, scale, bias float32) []byte {
	for j := range 16 {
		out = append(out, byte(code(v[j], scale, bias, 0, 15)|code(v[j+16], scale, bias, 0, 15)<<4))
	}
	return out
}

func q4_0(out []byte, v []float32) []byte {
	_, _, most := extremes(v)
	d := numeric.RoundF16(most / 7)
	return nibbles(appendHalf(out, d), v, d, -8*d)
}

func q4_1(out []byte, v []float32) []byte {
	lo, hi, _ := extremes(v)
	d, m := numeric.RoundF16((hi-lo)/15), numeric.RoundF16(lo)
	return nibbles(appendHalf(appendHalf(out, d), m), v, d, m)
}

func q8_0(out []byte, v []float32) []byte {
	_, _, most := extremes(v)
	d := numeric.RoundF16(most / 127)
	out = appendHalf(out, d)
	for _, x := range v {
		out = append(out, byte(code(x, d, 0, -127, 127)))
	}
	return out
}

// mxfp4 takes the power of two by which no weight is beyond the largest code, 6.
func mxfp4(out []byte, v []float32) []byte {
	_, _, most := extremes(v)
	exponent := 0
	for exponent < 254 && 6*numeric.E8M0ToF32(uint8(exponent)) < most {
		exponent++
	}
	out = append(out, byte(exponent))
	inverse := numeric.E8M0ToF32(uint8(254 - exponent))
	for j := range 16 {
		out = append(out, numeric.F32ToE2M1(v[j]*inverse)|numeric.F32ToE2M1(v[j+16]*inverse)<<4)
	}
	return out
}

// superblock finds d, dmin and the 6-bit scales and minimums of 8 groups of 32.
func superblock(v []float32, levels float32) (d, dmin float32, scales, minimums [8]int) {
	var s, m [8]float32
	for j := range 8 {
		lo, hi, _ := extremes(v[32*j:][:32])
		s[j], m[j] = (hi-lo)/levels, -lo
		d, dmin = max(d, s[j]/63), max(dmin, m[j]/63)
	}
	d, dmin = numeric.RoundF16(d), numeric.RoundF16(dmin)
	for j := range 8 {
		scales[j], minimums[j] = code(s[j], d, 0, 0, 63), code(m[j], dmin, 0, 0, 63)
	}
	return d, dmin, scales, minimums
}

// packScales packs 8 scales and 8 minimums of 6 bits in 12 bytes: those of the first four groups in bytes 0 to 3 and
// 4 to 7, low bits of the others in bytes 8 to 11, their two high bits above those of the first.
func packScales(out []byte, scales, minimums [8]int) []byte {
	var p [12]byte
	for j := range 4 {
		p[j] = byte(scales[j] | scales[j+4]>>4<<6)
		p[j+4] = byte(minimums[j] | minimums[j+4]>>4<<6)
		p[j+8] = byte(scales[j+4]&15 | minimums[j+4]&15<<4)
	}
	return append(out, p[:]...)
}

func q4_K(out []byte, v []float32) []byte {
	d, dmin, scales, minimums := superblock(v, 15)
	out = packScales(appendHalf(appendHalf(out, d), dmin), scales, minimums)
	at := func(j, l int) int {
		return code(v[32*j+l], d*float32(scales[j]), -dmin*float32(minimums[j]), 0, 15)
	}
	for j := 0; j < 8; j += 2 {
		for l := range 32 {
			out = append(out, byte(at(j, l)|at(j+1, l)<<4))
		}
	}
	return out
}

func q5_K(out []byte, v []float32) []byte {
	d, dmin, scales, minimums := superblock(v, 31)
	out = packScales(appendHalf(appendHalf(out, d), dmin), scales, minimums)
	at := func(j, l int) int {
		return code(v[32*j+l], d*float32(scales[j]), -dmin*float32(minimums[j]), 0, 31)
	}
	for l := range 32 {
		high := 0
		for j := range 8 {
			high |= at(j, l) >> 4 << j
		}
		out = append(out, byte(high))
	}
	for j := 0; j < 8; j += 2 {
		for l := range 32 {
			out = append(out, byte(at(j, l)&15|at(j+1, l)&15<<4))
		}
	}
	return out
}

func q6_K(out []byte, v []float32) []byte {
	var s [16]float32
	var d float32
	for j := range s {
		_, _, most := extremes(v[16*j:][:16])
		s[j] = most / 31
		d = max(d, s[j]/127)
	}
	d = numeric.RoundF16(d)
	var scales [16]int
	for j := range s {
		scales[j] = code(s[j], d, 0, -128, 127)
	}
	at := func(i int) int { return code(v[i], d*float32(scales[i/16]), 0, -32, 31) + 32 }
	for n := range 2 {
		for r := range 2 {
			for l := range 32 {
				i := 128*n + 32*r + l
				out = append(out, byte(at(i)&15|at(i+64)&15<<4))
			}
		}
	}
	for n := range 2 {
		for l := range 32 {
			i := 128*n + l
			out = append(out, byte(at(i)>>4|at(i+32)>>4<<2|at(i+64)>>4<<4|at(i+96)>>4<<6))
		}
	}
	for _, s := range scales {
		out = append(out, byte(int8(s)))
	}
	return appendHalf(out, d)
}

// WriteGGUF writes the checkpoint as llama.cpp's convert_hf_to_gguf.py does (conversion/base.py, qwen.py, gemma.py,
// muse_glimmer.py), with the encoding that kind gives for the name of a matrix in the file; what is no matrix, the
// router and the convolution are F32.
func (s *Source) WriteGGUF(path string, kind func(name string) string) error {
	g := &GGUF{}
	if err := s.AddGGUF(g, kind); err != nil {
		return err
	}
	return os.WriteFile(path, g.Bytes(), 0o666)
}

// AddGGUF adds the checkpoint to a file.
func (s *Source) AddGGUF(g *GGUF, kind func(name string) string) error {
	arch, add := s.Arch, s.qwenGGUF
	switch s.Arch {
	case "gemma4", "gemma4unified": // which llama.cpp does not tell apart
		arch, add = "gemma4", s.gemmaGGUF
	case "museglimmer":
		arch, add = "muse-glimmer", s.museGGUF
	}
	g.Key("general.architecture", arch)
	g.Key("general.type", "model")
	if s.Files[huggingface.TokenizerFile] != nil {
		if err := s.tokenizerGGUF(g); err != nil {
			return err
		}
	}
	add(g, func(name string, t *Tensor) {
		as := "F32"
		if len(t.Shape) > 1 && !strings.Contains(name, "norm") && !strings.Contains(name, "conv1d") &&
			!strings.Contains(name, "ffn_gate_inp") && t.Shape[len(t.Shape)-1]%32 == 0 {
			if as = kind(name); strings.HasSuffix(as, "_K") && t.Shape[len(t.Shape)-1]%256 != 0 {
				as = "Q8_0" // as llama-quantize falls back
			}
		}
		e := Encodings[as]
		g.Tensor(name, e.Number, t.Shape, e.Encode(t.Values))
	})
	return nil
}

// layerName returns "blk.3.attn_q.weight" for "layers.3.self_attn.q_proj.weight", by a table without numbers.
func layerName(name string, table map[string]string) string {
	rest, ok := strings.CutPrefix(name, "layers.")
	if !ok {
		return table[name]
	}
	number, inner, _ := strings.Cut(rest, ".")
	if table[inner] == "" {
		return ""
	}
	return "blk." + number + "." + table[inner]
}

// gemmaGGUF writes the metadata and the tensors of a Gemma 4. It is long because it is a table.
func (s *Source) gemmaGGUF(g *GGUF, add func(string, *Tensor)) {
	c := s.config.(*huggingface.Gemma4)
	key := func(name string, value any) { g.Key("gemma4."+name, value) }
	key("block_count", len(c.Layers))
	key("context_length", c.MaxPositions)
	key("embedding_length", c.HiddenSize)
	rows := make([]int, len(c.Layers))
	for i := range rows {
		rows[i] = c.MLPRows(i)
	}
	key("feed_forward_length", rows)
	key("attention.head_count", c.Full.Heads)
	key("attention.layer_norm_rms_epsilon", c.RMSNormEps)
	key("attention.key_length", c.Full.HeadDim)
	key("attention.value_length", c.Full.HeadDim)
	key("attention.key_length_swa", c.Sliding.HeadDim)
	key("attention.value_length_swa", c.Sliding.HeadDim)
	key("attention.sliding_window", c.SlidingWindow)
	key("attention.shared_kv_layers", c.SharedKVLayers)
	key("embedding_length_per_layer_input", c.PerLayerInput)
	if c.Experts > 0 {
		key("expert_count", c.Experts)
		key("expert_used_count", c.ExpertsPerToken)
		key("expert_feed_forward_length", c.ExpertIntermediate)
	}
	key("final_logit_softcapping", c.FinalLogitSoftcap)
	key("rope.freq_base", c.Full.RopeTheta)
	key("rope.freq_base_swa", c.Sliding.RopeTheta)
	key("rope.dimension_count", c.Full.HeadDim)
	key("rope.dimension_count_swa", c.Sliding.HeadDim)
	var slides []bool
	var heads []int
	for _, kind := range c.Layers {
		slides = append(slides, kind == huggingface.SlidingAttention)
		heads = append(heads, map[bool]int{true: c.Sliding.KVHeads,
			false: c.Full.KVHeads}[kind == huggingface.SlidingAttention])
	}
	key("attention.sliding_window_pattern", slides)
	key("attention.head_count_kv", heads)
	divisors := &Tensor{Shape: []int{c.Full.HeadDim / 2}}
	for i := range c.Full.HeadDim / 2 {
		divisors.Values = append(divisors.Values, map[bool]float32{true: 1, false: 1e30}[i < c.Full.RotaryDim/2])
	}
	add("rope_freqs.weight", divisors)
	for _, name := range s.Names() {
		add(layerName(name, map[string]string{
			"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight",
			"lm_head.weight":                    "output.weight",
			"input_layernorm.weight":            "attn_norm.weight",
			"post_attention_layernorm.weight":   "post_attention_norm.weight",
			"pre_feedforward_layernorm.weight":  "ffn_norm.weight",
			"post_feedforward_layernorm.weight": "post_ffw_norm.weight", "layer_scalar": "layer_output_scale.weight",
			"self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
			"self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
			"self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
			"mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
			"mlp.down_proj.weight": "ffn_down.weight",
			"router.proj.weight":   "ffn_gate_inp.weight", "router.scale": "ffn_gate_inp.scale",
			"router.per_expert_scale": "ffn_down_exps.scale",
			"experts.gate_up_proj":    "ffn_gate_up_exps.weight", "experts.down_proj": "ffn_down_exps.weight",
			"pre_feedforward_layernorm_2.weight":  "pre_ffw_norm_2.weight",
			"post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
			"post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
			"embed_tokens_per_layer.weight":       "per_layer_token_embd.weight",
			"per_layer_model_projection.weight":   "per_layer_model_proj.weight",
			"per_layer_projection_norm.weight":    "per_layer_proj_norm.weight",
			"per_layer_input_gate.weight":         "inp_gate.weight", "per_layer_projection.weight": "proj.weight",
			"post_per_layer_input_norm.weight": "post_norm.weight",
		}), s.Tensors[name])
	}
}

// qwenNames are llama.cpp's names by those of transformers, without the numbers of layers.
var qwenNames = map[string]string{
	"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight", "lm_head.weight": "output.weight",
	"input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "post_attention_norm.weight",
	"self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
	"self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
	"self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
	"linear_attn.in_proj_qkv.weight": "attn_qkv.weight", "linear_attn.in_proj_z.weight": "attn_gate.weight",
	"linear_attn.in_proj_a.weight": "ssm_alpha.weight",
	"linear_attn.in_proj_b.weight": "ssm_beta.weight", "linear_attn.conv1d.weight": "ssm_conv1d.weight",
	"linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.A_log": "ssm_a",
	"linear_attn.norm.weight": "ssm_norm.weight", "linear_attn.out_proj.weight": "ssm_out.weight",
	"linear_attn.in_proj_ba.weight": "ssm_ba.weight",
	"mlp.gate_proj.weight":          "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
	"mlp.down_proj.weight": "ffn_down.weight",
	"mlp.gate.weight":      "ffn_gate_inp.weight", "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
	"mlp.experts.down_proj":              "ffn_down_exps.weight",
	"mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
	"mlp.shared_expert.up_proj.weight":   "ffn_up_shexp.weight",
	"mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
}

// qwenGGUF writes the metadata and the tensors of a Qwen. It is long because it is a table.
func (s *Source) qwenGGUF(g *GGUF, add func(string, *Tensor)) {
	c := s.config.(*huggingface.Qwen)
	key := func(name string, value any) { g.Key(s.Arch+"."+name, value) }
	s.qwenKeys(c, key)
	names := maps.Clone(qwenNames)
	if c.PlainNorms { // conversion/qwen.py has the older models' name here
		names["post_attention_layernorm.weight"] = "ffn_norm.weight"
	}
	tiled := func(t *Tensor, first, dim int) *Tensor {
		if c.JointProjections { // whose heads stay in the authors' order
			return t
		}
		return t.tiled(c, first, dim)
	}
	s.stackExperts(c)
	if s.WithDraft {
		s.draftGGUF(len(c.Layers), names, add)
	}
	qk := 2 * c.LinearKeyHeads * c.LinearKeyHeadDim
	for _, name := range s.Names() {
		t, as := s.Tensors[name], layerName(name, names)
		if strings.HasSuffix(name, ".experts.gate_up_proj") {
			as = layerName(strings.Replace(name, "gate_up_proj", "down_proj", 1), names)
			half := t.Shape[1] / 2
			add(strings.Replace(as, "down", "gate", 1), t.rows(0, half))
			add(strings.Replace(as, "down", "up", 1), t.rows(half, half))
			continue
		}
		_, inner, _ := strings.Cut(strings.TrimPrefix(name, "layers."), ".")
		switch inner {
		case "linear_attn.in_proj_qkvz.weight":
			qkv, z := t.apart(c)
			add(layerName(strings.Replace(name, "qkvz", "qkv", 1), names), qkv)
			add(layerName(strings.Replace(name, "qkvz", "z", 1), names), z)
			continue
		case "linear_attn.in_proj_qkv.weight":
			t = tiled(t, qk, c.LinearValueHeadDim)
		case "linear_attn.conv1d.weight":
			t = tiled(&Tensor{Shape: []int{t.Shape[0], t.Shape[2]}, Values: t.Values}, qk, c.LinearValueHeadDim)
		case "linear_attn.in_proj_z.weight":
			t = tiled(t, 0, c.LinearValueHeadDim)
		case "linear_attn.in_proj_a.weight", "linear_attn.in_proj_b.weight":
			t = tiled(t, 0, 1)
		case "linear_attn.dt_bias", "linear_attn.A_log":
			flat := &Tensor{Shape: []int{len(t.Values), 1}, Values: t.Values}
			t = &Tensor{Shape: t.Shape, Values: slices.Clone(tiled(flat, 0, 1).Values)}
			for i, v := range t.Values {
				if inner == "linear_attn.A_log" {
					t.Values[i] = -numeric.Exp32(v)
				}
			}
		case "linear_attn.out_proj.weight":
			t = tiled(t.transposed(), 0, c.LinearValueHeadDim).transposed()
		case "mlp.shared_expert_gate.weight":
			t = &Tensor{Shape: t.Shape[1:], Values: t.Values}
		}
		if !c.PlainNorms && strings.HasSuffix(name, "norm.weight") && inner != "linear_attn.norm.weight" {
			t = t.plus(1)
		}
		add(as, t)
	}
}

// nextN are llama.cpp's names of what a layer that drafts has beside a layer (gguf-py/gguf/constants.py, NEXTN_*).
var nextN = map[string]string{"mtp.fc.weight": "eh_proj", "mtp.pre_fc_norm_embedding.weight": "enorm",
	"mtp.pre_fc_norm_hidden.weight": "hnorm", "mtp.norm.weight": "shared_head_norm"}

// draftGGUF adds the layer that drafts tokens, which has the number after the last one. Its norms are stored as what
// they multiply by, as the others.
func (s *Source) draftGGUF(layer int, names map[string]string, add func(string, *Tensor)) {
	for _, name := range slices.Sorted(maps.Keys(s.Draft)) {
		t := s.Draft[name]
		if len(t.Shape) == 1 {
			t = t.plus(1)
		}
		if as := nextN[name]; as != "" {
			add(fmt.Sprintf("blk.%d.nextn.%s.weight", layer, as), t)
			continue
		}
		add(layerName(strings.Replace(name, "mtp.layers.0.", fmt.Sprintf("layers.%d.", layer), 1), names), t)
	}
}

func (s *Source) qwenKeys(c *huggingface.Qwen, key func(string, any)) {
	if s.WithDraft {
		key("block_count", len(c.Layers)+1)
		key("nextn_predict_layers", 1)
	} else {
		key("block_count", len(c.Layers))
	}
	key("context_length", c.MaxPositions)
	key("embedding_length", c.HiddenSize)
	key("attention.head_count", c.Heads)
	key("attention.head_count_kv", c.KVHeads)
	key("attention.key_length", c.HeadDim)
	key("attention.value_length", c.HeadDim)
	key("attention.layer_norm_rms_epsilon", c.RMSNormEps)
	key("rope.freq_base", c.RopeTheta)
	key("rope.dimension_count", c.RotaryDim)
	key("rope.dimension_sections", []int{c.RotaryDim/2 - 2*(c.RotaryDim/6), c.RotaryDim / 6, c.RotaryDim / 6, 0})
	if c.Experts > 0 {
		key("expert_count", c.Experts)
		key("expert_used_count", c.ExpertsPerToken)
		key("expert_feed_forward_length", c.ExpertIntermediate)
		if c.SharedExpertIntermediate > 0 {
			key("expert_shared_feed_forward_length", c.SharedExpertIntermediate)
		}
	} else {
		key("feed_forward_length", c.Intermediate)
	}
	if c.LinearKeyHeads > 0 {
		s.deltaNetKeys(c, key)
	}
}

func (s *Source) deltaNetKeys(c *huggingface.Qwen, key func(string, any)) {
	key("ssm.conv_kernel", c.ConvKernel)
	key("ssm.state_size", c.LinearKeyHeadDim)
	key("ssm.group_count", c.LinearKeyHeads)
	key("ssm.time_step_rank", c.LinearValueHeads)
	key("ssm.inner_size", c.LinearValueHeads*c.LinearValueHeadDim)
	var recurrent []bool
	for _, kind := range c.Layers {
		recurrent = append(recurrent, kind == huggingface.LinearAttention)
	}
	key("attention.recurrent_layers", recurrent)
	key("full_attention_interval", 4)
}

// stackExperts joins the matrices of experts that are stored one by one, as the converter does.
func (s *Source) stackExperts(c *huggingface.Qwen) {
	for i := range c.Layers {
		for fused, parts := range map[string][]string{"gate_up_proj": {"gate_proj", "up_proj"},
			"down_proj": {"down_proj"}} {
			base := fmt.Sprintf("layers.%d.mlp.experts.", i)
			all := &Tensor{}
			for e := range c.Experts {
				for _, part := range parts {
					name := fmt.Sprintf("%s%d.%s.weight", base, e, part)
					t := s.Tensors[name]
					if t == nil {
						continue
					}
					delete(s.Tensors, name)
					all.Values = append(all.Values, t.Values...)
					all.Shape = []int{c.Experts, len(parts) * t.Shape[0], t.Shape[1]}
				}
			}
			if all.Shape != nil {
				s.Tensors[base+fused] = all
			}
		}
	}
}

// apart takes a joint projection apart, whose rows are grouped by key head.
func (t *Tensor) apart(c *huggingface.Qwen) (qkv, z *Tensor) {
	cols, keys, values := t.Shape[1], c.LinearKeyHeadDim, c.LinearValueHeads/c.LinearKeyHeads*c.LinearValueHeadDim
	take := func(start, count int) (out []float32) {
		for k := range c.LinearKeyHeads {
			from := k*(2*keys+2*values) + start
			out = append(out, t.Values[from*cols:(from+count)*cols]...)
		}
		return out
	}
	tensor := func(v []float32) *Tensor { return &Tensor{Shape: []int{len(v) / cols, cols}, Values: v} }
	return tensor(slices.Concat(take(0, keys), take(keys, keys), take(2*keys, values))),
		tensor(take(2*keys+values, values))
}

// tiled brings the heads of values, after the first rows, from grouped by key head to the order in which the first
// value head of every key head comes first, then the second of every one. A head has dim rows.
func (t *Tensor) tiled(c *huggingface.Qwen, first, dim int) *Tensor {
	cols := t.Shape[1]
	out := &Tensor{Shape: t.Shape, Values: slices.Clone(t.Values[:first*cols])}
	each := c.LinearValueHeads / c.LinearKeyHeads
	for v := range each {
		for k := range c.LinearKeyHeads {
			head := first + (k*each+v)*dim
			out.Values = append(out.Values, t.Values[head*cols:(head+dim)*cols]...)
		}
	}
	return out
}

func (t *Tensor) transposed() *Tensor {
	rows, cols := t.Shape[0], t.Shape[1]
	out := &Tensor{Shape: []int{cols, rows}, Values: make([]float32, len(t.Values))}
	for i, v := range t.Values {
		out.Values[i%cols*rows+i/cols] = v
	}
	return out
}

// tokenizerGGUF writes the tokenizer as get_vocab_base and set_vocab do: every id of the vocabulary has a token.
func (s *Source) tokenizerGGUF(g *GGUF) error {
	var t struct {
		Added []struct {
			ID      int
			Content string
			Special bool
		} `json:"added_tokens"`
		Model struct {
			Vocab  map[string]int
			Merges [][2]string
		}
	}
	if err := json.Unmarshal(s.Files[huggingface.TokenizerFile], &t); err != nil {
		return err
	}
	var special struct {
		ChatTemplate string `json:"chat_template"`
	}
	if err := json.Unmarshal(s.Files[huggingface.TokenizerConfigFile], &special); err != nil {
		return err
	}
	tokens, kinds := make([]string, s.config.Vocabulary()), make([]int, s.config.Vocabulary())
	for i := range tokens {
		tokens[i], kinds[i] = fmt.Sprintf("[PAD%d]", i), 5
	}
	for token, i := range t.Model.Vocab {
		tokens[i], kinds[i] = token, 1
		if len(token) == 6 && strings.HasPrefix(token, "<0x") {
			kinds[i] = 6
		}
	}
	for _, a := range t.Added {
		tokens[a.ID], kinds[a.ID] = a.Content, map[bool]int{true: 3, false: 4}[a.Special]
	}
	var merges []string
	for _, m := range t.Model.Merges {
		merges = append(merges, m[0]+" "+m[1])
	}
	if s.Arch == "gemma4" {
		g.Key("tokenizer.ggml.model", "gemma4")
		g.Key("tokenizer.ggml.add_bos_token", true)
		g.Key("tokenizer.ggml.add_space_prefix", false)
		g.Key("tokenizer.ggml.unknown_token_id", t.Model.Vocab["<unk>"])
	} else {
		g.Key("tokenizer.ggml.model", "gpt2")
		g.Key("tokenizer.ggml.pre", "qwen35")
	}
	g.Key("tokenizer.ggml.tokens", tokens)
	g.Key("tokenizer.ggml.token_type", kinds)
	g.Key("tokenizer.ggml.merges", merges)
	for _, name := range []string{"bos", "eos", "pad"} {
		if id, ok := s.Config[name+"_token_id"].(float64); ok {
			g.Key("tokenizer.ggml."+strings.Replace(name, "pad", "padding", 1)+"_token_id", int(id))
		}
	}
	g.Key("tokenizer.chat_template", special.ChatTemplate)
	return nil
}
