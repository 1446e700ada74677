package report

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/compare"
	"github.com/etc-ml/etc/runtime/inspect"
)

// headings are the titles of a page's sections.
func headings(page string) []string { return matches(`<h2>(.*?)</h2>`, page) }

// cells are the labelled numbers of a row of the weights.
func cells(row string) []string { return matches(`<td data-label="[^"]+">(.*?)</td>`, row) }

// matches gives what the group of a pattern matched, wherever it did.
func matches(pattern, text string) []string {
	var out []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// load reads a page as a browser would need it: balanced SVG, nothing from elsewhere, and the data block.
func load(t *testing.T, page string, data any) {
	require.True(t, strings.HasPrefix(page, "<!doctype html>"))
	require.Equal(t, strings.Count(page, "<svg"), strings.Count(page, "</svg>"))
	require.NotRegexp(t, `(src|href)="(https?:)?//`, page)
	block := regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`).FindStringSubmatch(page)
	require.Len(t, block, 2)
	require.NoError(t, json.Unmarshal([]byte(block[1]), data))
}

func TestInspectionHoldsItsNumbers(t *testing.T) {
	m := &ir.Module{}
	b := m.NewBuffer("cache", ir.StaticType(ir.F32, 4))
	f := &ir.Func{Name: "forward", Body: &ir.Region{}}
	m.Entry = f
	s := ir.Sym(&ir.Symbol{Lo: 1, Hi: 8})
	x := f.NewParam("x", ir.TensorType(ir.F32, s))
	require.NoError(t, ir.Build(func() {
		g := &ir.Builder{Module: m, Region: f.Body}
		y := g.Value("exp", nil, x)    // 4 S bytes
		z := g.Value("add", nil, y, y) // y ends here: 8 S at its peak
		g.BufferOp("store", b, nil, g.Load(b))
		f.Body.Results, f.Outputs = []*ir.Value{z}, []ir.Type{z.Type}
	}))
	r := &inspect.Report{File: "dir/<tiny>.pte", Size: 4096, ProgramSize: 1024,
		Methods: []inspect.Method{{Name: "forward", Graph: &inspect.Graph{
			Nodes: 3, WeightSize: 300, BitsPerWeight: 4.5,
			Weights: []inspect.Weight{{Name: "layers.0.mlp.experts.gate_proj", Size: 200},
				{Name: "lm_head.weight", Size: 100}},
			Storage: []inspect.Storage{{Format: "affine 4-bit g64", Tensors: 2, Elements: 600, Size: 300,
				BitsPerWeight: 4.5}}}, Model: &inspect.Model{MaxSeqLen: 64, MaxChunk: 8}}}}
	var out bytes.Buffer
	require.NoError(t, Inspection(&out, r, m))
	var d inspectionData
	load(t, out.String(), &d)
	require.Equal(t, int64(8), peak(d.Decode))
	require.Equal(t, int64(8*8), peak(d.Prefill))
	require.Equal(t, []string{"The file", "How the weights are stored", "Memory over a forward pass", "The program"},
		headings(out.String()))
	require.Equal(t, []tile{{"layer 0 mlp experts", "mlp experts", 200}, {"lm_head", "lm_head", 100},
		{"program", "metadata", 1024}}, d.Tiles)
	require.Contains(t, out.String(), `<th scope="row">affine 4-bit g64</th><td>2</td><td>600</td><td>300 B</td><td>4.50</td><td>100 %</td>`)
	require.Contains(t, out.String(), "&lt;tiny&gt;.pte", "names are escaped")
	require.NotContains(t, out.String(), "<tiny>")

	r.Methods[0].Graph = nil
	require.ErrorContains(t, Inspection(&out, r, m), "no graph")
}

func TestComparisonHoldsItsNumbers(t *testing.T) {
	weights := []compare.Weight{
		{Name: "layers.0.mlp.gate.weight", Bits: 8, Group: 64, BitsPerWeight: 8.5, Elements: 10, SQNR: 40, Max: 0.25,
			Histogram: [10]int64{1, 2, 3, 4}},
		{Name: "layers.1.mlp.gate.weight", Bits: 8, Group: 64, BitsPerWeight: 8.5, Elements: 10, SQNR: 30, Max: 0.5,
			Histogram: [10]int64{10}},
		{Name: "norm.weight", SQNR: compare.Decibel(math.Inf(1))},
	}
	var out bytes.Buffer
	require.NoError(t, Comparison(&out, "a.pte", "ckpt", weights,
		[]compare.Layer{{Layer: 0, Error: 0.125, Router: 0.5}, {Layer: 1, Error: 0.25, Router: -1}},
		[]compare.Logits{{Position: 0, Mean: 1, Max: 2, KL: 0.5, Agrees: true},
			{Position: 1, Mean: 3, Max: 6, KL: 1.5}}))
	var d map[string]any
	load(t, out.String(), &d)
	require.Len(t, d["weights"], 3)
	require.Equal(t, []string{"Logits by token", "Layers", "Weights"}, headings(out.String()),
		"what matters most comes first")
	row := regexp.MustCompile(`(?s)<tr><th scope="row">mlp\.<wbr>gate\.<wbr>weight</th>.*?</tr>`).FindString(
		out.String())
	require.Equal(t, []string{"2", "8.50", "35.0", "30.0", "0.5"}, cells(row))
	require.Contains(t, row, "<title>layer 0: 40.0 dB</title>")
	require.Equal(t, 2, strings.Count(row, `class="dot"`), "a dot for each layer")
	require.Equal(t, 4, strings.Count(row, `class="bar"`), "a bar for each bin that is not empty")
	require.Contains(t, out.String(), `<th scope="row">0</th><td>0.1250</td><td>50.0 %</td>`)
	require.Contains(t, out.String(), `<th scope="row">1</th><td>0.2500</td><td>–</td>`)
	for _, fact := range []string{"<dd>2</dd>", "<dd>6</dd>", "<dd>1 nats</dd>", "<dd>50.0 %</dd>"} {
		require.Contains(t, out.String(), fact)
	}
	out.Reset()
	require.NoError(t, Comparison(&out, "a.pte", "ckpt", weights[2:], nil, nil))
	require.Contains(t, out.String(), "Every weight is the checkpoint&#39;s, exactly.")
}

func TestSplitName(t *testing.T) {
	for name, want := range map[string][2]string{
		"layers.3.mlp.experts.gate_proj.packed":           {"3", "mlp experts"},
		"layers.3.input_layernorm.weight":                 {"3", "norms"},
		"layers.12.self_attn.qkv_proj.weight":             {"12", "self_attn"},
		"a61e/layers.0.attn.dt_bias":                      {"0", "attn"},
		"a61e/embed_tokens.weight":                        {"", "embed_tokens"},
		"scalar.f32.1":                                    {"", "scalars"},
		"lm_head.weight.packed":                           {"", "lm_head"},
		"norm.weight":                                     {"", "norms"},
		"model.layers.5.mlp.gate_proj.weight_int4_packed": {"5", "mlp gate_proj"},
	} {
		layer, kind := splitName(name)
		require.Equal(t, want, [2]string{layer, kind}, name)
	}
}

// What is equal is said, not drawn: no chart of zeros, no table of them.
func TestComparisonOfEqualsDrawsNothing(t *testing.T) {
	weights := []compare.Weight{{Name: "norm.weight", SQNR: compare.Decibel(math.Inf(1))}}
	var out bytes.Buffer
	require.NoError(t, Comparison(&out, "a.pte", "ckpt", weights, []compare.Layer{{Router: 1}, {Layer: 1, Router: 1}},
		[]compare.Logits{{Agrees: true}, {Position: 1, Agrees: true}}))
	require.NotContains(t, out.String(), "<svg")
	require.NotContains(t, out.String(), "<table")
	for _, said := range []string{"The logits are the checkpoint&#39;s at every token, exactly.",
		"The residual stream is the checkpoint&#39;s at every layer, exactly. Every router chooses the same experts.",
		"Every weight is the checkpoint&#39;s, exactly."} {
		require.Contains(t, out.String(), said)
	}
}

// Figures that are no numbers stand in the tables, first among the farthest; the charts leave them out.
func TestComparisonOfNaN(t *testing.T) {
	nan := compare.Number(math.NaN())
	var out bytes.Buffer
	require.NoError(t, Comparison(&out, "a.pte", "ckpt",
		[]compare.Weight{{Name: "w.weight", SQNR: compare.Decibel(math.Inf(-1))}},
		[]compare.Layer{{Error: nan, Router: -1}},
		[]compare.Logits{{KL: 1, Max: 2, Agrees: true}, {Mean: nan, Max: nan, KL: nan}}))
	page, _, _ := strings.Cut(out.String(), `<script type="application/json"`)
	require.Contains(t, page, "NaN nats")
	require.Contains(t, page, "-Inf")
	require.NotRegexp(t, ` (d|x|y|width|height|style)="[^"]*(NaN|Inf)`, page)
	require.NotContains(t, page, `class="line"`, "one point is no curve")
	// The second is another prompt's, whose positions begin anew: it is token 1 nevertheless.
	require.Regexp(t, `(?s)<th scope="row">1</th><td>NaN</td>.*<th scope="row">0</th>`, page)
}
