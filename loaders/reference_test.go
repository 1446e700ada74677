package loaders

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
)

// The reference forwards below are written for themselves after transformers' modeling_qwen3_5_moe.py and
// modeling_gemma4.py: float64, one token after the other over the whole text, no caches, no graph. They
// say what the builders' graphs must compute for configurations of which there is no recorded output.

// reference holds the weights of a checkpoint by their names in the language model.
type reference struct {
	t       *testing.T
	weights map[string][]float64
}

func openReference(t *testing.T, dir string) *reference {
	t.Helper()
	files, err := safetensors.OpenCheckpoint(dir)
	require.NoError(t, err)
	r := &reference{t, map[string][]float64{}}
	for _, tensor := range files.Tensors() {
		name := strings.TrimPrefix(strings.TrimPrefix(tensor.Name, "model."), "language_model.")
		for _, v := range readFloats(t, tensor) {
			r.weights[name] = append(r.weights[name], float64(v))
		}
	}
	require.NoError(t, files.Close())
	return r
}

func (r *reference) get(name string) []float64 {
	w, ok := r.weights[name]
	if !ok {
		r.t.Fatalf("the checkpoint has no tensor %s", name)
	}
	return w
}

// linear multiplies x by a matrix of len(x) columns.
func linear(w, x []float64) []float64 {
	out := make([]float64, len(w)/len(x))
	for i := range out {
		out[i] = dot(w[i*len(x):(i+1)*len(x)], x)
	}
	return out
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// rms is x/√(mean(x²)+eps)·(w+offset); without weights where w is nil.
func rms(x, w []float64, offset, eps float64) []float64 {
	scale := 1 / math.Sqrt(dot(x, x)/float64(len(x))+eps)
	out := make([]float64, len(x))
	for i, v := range x {
		if out[i] = v * scale; w != nil {
			out[i] *= w[i] + offset
		}
	}
	return out
}

func heads(x []float64, dim int) [][]float64 { return slices.Collect(slices.Chunk(x, dim)) }

// turn rotates heads as a scaled rotation of a Qwen does: by other frequencies, and longer by a factor.
func turn(c *huggingface.Qwen, x []float64, position int) {
	dims, s := c.RotaryDim, c.RopeScaling
	if s == nil {
		rotate(x, position, dims/2, dims/2, dims, c.RopeTheta)
		return
	}
	factor := 1.0
	if s.Type == "yarn" {
		factor = 0.1*math.Log(s.Factor) + 1
	}
	index := func(turns float64) float64 {
		return float64(dims) * math.Log(float64(s.Positions)/(turns*2*math.Pi)) / (2 * math.Log(c.RopeTheta))
	}
	for i := range dims / 2 {
		frequency, divided := math.Pow(c.RopeTheta, -2*float64(i)/float64(dims)), 1.0
		if s.Type == "yarn" {
			low, high := max(0, math.Floor(index(s.BetaFast))), min(float64(dims-1), math.Ceil(index(s.BetaSlow)))
			divided = min(1, max(0, (float64(i)-low)/(high-low)))
		}
		frequency = frequency/s.Factor*divided + frequency*(1-divided)
		sin, cos := math.Sincos(float64(position) * frequency)
		a, b := x[i], x[i+dims/2]
		x[i], x[i+dims/2] = factor*(a*cos-b*sin), factor*(b*cos+a*sin)
	}
}

// centred is what norms of a Qwen add to their weights.
func centred(c *huggingface.Qwen) float64 {
	if c.PlainNorms {
		return 0
	}
	return 1
}

// rotate turns pairs (i, i+distance), i < pairs, by position·theta^(-2i/of).
func rotate(x []float64, position, pairs, distance, of int, theta float64) {
	for i := range pairs {
		sin, cos := math.Sincos(float64(position) * math.Pow(theta, -2*float64(i)/float64(of)))
		a, b := x[i], x[i+distance]
		x[i], x[i+distance] = a*cos-b*sin, b*cos+a*sin
	}
}

// attend is softmax(scale·q·kᵀ)·v over the given keys and values.
func attend(q []float64, keys, values [][]float64, scale float64) []float64 {
	scores, sum, highest := make([]float64, len(keys)), 0.0, math.Inf(-1)
	for i, k := range keys {
		scores[i] = scale * dot(q, k)
		highest = max(highest, scores[i])
	}
	for i := range scores {
		scores[i] = math.Exp(scores[i] - highest)
		sum += scores[i]
	}
	out := make([]float64, len(values[0]))
	for i, v := range values {
		for j := range out {
			out[j] += scores[i] / sum * v[j]
		}
	}
	return out
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }
func silu(x float64) float64    { return x * sigmoid(x) }
func gelu(x float64) float64 {
	return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

// gated is down·(activation(gate·x)⊙(up·x)).
func gated(gate, up, down, x []float64, activation func(float64) float64) []float64 {
	h, u := linear(gate, x), linear(up, x)
	for i := range h {
		h[i] = activation(h[i]) * u[i]
	}
	return linear(down, h)
}

func addTo(x, y []float64, scale float64) {
	for i := range x {
		x[i] += scale * y[i]
	}
}

// embed gives the rows of the embedding, and the head the logits of the last hidden states.
func (r *reference) embed(ids []int64, hidden int, scale float64) [][]float64 {
	out := make([][]float64, len(ids))
	for i, id := range ids {
		out[i] = slices.Clone(r.get("embed_tokens.weight")[int(id)*hidden : (int(id)+1)*hidden])
		for j := range out[i] {
			out[i][j] *= scale
		}
	}
	return out
}

func (r *reference) head() []float64 {
	if w, ok := r.weights["lm_head.weight"]; ok {
		return w
	}
	return r.get("embed_tokens.weight")
}

// qwen gives the logits after each token.
func (r *reference) qwen(c *huggingface.Qwen, ids []int64) [][]float64 {
	x := r.embed(ids, c.HiddenSize, 1)
	for i, kind := range c.Layers {
		p := "layers." + strconv.Itoa(i) + "."
		normed := make([][]float64, len(x))
		for t := range x {
			normed[t] = rms(x[t], r.get(p+"input_layernorm.weight"), centred(c), c.RMSNormEps)
		}
		mix := r.qwenDeltaNet
		if kind == huggingface.FullAttention {
			mix = r.qwenAttention
		}
		for t, y := range mix(c, p, normed) {
			addTo(x[t], y, 1)
			n := rms(x[t], r.get(p+"post_attention_layernorm.weight"), centred(c), c.RMSNormEps)
			if c.HasExperts(i) {
				addTo(x[t], r.qwenExperts(c, p+"mlp.", n), 1)
			} else {
				addTo(x[t], gated(r.get(p+"mlp.gate_proj.weight"), r.get(p+"mlp.up_proj.weight"),
					r.get(p+"mlp.down_proj.weight"), n, silu), 1)
			}
		}
	}
	for t := range x {
		x[t] = linear(r.head(), rms(x[t], r.get("norm.weight"), centred(c), c.RMSNormEps))
	}
	return x
}

func (r *reference) qwenAttention(c *huggingface.Qwen, p string, x [][]float64) [][]float64 {
	p += "self_attn."
	out := make([][]float64, len(x))
	keys, values := make([][][]float64, c.KVHeads), make([][][]float64, c.KVHeads)
	for t := range x {
		for h, k := range heads(linear(r.get(p+"k_proj.weight"), x[t]), c.HeadDim) {
			k = rms(k, r.get(p+"k_norm.weight"), centred(c), c.RMSNormEps)
			turn(c, k, t)
			keys[h] = append(keys[h], k)
		}
		for h, v := range heads(linear(r.get(p+"v_proj.weight"), x[t]), c.HeadDim) {
			values[h] = append(values[h], v)
		}
		var y []float64
		rows := c.HeadDim
		if !c.NoGate {
			rows *= 2
		}
		for h, qg := range heads(linear(r.get(p+"q_proj.weight"), x[t]), rows) {
			q, gate := rms(qg[:c.HeadDim], r.get(p+"q_norm.weight"), centred(c), c.RMSNormEps), qg[c.HeadDim:]
			turn(c, q, t)
			kv := h / (c.Heads / c.KVHeads)
			for i, v := range attend(q, keys[kv], values[kv], 1/math.Sqrt(float64(c.HeadDim))) {
				if !c.NoGate {
					v *= sigmoid(gate[i])
				}
				y = append(y, v)
			}
		}
		out[t] = linear(r.get(p+"o_proj.weight"), y)
	}
	return out
}

func (r *reference) qwenDeltaNet(c *huggingface.Qwen, p string, x [][]float64) [][]float64 {
	p += "linear_attn."
	dk, dv, perKey := c.LinearKeyHeadDim, c.LinearValueHeadDim, c.LinearValueHeads/c.LinearKeyHeads
	channels, taps := c.ConvChannels(), c.ConvKernel
	out := make([][]float64, len(x))
	raw := make([][]float64, len(x))
	states := make([][]float64, c.LinearValueHeads) // [Dk][Dv], as transformers has it
	for h := range states {
		states[h] = make([]float64, dk*dv)
	}
	for t := range x {
		var z, b, a []float64
		if c.JointProjections {
			raw[t], z, b, a = r.qwenJoint(c, p, x[t])
		} else {
			raw[t] = linear(r.get(p+"in_proj_qkv.weight"), x[t])
			z, b, a = linear(r.get(p+"in_proj_z.weight"), x[t]), linear(r.get(p+"in_proj_b.weight"), x[t]),
				linear(r.get(p+"in_proj_a.weight"), x[t])
		}
		mixed := make([]float64, channels)
		for ch := range mixed {
			for tap := range taps {
				if at := t - taps + 1 + tap; at >= 0 {
					mixed[ch] += r.get(p + "conv1d.weight")[ch*taps+tap] * raw[at][ch]
				}
			}
			mixed[ch] = silu(mixed[ch])
		}
		q, k, v := mixed[:c.LinearKeyHeads*dk], mixed[c.LinearKeyHeads*dk:2*c.LinearKeyHeads*dk],
			mixed[2*c.LinearKeyHeads*dk:]
		var y []float64
		for h := range c.LinearValueHeads {
			unit := func(x []float64, scale float64) []float64 {
				out := slices.Clone(x[h/perKey*dk : (h/perKey+1)*dk])
				length := math.Sqrt(dot(out, out) + 1e-6)
				for i := range out {
					out[i] *= scale / length
				}
				return out
			}
			qh, kh, vh := unit(q, 1/math.Sqrt(float64(dk))), unit(k, 1), v[h*dv:(h+1)*dv]
			g := math.Exp(-math.Exp(r.get(p + "A_log")[h]) * math.Log1p(math.Exp(a[h]+r.get(p + "dt_bias")[h])))
			s, yh := states[h], make([]float64, dv)
			for j := range dv {
				memory := 0.0
				for i := range dk {
					s[i*dv+j] *= g
					memory += s[i*dv+j] * kh[i]
				}
				delta := (vh[j] - memory) * sigmoid(b[h])
				for i := range dk {
					s[i*dv+j] += kh[i] * delta
					yh[j] += s[i*dv+j] * qh[i]
				}
			}
			for j, v := range rms(yh, r.get(p+"norm.weight"), 0, c.RMSNormEps) {
				y = append(y, v*silu(z[h*dv+j]))
			}
		}
		out[t] = linear(r.get(p+"out_proj.weight"), y)
	}
	return out
}

// qwenJoint gives q, k and v, the gate, beta and step size of joint projections, grouped by key head.
func (r *reference) qwenJoint(c *huggingface.Qwen, p string, x []float64) (qkv, z, b, a []float64) {
	dk, values := c.LinearKeyHeadDim, c.LinearValueHeads/c.LinearKeyHeads
	dv := values * c.LinearValueHeadDim
	var q, k, v []float64
	for _, group := range heads(linear(r.get(p+"in_proj_qkvz.weight"), x), 2*dk+2*dv) {
		q, k, v, z = append(q, group[:dk]...), append(k, group[dk:2*dk]...), append(v, group[2*dk:2*dk+dv]...),
			append(z, group[2*dk+dv:]...)
	}
	for _, group := range heads(linear(r.get(p+"in_proj_ba.weight"), x), 2*values) {
		b, a = append(b, group[:values]...), append(a, group[values:]...)
	}
	return slices.Concat(q, k, v), z, b, a
}

func (r *reference) qwenExperts(c *huggingface.Qwen, p string, x []float64) []float64 {
	scores, sum := linear(r.get(p+"gate.weight"), x), 0.0
	for i := range scores {
		scores[i] = math.Exp(scores[i])
		sum += scores[i]
	}
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		if scores[i] > scores[j] {
			return -1
		}
		return 1
	})
	chosen, kept := order[:c.ExpertsPerToken], 0.0
	for _, e := range chosen {
		kept += scores[e] / sum
	}
	if c.AbsoluteScores {
		kept = 1
	}
	out := make([]float64, c.HiddenSize)
	if shared := p + "shared_expert."; c.SharedExpertIntermediate > 0 {
		y := gated(r.get(shared+"gate_proj.weight"), r.get(shared+"up_proj.weight"), r.get(shared+"down_proj.weight"),
			x, silu)
		addTo(out, y, sigmoid(linear(r.get(p+"shared_expert_gate.weight"), x)[0]))
	}
	for _, e := range chosen {
		n := c.ExpertIntermediate * c.HiddenSize
		part := func(fused, single string, from, size int) []float64 {
			if w, ok := r.weights[p+"experts."+strconv.Itoa(e)+"."+single+".weight"]; ok {
				return w
			}
			return r.get(p + "experts." + fused)[from : from+size]
		}
		gate, up := part("gate_up_proj", "gate_proj", 2*n*e, n), part("gate_up_proj", "up_proj", 2*n*e+n, n)
		addTo(out, gated(gate, up, part("down_proj", "down_proj", n*e, n), x, silu), scores[e]/sum/kept)
	}
	return out
}

// gemma gives the logits after each token.
func (r *reference) gemma(c *huggingface.Gemma4, ids []int64) [][]float64 {
	x := r.embed(ids, c.HiddenSize, math.Sqrt(float64(c.HiddenSize)))
	inputs := r.gemmaInputs(c, ids, x)
	keys, values := map[int][][][]float64{}, map[int][][][]float64{} // by layer and head
	for i := range c.Layers {
		p := "layers." + strconv.Itoa(i) + "."
		norm := func(x []float64, name string) []float64 { return rms(x, r.get(p+name+".weight"), 0, c.RMSNormEps) }
		normed := make([][]float64, len(x))
		for t := range x {
			normed[t] = norm(x[t], "input_layernorm")
		}
		for t, y := range r.gemmaAttention(c, p+"self_attn.", i, normed, keys, values) {
			addTo(x[t], norm(y, "post_attention_layernorm"), 1)
			y = gated(r.get(p+"mlp.gate_proj.weight"), r.get(p+"mlp.up_proj.weight"), r.get(p+"mlp.down_proj.weight"),
				norm(x[t], "pre_feedforward_layernorm"), gelu)
			if c.Experts > 0 {
				y = norm(y, "post_feedforward_layernorm_1")
				addTo(y, norm(r.gemmaExperts(c, p, x[t], norm(x[t], "pre_feedforward_layernorm_2")),
					"post_feedforward_layernorm_2"), 1)
			}
			addTo(x[t], norm(y, "post_feedforward_layernorm"), 1)
			if width := c.PerLayerInput; width > 0 {
				h := linear(r.get(p+"per_layer_input_gate.weight"), x[t])
				for j := range h {
					h[j] = gelu(h[j]) * inputs[t][i*width+j]
				}
				addTo(x[t], norm(linear(r.get(p+"per_layer_projection.weight"), h), "post_per_layer_input_norm"), 1)
			}
			for j := range x[t] {
				x[t][j] *= r.get(p + "layer_scalar")[0]
			}
		}
	}
	for t := range x {
		x[t] = linear(r.head(), rms(x[t], r.get("norm.weight"), 0, c.RMSNormEps))
		for j, v := range x[t] {
			if limit := c.FinalLogitSoftcap; limit != 0 {
				x[t][j] = limit * math.Tanh(v/limit)
			}
		}
	}
	return x
}

// gemmaInputs gives each token's inputs of all layers, for the embeddings x.
func (r *reference) gemmaInputs(c *huggingface.Gemma4, ids []int64, x [][]float64) [][]float64 {
	width := c.PerLayerInput
	if width == 0 {
		return nil
	}
	out := make([][]float64, len(x))
	for t := range x {
		own := r.get("embed_tokens_per_layer.weight")[int(ids[t])*len(c.Layers)*width:]
		for _, part := range heads(linear(r.get("per_layer_model_projection.weight"), x[t]), width) {
			for j := range part {
				part[j] /= math.Sqrt(float64(c.HiddenSize))
			}
			for _, v := range rms(part, r.get("per_layer_projection_norm.weight"), 0, c.RMSNormEps) {
				out[t] = append(out[t], (v+own[len(out[t])]*math.Sqrt(float64(width)))/math.Sqrt2)
			}
		}
	}
	return out
}

// gemmaExperts gives the sum of the experts for their input, chosen by the residual stream.
func (r *reference) gemmaExperts(c *huggingface.Gemma4, p string, stream, x []float64) []float64 {
	routed := rms(stream, r.get(p+"router.scale"), 0, c.RMSNormEps)
	for i := range routed {
		routed[i] /= math.Sqrt(float64(c.HiddenSize))
	}
	scores, order := linear(r.get(p+"router.proj.weight"), routed), make([]int, c.Experts)
	for i := range order {
		order[i], scores[i] = i, math.Exp(scores[i])
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(scores[j], scores[i]) })
	kept, out := 0.0, make([]float64, c.HiddenSize)
	for _, e := range order[:c.ExpertsPerToken] {
		kept += scores[e]
	}
	n := c.ExpertIntermediate * c.HiddenSize
	for _, e := range order[:c.ExpertsPerToken] {
		var gate, up, down []float64
		if single := p + "experts." + strconv.Itoa(e) + "."; r.weights[single+"gate_proj.weight"] != nil {
			gate, up, down = r.get(single+"gate_proj.weight"), r.get(single+"up_proj.weight"),
				r.get(single+"down_proj.weight")
		} else {
			gateUp := r.get(p + "experts.gate_up_proj")[2*n*e:]
			gate, up, down = gateUp[:n], gateUp[n:2*n], r.get(p + "experts.down_proj")[n*e:n*(e+1)]
		}
		addTo(out, gated(gate, up, down, x, gelu), scores[e]/kept*r.get(p + "router.per_expert_scale")[e])
	}
	return out
}

func (r *reference) gemmaAttention(c *huggingface.Gemma4, p string, layer int, x [][]float64, allKeys,
	allValues map[int][][][]float64) [][]float64 {
	kind := c.Layers[layer]
	g, window := c.Sliding, c.SlidingWindow
	if kind == huggingface.FullAttention {
		g, window = c.Full, len(x)
	}
	turn := func(x []float64, t int) []float64 {
		rotate(x, t, g.RotaryDim/2, g.HeadDim/2, g.HeadDim, g.RopeTheta)
		return x
	}
	from := layer
	if first := len(c.Layers) - c.SharedKVLayers; layer >= first {
		for from = first - 1; c.Layers[from] != kind; from-- {
		}
	}
	out := make([][]float64, len(x))
	if from == layer {
		allKeys[layer], allValues[layer] = make([][][]float64, g.KVHeads), make([][][]float64, g.KVHeads)
	}
	keys, values := allKeys[from], allValues[from]
	for t := range x {
		if from == layer {
			rawKeys := linear(r.get(p+"k_proj.weight"), x[t])
			rawValues := rawKeys
			if kind == huggingface.SlidingAttention || c.FullValues {
				rawValues = linear(r.get(p+"v_proj.weight"), x[t])
			}
			for h := range g.KVHeads {
				k, v := heads(rawKeys, g.HeadDim)[h], heads(rawValues, g.HeadDim)[h]
				keys[h] = append(keys[h], turn(rms(k, r.get(p+"k_norm.weight"), 0, c.RMSNormEps), t))
				values[h] = append(values[h], rms(v, nil, 0, c.RMSNormEps))
			}
		}
		var y []float64
		for h, q := range heads(linear(r.get(p+"q_proj.weight"), x[t]), g.HeadDim) {
			kv, first := h/(g.Heads/g.KVHeads), max(0, t+1-window)
			q = turn(rms(q, r.get(p+"q_norm.weight"), 0, c.RMSNormEps), t)
			y = append(y, attend(q, keys[kv][first:t+1], values[kv][first:t+1], 1)...)
		}
		out[t] = linear(r.get(p+"o_proj.weight"), y)
	}
	return out
}
