package builder

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/ir/numeric"
)

func TestNames(t *testing.T) {
	tests := []struct{ name, inner, kind string }{
		{"model.language_model.layers.0.x", "layers.0.x", ""},
		{"language_model.model.layers.0.x", "layers.0.x", ""},
		{"model.layers.0.x", "layers.0.x", ""},
		{"layers.0.x", "layers.0.x", ""},
		{"lm_head.weight", "lm_head.weight", ""},
		{"language_model.lm_head.weight", "lm_head.weight", ""},
		{"model.visual.blocks.0.norm1.bias", "visual.blocks.0.norm1.bias", Vision},
		{"visual.merger.norm.weight", "visual.merger.norm.weight", Vision},
		{"model.vision_tower.x", "vision_tower.x", Vision},
		{"model.embed_vision.embedding_projection.weight", "embed_vision.embedding_projection.weight", Vision},
		{"model.multi_modal_projector.x", "multi_modal_projector.x", Vision},
		{"model.audio_tower.x", "audio_tower.x", Audio},
		{"model.embed_audio.x", "embed_audio.x", Audio},
		{"mtp.fc.weight", "mtp.fc.weight", MultiToken},
		{"model.mtp.layers.0.x", "mtp.layers.0.x", MultiToken},
		{"model.mtp_norm.weight", "mtp_norm.weight", MultiToken},
		{"model.visuals.x", "visuals.x", ""},
		{"other.visual.x", "other.visual.x", ""},
	}
	for _, test := range tests {
		_, inner := splitName(test.name)
		kind, _ := otherModule(inner)
		require.Equal(t, []string{test.inner, test.kind}, []string{inner, kind}, test.name)
	}
}

func TestStack(t *testing.T) {
	tensor := func(name string, d ir.DType, v ...byte) Tensor {
		shape := []int64{int64(len(v) / d.Size())}
		return Tensor{Name: name, DType: d.String(), Shape: shape, Data: ir.Bytes(d, shape, v)}
	}
	ts := NewTensors([]Tensor{tensor("model.1", ir.BF16, 3, 4, 5, 6), tensor("model.0", ir.BF16, 1, 2, 9, 9),
		tensor("model.2", ir.F32, 0, 0, 0, 0, 0, 0, 0, 0)})
	require.True(t, ts.Has("0"))
	require.True(t, ts.HasUnder("2"))
	require.False(t, ts.HasUnder("model"))
	name := func(i int) string { return string(rune('0' + i)) }
	w := ts.Stack("both", 2, name, 2)
	require.Equal(t, []int64{2, 2}, w.Data.Shape())
	p, err := ir.ReadData(w.Data)
	require.NoError(t, err)
	require.Equal(t, []byte{1, 2, 9, 9, 3, 4, 5, 6}, p)
	require.Equal(t, []string{"model.1", "model.0"}, ts.Used())
	require.EqualError(t, ts.Err("DIR", "X"),
		"DIR: 1 tensor does not fit config.json, which describes a X; use the config.json that belongs to the weights, and complete files:"+
			"\n\tmodel.2: expected no such tensor, found f32 [2]")

	w = ts.Stack("all", 4, name, 2)
	require.Equal(t, []int64{4, 2}, w.Data.Shape())
	require.EqualError(t, ts.Err("DIR", "X"),
		"DIR: 2 tensors do not fit config.json, which describes a X; use the config.json that belongs to the weights, and complete files:"+
			"\n\tmodel.2: expected the dtype of the first, bf16, found f32"+
			"\n\tmodel.3: expected BF16, F16 or F32 [2], found none")
	_, err = ir.ReadData(w.Data)
	require.ErrorContains(t, err, "the checkpoint lacks")
}

// TestFloat32 checks that conversions are exact, and that equal provenance means equal bytes.
func TestFloat32(t *testing.T) {
	tests := []struct {
		name           string
		dtype          ir.DType
		bytes          []byte
		value, onePlus float32
	}{
		{"bf16", ir.BF16, []byte{0x80, 0x3b}, 0x1p-8, 1 + 0x1p-8}, // 1 + 2^-8 is no bf16
		{"f16", ir.F16, []byte{0x01, 0x80}, -0x1p-24, 1 - 0x1p-24},
		{"f32", ir.F32, []byte{0, 0, 0, 0x34}, 0x1p-23, 1 + 0x1p-23},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := Weight{Name: "w", Data: ir.Bytes(test.dtype, []int64{1}, test.bytes)}
			for _, have := range []struct {
				weight     Weight
				want       float32
				provenance string
			}{
				{w.Float32(), test.value, "f32(" + w.Data.Provenance() + ")"},
				{w.OnePlus(), test.onePlus, "one_plus_f32(" + w.Data.Provenance() + ")"},
			} {
				require.Equal(t, ir.F32, have.weight.Data.DType())
				p, err := ir.ReadData(have.weight.Data)
				require.NoError(t, err)
				values := make([]float32, 1)
				numeric.F32SliceFromBytes(values, p)
				require.Equal(t, []float32{have.want}, values)
				if have.weight.Data.Provenance() != w.Data.Provenance() {
					require.Equal(t, have.provenance, have.weight.Data.Provenance())
				}
			}
		})
	}
}
