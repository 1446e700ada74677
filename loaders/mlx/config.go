package mlx

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/loaders/builder"
	"github.com/etc-ml/etc/loaders/huggingface"
)

// Config is the quantization section of a config.json.
type Config struct {
	Default ir.WeightForm
	// Modules are the exceptions by the module's name inside the language model ("layers.0.mlp.gate"); nil for
	// a module that is not quantized.
	Modules map[string]*ir.WeightForm

	file string
}

// sectionName is the name of the section in messages. Some files call it quantization_config.
const sectionName = "quantization"

// fields of a form; every other key of the section is a module.
const (
	bitsKey   = "bits"
	groupKey  = "group_size"
	modeKey   = "mode"
	methodKey = "quant_method"
)

var (
	supportedBits   = []int{2, 3, 4, 5, 6, 8}
	supportedGroups = []int{32, 64, 128} // of mode affine
)

// onlyForms are the modes of one form each, which stands where a section does not say bits and group_size.
var onlyForms = map[string]ir.WeightForm{
	ir.MXFP4.String(): {Mode: ir.MXFP4, Bits: 4, Group: 32},
	ir.MXFP8.String(): {Mode: ir.MXFP8, Bits: 8, Group: 32},
	ir.NVFP4.String(): {Mode: ir.NVFP4, Bits: 4, Group: 16},
}

// IsOther reports whether a quantization section was written by another quantizer than MLX's, which its key
// quant_method says.
func IsOther(section json.RawMessage) bool {
	var values map[string]any
	return json.Unmarshal(section, &values) != nil || values[methodKey] != nil && values[methodKey] != "mlx"
}

// ParseConfig reads a quantization section. file is for messages.
func ParseConfig(file string, section json.RawMessage) (*Config, error) {
	decoder := json.NewDecoder(bytes.NewReader(section))
	decoder.UseNumber()
	var values map[string]any
	if err := decoder.Decode(&values); err != nil || values == nil {
		return nil, &huggingface.ConfigError{File: file, Key: sectionName, Expected: "a JSON object",
			Found: clip(string(section))}
	}
	c := &Config{Modules: map[string]*ir.WeightForm{}, file: file}
	var err error
	if c.Default, err = c.form(sectionName, values, ir.WeightForm{}); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if key == bitsKey || key == groupKey || key == modeKey || key == methodKey {
			continue
		}
		name, at := builder.Inner(key), sectionName+"."+clip(key)
		if _, twice := c.Modules[name]; twice {
			return nil, &huggingface.ConfigError{File: file, Key: at, Expected: "one entry for module " + clip(name),
				Found: "a second one"}
		}
		switch v := values[key].(type) {
		case bool:
			if v {
				c.Modules[name] = &c.Default
			} else {
				c.Modules[name] = nil
			}
		case map[string]any:
			f, err := c.form(at, v, c.Default)
			if err != nil {
				return nil, err
			}
			c.Modules[name] = &f
		default:
			return nil, &huggingface.ConfigError{File: file, Key: at,
				Expected: "an object with bits and group_size, or false", Found: clip(fmt.Sprint(v))}
		}
	}
	return c, nil
}

// form reads bits, group_size and mode. An exception for a module takes what it does not list from the general form,
// except for the mode, which is then affine, as in MLX (python/mlx/nn/layers/quantized.py, to_quantized).
func (c *Config) form(at string, values map[string]any, fallback ir.WeightForm) (ir.WeightForm, error) {
	f := fallback
	mode, listed := values[modeKey]
	name, isText := mode.(string)
	only, hasOne := onlyForms[name]
	switch {
	case listed && hasOne:
		f = only
	case listed && (!isText || name != ir.Affine.String()):
		return f, &huggingface.ConfigError{File: c.file, Key: at + "." + modeKey,
			Expected: `"affine", "mxfp4", "mxfp8" or "nvfp4"`, Found: found(mode)}
	default:
		if f.Mode != ir.Affine {
			f.Group = 64
		}
		f.Mode = ir.Affine
	}
	bits, groups := supportedBits, supportedGroups
	if hasOne {
		bits, groups = []int{only.Bits}, []int{only.Group}
	}
	for _, field := range []struct {
		key     string
		allowed []int
		into    *int
	}{{bitsKey, bits, &f.Bits}, {groupKey, groups, &f.Group}} {
		value, ok := values[field.key]
		if (!ok || value == nil && hasOne) && *field.into != 0 {
			continue
		}
		number, _ := value.(json.Number)
		n, err := strconv.Atoi(number.String())
		if err != nil || !slices.Contains(field.allowed, n) {
			return f, &huggingface.ConfigError{File: c.file, Key: at + "." + field.key,
				Expected: "one of " + strings.Trim(strings.ReplaceAll(fmt.Sprint(field.allowed), " ", ", "), "[]"),
				Found:    found(value)}
		}
		*field.into = n
	}
	return f, nil
}

func found(value any) string {
	if value == nil {
		return "no such key"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return clip(string(text))
}

// clip shortens what comes from a file to what an error message can carry.
func clip(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
