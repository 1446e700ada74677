package mlx

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
)

func TestParseConfig(t *testing.T) {
	tests := []struct {
		section string
		want    Config
		err     string
	}{
		{section: `{"bits": 4, "group_size": 64}`, want: Config{Default: ir.WeightForm{Bits: 4, Group: 64}, Modules: map[string]*ir.WeightForm{}}},
		{section: `{"bits": 4, "group_size": 64, "mode": "affine", "language_model.model.layers.0.mlp.gate": {"bits": 8, "group_size": 32}, "model.layers.1.mlp.gate": {"bits": 8}, "lm_head": false, "x": true}`,
			want: Config{Default: ir.WeightForm{Bits: 4, Group: 64},
				Modules: map[string]*ir.WeightForm{"layers.0.mlp.gate": {Bits: 8, Group: 32}, "layers.1.mlp.gate": {Bits: 8, Group: 64}, "lm_head": nil, "x": {Bits: 4, Group: 64}}}},
		{section: `[]`, err: "config.json: quantization: expected a JSON object, found []"},
		{section: `{"bits": 4}`, err: "config.json: quantization.group_size: expected one of 32, 64, 128, found no such key"},
		{section: `{"bits": 7, "group_size": 64}`, err: "config.json: quantization.bits: expected one of 2, 3, 4, 5, 6, 8, found 7"},
		{section: `{"bits": 4.5, "group_size": 64}`, err: "quantization.bits: expected one of 2, 3, 4, 5, 6, 8, found 4.5"},
		{section: `{"bits": 4, "group_size": 32, "mode": "int4"}`, err: `config.json: quantization.mode: expected "affine", "mxfp4", "mxfp8" or "nvfp4", found "int4"`},
		{section: `{"bits": 4, "group_size": 64, "mode": "mxfp4"}`, err: `config.json: quantization.group_size: expected one of 32, found 64`},
		{section: `{"mode": "mxfp4", "bits": null, "a": {"mode": "mxfp8"}, "b": {"bits": 8}, "c": {"bits": 8, "group_size": 32}, "d": true, "e": {"mode": "nvfp4", "group_size": 16}}`,
			want: Config{Default: ir.WeightForm{Mode: ir.MXFP4, Bits: 4, Group: 32}, Modules: map[string]*ir.WeightForm{
				"a": {Mode: ir.MXFP8, Bits: 8, Group: 32}, "b": {Bits: 8, Group: 64}, "c": {Bits: 8, Group: 32},
				"d": {Mode: ir.MXFP4, Bits: 4, Group: 32}, "e": {Mode: ir.NVFP4, Bits: 4, Group: 16}}}},
		{section: `{"bits": 4, "group_size": 64, "a": 3}`, err: "config.json: quantization.a: expected an object with bits and group_size, or false, found 3"},
		{section: `{"bits": 4, "group_size": 64, "a": {"bits": "4"}}`, err: `config.json: quantization.a.bits: expected one of 2, 3, 4, 5, 6, 8, found "4"`},
		{section: `{"bits": 4, "group_size": 64, "model.a": false, "language_model.model.a": false}`, err: "expected one entry for module a, found a second one"},
	}
	for _, test := range tests {
		c, err := ParseConfig("config.json", json.RawMessage(test.section))
		if test.err != "" {
			require.ErrorContains(t, err, test.err, test.section)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, test.want.Default, c.Default)
		require.Equal(t, test.want.Modules, c.Modules)
	}
	require.True(t, IsOther(json.RawMessage(`{"quant_method": "gptq", "bits": 4}`)))
	require.False(t, IsOther(json.RawMessage(`{"bits": 4}`)))
}

func TestFold(t *testing.T) {
	tensor := func(name string, d ir.DType, shape ...int64) builder.Tensor {
		return builder.Tensor{Name: name, DType: d.String(), Shape: shape, Data: ir.Bytes(d, shape, make([]byte, ir.Elements(shape)*int64(d.Size())))}
	}
	good := func() []builder.Tensor {
		return []builder.Tensor{tensor("model.a.weight", ir.U32, 2, 16), tensor("model.a.scales", ir.BF16, 2, 2), tensor("model.a.biases", ir.BF16, 2, 2), tensor("model.b.weight", ir.BF16, 2, 3)}
	}
	section := func(s string) *Config {
		c, err := ParseConfig("config.json", json.RawMessage(`{"bits": 4, "group_size": 64`+s+`}`))
		require.NoError(t, err)
		return c
	}
	list, parts, err := Fold(section(""), good())
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []int64{2, 128}, list[0].Shape)
	require.Equal(t, []int{4, 64}, []int{list[0].Quantized.Bits, list[0].Quantized.Group})
	require.Equal(t, map[string][]string{"model.a.weight": {"model.a.weight", "model.a.scales", "model.a.biases"}}, parts)
	require.Nil(t, list[1].Quantized)

	tests := []struct {
		name, section string
		change        func(list []builder.Tensor) []builder.Tensor
		err           string
	}{
		{"other bits", `, "model.a": {"bits": 8}`, nil, "config.json: tensor model.a.weight: expected U32 [2,32], codes of 8 bits for 2 scales a row of groups of 64 (quantization), found u32 [2,16]"},
		{"not quantized", `, "a": false`, nil, "config.json: tensor model.a.scales: expected no scales, as quantization.model.a is false, found bf16 [2,2]"},
		{"no scales", `, "b": {"bits": 8}`, nil, "config.json: tensor model.b.weight: expected model.b.scales beside it, as quantization.model.b has the module quantized, found none"},
		{"no biases", "", func(l []builder.Tensor) []builder.Tensor { return append(l[:2:2], l[3]) }, "config.json: tensor model.a.biases: expected the dtype and shape of the scales, bf16 [2,2], found none"},
		{"no weight", "", func(l []builder.Tensor) []builder.Tensor { return l[1:] }, "config.json: tensor model.a.weight: expected U32 [2,16], codes of 4 bits for 2 scales a row of groups of 64 (quantization), found none"},
		{"scales of integers", "", func(l []builder.Tensor) []builder.Tensor { l[1] = tensor("model.a.scales", ir.U8, 2, 2); return l }, "config.json: tensor model.a.scales: expected BF16, F16 or F32 [..., rows, groups], found u8 [2,2]"},
		{"biases of another shape", "", func(l []builder.Tensor) []builder.Tensor { l[2] = tensor("model.a.biases", ir.BF16, 2, 1); return l }, "expected the dtype and shape of the scales, bf16 [2,2], found bf16 [2,1]"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l := good()
			if test.change != nil {
				l = test.change(l)
			}
			_, _, err := Fold(section(test.section), l)
			require.ErrorContains(t, err, test.err)
		})
	}
}

// FuzzParseConfig: no section makes a panic, and what is accepted is one of MLX's forms.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"bits": 4, "group_size": 64, "mode": "affine", "model.layers.0.mlp.gate": {"bits": 8, "group_size": 32}, "lm_head": false}`))
	f.Fuzz(func(t *testing.T, section []byte) {
		IsOther(section)
		c, err := ParseConfig("config.json", section)
		if err != nil {
			return
		}
		for _, form := range c.Modules {
			if form != nil && (form.Bits < 2 || form.Bits > 8 || form.Group%32 != 0 || form.Group == 0) {
				t.Fatalf("%+v", form)
			}
		}
	})
}
