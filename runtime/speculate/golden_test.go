package speculate_test

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/eval"
	"github.com/etc-ml/etc/loaders"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/passes"
	"github.com/etc-ml/etc/runtime/cpu"
	"github.com/etc-ml/etc/runtime/engine"
	"github.com/etc-ml/etc/runtime/reference"
	"github.com/etc-ml/etc/runtime/session"
	"github.com/etc-ml/etc/runtime/speculate"
)

// tolerance is what a float32 implementation may differ from the recorded numbers by, which transformers computed.
const tolerance = 5e-4

var checkpoints = filepath.Join("..", "..", "testdata", "checkpoints")

// goldens are recorded tensors.
type goldens struct {
	t    *testing.T
	file *safetensors.File
}

func openGoldens(t *testing.T, path string) goldens {
	t.Helper()
	f, err := safetensors.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return goldens{t, f}
}

func (g goldens) raw(name string) (*safetensors.Tensor, []byte) {
	g.t.Helper()
	x, ok := g.file.Tensor(name)
	require.True(g.t, ok, name)
	b, err := io.ReadAll(x.Reader())
	require.NoError(g.t, err)
	return x, b
}

func (g goldens) ints(name string) []int64 {
	_, b := g.raw(name)
	out := make([]int64, len(b)/8)
	for i := range out {
		out[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return out
}

// rows gives a tensor [..., n] as its rows.
func (g goldens) rows(name string) [][]float32 {
	x, b := g.raw(name)
	v, err := eval.Decode(ir.F32, x.Shape, b)
	require.NoError(g.t, err)
	return slices.Collect(slices.Chunk(v.F, x.Shape[len(x.Shape)-1]))
}

// open compiles a model with its draft: forward gives logits and hidden states of all rows.
func open(t *testing.T, e engine.Engine, dir, draft string) *pair {
	t.Helper()
	c, err := loaders.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	if draft == "auto" {
		require.Empty(t, c.FindDraft())
	} else {
		require.NoError(t, c.OpenDraft(draft))
	}
	m, err := c.Build(loaders.Options{MaxSeqLen: 512})
	require.NoError(t, err)
	require.NoError(t, passes.Run(m, &passes.Options{}))
	return compile(t, e, m)
}

func compile(t *testing.T, e engine.Engine, m *ir.Module) *pair {
	t.Helper()
	m, ok := session.AllRows(m)
	require.True(t, ok)
	m, err := speculate.Hidden(m)
	require.NoError(t, err)
	m, err = speculate.Bind(m, "draft")
	require.NoError(t, err)
	x, err := engine.Compile(e, m, engine.Options{Precision: eval.FP32, Threads: 1, Warn: func(string) {}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	i, err := x.NewInstance()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, i.Close()) })
	return &pair{t, i}
}

// pair is a model and its draft on one state.
type pair struct {
	t *testing.T
	engine.Instance
}

func (p *pair) call(entry string, inputs ...eval.Value) (logits, hidden [][]float32) {
	p.t.Helper()
	out, err := p.Instance.(engine.Entries).Call(p.t.Context(), entry, inputs)
	require.NoError(p.t, err)
	require.Len(p.t, out, 2)
	split := func(v *eval.Tensor) [][]float32 {
		return slices.Collect(slices.Chunk(v.F, v.Shape[len(v.Shape)-1]))
	}
	return split(out[0].Tensor), split(out[1].Tensor)
}

func tokensAt(tokens []int64, position int) []eval.Value {
	at := make([]int64, len(tokens))
	for i := range at {
		at[i] = int64(position + i)
	}
	return []eval.Value{{Tensor: eval.Ints(ir.I64, []int{1, len(tokens)}, tokens)},
		{Tensor: eval.Ints(ir.I64, []int{len(tokens)}, at)}}
}

func hiddenOf(rows ...[]float32) eval.Value {
	return eval.Value{Tensor: eval.Floats(ir.F32, []int{1, len(rows), len(rows[0])}, slices.Concat(rows...))}
}

// forward runs the model on tokens from a position on, in calls of at most 16.
func (p *pair) forward(tokens []int64, position int) (logits, hidden [][]float32) {
	for chunk := range slices.Chunk(tokens, 16) {
		l, h := p.call("forward", tokensAt(chunk, position)...)
		logits, hidden, position = append(logits, l...), append(hidden, h...), position+len(chunk)
	}
	return logits, hidden
}

func (p *pair) draft(tokens []int64, position int, hidden ...[]float32) (logits []float32, out [][]float32) {
	l, h := p.call("draft", append(tokensAt(tokens, position), hiddenOf(hidden...))...)
	require.Len(p.t, l, 1)
	require.Len(p.t, h, len(tokens))
	return l[0], h
}

func near(t *testing.T, want, got [][]float32, what string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want), append([]any{what}, args...)...)
	for i := range want {
		require.InDeltaSlice(t, want[i], got[i], tolerance, append([]any{what}, args...)...)
	}
}

func argmax(x []float32) int64 {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return int64(best)
}

var engines = map[string]engine.Engine{"reference": reference.Engine{}, "cpu": cpu.Engine{}}

// TestMultiToken: the head for multi-token prediction gives the recorded logits and hidden states, after texts
// that are given and after its own drafts, whatever calls the text is cut into.
func TestMultiToken(t *testing.T) {
	for _, test := range []struct {
		name, base, draft string
		prompts           []int
		logits            bool // of all rows are recorded
	}{
		{"qwen35-tiny", "qwen35-tiny", "auto", []int{0, 1}, true},
		{"qwen35moe-chat", "qwen35moe-chat", filepath.Join("qwen35moe-chat-mtp", "mtp.safetensors"), []int{2}, false},
	} {
		for device, e := range engines {
			t.Run(test.name+"/"+device, func(t *testing.T) {
				draft := test.draft
				if draft != "auto" {
					draft = filepath.Join(checkpoints, draft)
				}
				p := open(t, e, filepath.Join(checkpoints, test.base), draft)
				g := openGoldens(t, filepath.Join("testdata", test.name+".safetensors"))
				for _, prompt := range test.prompts {
					require.NoError(t, p.Reset())
					checkMultiToken(t, p, g, "prompt"+strconv.Itoa(prompt)+".", test.logits)
				}
			})
		}
	}
}

func checkMultiToken(t *testing.T, p *pair, g goldens, prefix string, rowLogits bool) {
	t.Helper()
	ids := g.ints(prefix + "ids")
	n := len(ids)
	text := append(slices.Clone(ids), g.ints(prefix + "greedy_ids")[:9]...)
	_, base := p.forward(text[:n+8], 0)
	near(t, g.rows(prefix+"base_hidden"), base, prefix+"base_hidden")
	// All rows but those of the chains in one call; then the rest one by one, with a chain after each.
	wantHidden := g.rows(prefix + "mtp_hidden")
	if n > 1 {
		_, hidden := p.draft(text[1:n], 0, base[:n-1]...)
		near(t, wantHidden[:n-1], hidden, prefix+"mtp_hidden")
	}
	chainIDs, chainLogits, chainHidden := g.ints(prefix+"chain_ids"), g.rows(prefix+"chain_logits"),
		g.rows(prefix+"chain_hidden")
	for c := range 9 {
		row := n - 1 + c
		token, h := text[row+1], base[row]
		for k := range 3 {
			logits, hidden := p.draft([]int64{token}, row+k, h)
			near(t, chainLogits[3*c+k:3*c+k+1], [][]float32{logits}, "%schain %d.%d: logits", prefix, c, k)
			near(t, chainHidden[3*c+k:3*c+k+1], hidden, "%schain %d.%d: hidden", prefix, c, k)
			if k == 0 {
				near(t, wantHidden[row:row+1], hidden, "%srow %d", prefix, row)
			}
			token, h = argmax(logits), hidden[0]
			require.Equal(t, chainIDs[3*c+k], token, "%schain %d.%d", prefix, c, k)
		}
	}
	if !rowLogits {
		return
	}
	for row, want := range g.rows(prefix + "draft_logits") { // once more, from the start: entries are written again
		logits, _ := p.draft(text[row+1:row+2], row, base[row])
		near(t, [][]float32{want}, [][]float32{logits}, "%sdraft_logits %d", prefix, row)
	}
}

// TestAssistant: an assistant drafts the recorded chains with the caches of its target, which it reads without a copy,
// after the prompt and after every token, around the end of the window.
func TestAssistant(t *testing.T) {
	for device, e := range engines {
		t.Run(device, func(t *testing.T) {
			p := open(t, e, filepath.Join(checkpoints, "gemma4-chat"),
				filepath.Join(checkpoints, "gemma4-chat-assistant"))
			checkAssistant(t, p, openGoldens(t, filepath.Join("testdata", "gemma4-chat.safetensors")), "prompt3.")
		})
	}
}

func checkAssistant(t *testing.T, p *pair, g goldens, prefix string) {
	t.Helper()
	ids, greedy := g.ints(prefix+"ids"), g.ints(prefix+"greedy_ids")
	draftIDs, draftLogits, draftHidden := g.ints(prefix+"draft_ids"), g.rows(prefix+"draft_logits"),
		g.rows(prefix+"draft_hidden")
	target := g.rows(prefix + "target_hidden")
	feed, position := ids, 0
	for c := range 9 {
		logits, hidden := p.forward(feed, position)
		position += len(feed)
		near(t, target[c:c+1], hidden[len(hidden)-1:], "%starget_hidden %d", prefix, c)
		token, h := argmax(logits[len(logits)-1]), hidden[len(hidden)-1]
		require.Equal(t, greedy[c], token)
		feed = []int64{token}
		for k := range 3 {
			logits, out := p.draft([]int64{token}, position, h)
			near(t, draftLogits[3*c+k:3*c+k+1], [][]float32{logits}, "%schain %d.%d: logits", prefix, c, k)
			near(t, draftHidden[3*c+k:3*c+k+1], out, "%schain %d.%d: hidden", prefix, c, k)
			token, h = argmax(logits), out[0]
			require.Equal(t, draftIDs[3*c+k], token, "%schain %d.%d", prefix, c, k)
		}
	}
}

// TestGoldensElsewhere runs the checks on all recorded data where ETC_GOLDENS names the folder of it, which no
// clone has.
func TestGoldensElsewhere(t *testing.T) {
	root := os.Getenv("ETC_GOLDENS")
	if root == "" {
		t.Skip("ETC_GOLDENS names no folder")
	}
	at := func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	prompts := func(t *testing.T, g goldens, f func(prefix string)) {
		n := 0
		for ; ; n++ {
			prefix := "prompt" + strconv.Itoa(n) + "."
			if _, ok := g.file.Tensor(prefix + "ids"); !ok {
				break
			}
			f(prefix)
		}
		require.Positive(t, n)
	}
	for device, e := range engines {
		for _, x := range [][4]string{
			{"qwen35moe-tiny", at("qwen35moe-tiny", "hf"), at("qwen35moe-mtp-tiny", "mtp.safetensors"),
				at("qwen35moe-mtp-tiny", "goldens_fp32.safetensors")},
			{"qwen35-tiny", at("qwen35-tiny", "hf"), "auto", at("qwen35-tiny", "mtp_goldens_fp32.safetensors")},
			{"qwen35moe-chat", at("qwen35moe-chat", "hf"), at("qwen35moe-chat-mtp", "mtp.safetensors"),
				at("qwen35moe-chat-mtp", "mtp_goldens_fp32.safetensors")},
		} {
			t.Run(x[0]+"/"+device, func(t *testing.T) {
				p, g := open(t, e, x[1], x[2]), openGoldens(t, x[3])
				prompts(t, g, func(prefix string) {
					require.NoError(t, p.Reset())
					checkMultiToken(t, p, g, prefix, true)
				})
			})
		}
		for _, x := range [][3]string{
			{"gemma4-tiny", "gemma4-tiny", "gemma4-assistant-tiny"},
			{"ordered", "gemma4-tiny", "gemma4-assistant-ordered-tiny"},
			{"gemma4-chat", "gemma4-chat", "gemma4-chat-assistant"},
		} {
			t.Run(x[0]+"/"+device, func(t *testing.T) {
				p, g := open(t, e, at(x[1], "hf"), at(x[2], "hf")), openGoldens(t, at(x[2], "goldens_fp32.safetensors"))
				prompts(t, g, func(prefix string) {
					require.NoError(t, p.Reset())
					checkAssistant(t, p, g, prefix)
				})
			})
		}
	}
}
