package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/etc-ml/etc/loaders/huggingface"
	"github.com/etc-ml/etc/loaders/safetensors"
	"github.com/etc-ml/etc/loaders/synthetic"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "draftmodel:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("want one folder to write to")
	}
	c := synthetic.Qwen35Dense27B(24)
	c.VocabSize, c.HiddenSize, c.Heads, c.KVHeads, c.Intermediate = 32768, 2048, 8, 2, 6144
	c.LinearKeyHeads, c.LinearValueHeads = 16, 16
	if err := synthetic.Generate(filepath.Join(args[0], "checkpoint"), synthetic.Spec{Config: c, Seed: 1}); err != nil {
		return err
	}
	return safetensors.WriteFile(filepath.Join(args[0], "mtp.safetensors"), head(c), nil)
}

// head makes the tensors of the head.
func head(c *huggingface.Qwen) (list []safetensors.Entry) {
	h, r := c.HiddenSize, rand.New(rand.NewPCG(1, 2))
	add := func(name string, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		b := make([]byte, 0, 2*n)
		for range n {
			b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(float32(0.04*r.Float64()-0.02))>>16))
		}
		list = append(list, safetensors.Entry{Name: "mtp." + name, DType: safetensors.BF16, Shape: shape,
			Data: safetensors.Bytes(b)})
	}
	add("fc.weight", h, 2*h)
	for _, name := range []string{"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "layers.0.input_layernorm",
		"layers.0.post_attention_layernorm"} {
		add(name+".weight", h)
	}
	const attention, mlp = "layers.0.self_attn.", "layers.0.mlp."
	add(attention+"q_proj.weight", 2*c.Heads*c.HeadDim, h)
	add(attention+"k_proj.weight", c.KVHeads*c.HeadDim, h)
	add(attention+"v_proj.weight", c.KVHeads*c.HeadDim, h)
	add(attention+"o_proj.weight", h, c.Heads*c.HeadDim)
	add(attention+"q_norm.weight", c.HeadDim)
	add(attention+"k_norm.weight", c.HeadDim)
	add(mlp+"gate_proj.weight", c.Intermediate, h)
	add(mlp+"up_proj.weight", c.Intermediate, h)
	add(mlp+"down_proj.weight", h, c.Intermediate)
	return list
}
