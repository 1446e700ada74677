package mx

import (
	"encoding/json"
	"slices"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// Config is the quantization section of a config.json.
type Config struct {
	form ir.WeightForm
	// suffixes of the tensors that a matrix is replaced by; global is empty where there is none.
	codes, scales, global string

	file string
}

// section is the content of a quantization section.
type section struct {
	Method string `json:"quant_method"`
	Format string `json:"format"`
	Groups map[string]struct {
		Format  string `json:"format"`
		Weights struct {
			Bits  *int `json:"num_bits"`
			Group *int `json:"group_size"`
		} `json:"weights"`
	} `json:"config_groups"`
}

// The names of the forms.
const (
	gptOSS      = "mxfp4"
	mxfp4Packed = "mxfp4-pack-quantized"
	nvfp4Packed = "nvfp4-pack-quantized"
)

// formats returns those that a section names, for all matrices or by group of them.
func (s section) formats() (out []string) {
	if s.Format != "" {
		out = append(out, s.Format)
	}
	for _, g := range s.Groups {
		if g.Format != "" {
			out = append(out, g.Format)
		}
	}
	if len(out) == 0 && s.Method == gptOSS {
		out = append(out, gptOSS)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func read(text json.RawMessage) (section, bool) {
	var s section
	return s, json.Unmarshal(text, &s) == nil
}

// Is reports whether a quantization section is of this kind.
func Is(text json.RawMessage) bool {
	s, ok := read(text)
	return ok && slices.ContainsFunc(s.formats(),
		func(f string) bool { return f == gptOSS || f == mxfp4Packed || f == nvfp4Packed })
}

// ParseConfig reads a quantization section that [Is] of this kind. file is for messages.
func ParseConfig(file string, text json.RawMessage) (*Config, error) {
	s, _ := read(text)
	fault := func(key, expected string, found any) error {
		text, _ := json.Marshal(found) // numbers and text can be encoded
		return &huggingface.ConfigError{File: file, Key: "quantization_config." + key,
			Expected: expected, Found: string(text)}
	}
	formats := s.formats()
	if len(formats) != 1 {
		return nil, fault("format", "one format for all matrices", formats)
	}
	c := &Config{file: file, form: ir.WeightForm{Mode: ir.MXFP4, Bits: 4, Group: 32}}
	switch formats[0] {
	case gptOSS:
		c.codes, c.scales = "_blocks", "_scales"
	case mxfp4Packed:
		c.codes, c.scales = "_packed", "_scale"
	default:
		c.form = ir.WeightForm{Mode: ir.NVFP4, Bits: 4, Group: 16}
		c.codes, c.scales, c.global = "_packed", "_scale", "_global_scale"
	}
	for _, g := range s.Groups {
		if b := g.Weights.Bits; b != nil && *b != c.form.Bits {
			return nil, fault("config_groups.weights.num_bits", "4", *b)
		}
		if n := g.Weights.Group; n != nil && *n != c.form.Group {
			return nil, fault("config_groups.weights.group_size", map[int]string{32: "32", 16: "16"}[c.form.Group], *n)
		}
	}
	return c, nil
}
