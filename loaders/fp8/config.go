package fp8

import (
	"encoding/json"
	"fmt"

	"github.com/etc-ml/etc/loaders/huggingface"
)

// method is the value of quant_method.
const method = "fp8"

// Is reports whether a quantization section is of this kind.
func Is(section json.RawMessage) bool {
	var values struct {
		Method string `json:"quant_method"`
	}
	return json.Unmarshal(section, &values) == nil && values.Method == method
}

// Config is the quantization section of a config.json. Activations are the runtime's affair: activation_scheme says
// nothing about weights.
type Config struct {
	// Rows and Columns of the block of a matrix that shares a scale: weight_block_size.
	Rows, Columns int64

	file string
}

// maxBlock bounds the sides of a block.
const maxBlock = 1 << 16

// ParseConfig reads a quantization section. file is for messages.
func ParseConfig(file string, section json.RawMessage) (*Config, error) {
	var values struct {
		Format string  `json:"fmt"`
		Block  []int64 `json:"weight_block_size"`
	}
	fault := func(key, expected string, found any) error {
		text, _ := json.Marshal(found) // numbers and text can be encoded
		return &huggingface.ConfigError{File: file, Key: "quantization_config" + key,
			Expected: expected, Found: string(text)}
	}
	if err := json.Unmarshal(section, &values); err != nil {
		return nil, fault("", "an object with weight_block_size", err.Error())
	}
	if values.Format != "" && values.Format != "e4m3" {
		return nil, fault(".fmt", `"e4m3", the only format that etc supports`, values.Format)
	}
	b := values.Block
	if len(b) != 2 || b[0] < 1 || b[1] < 1 || b[0] > maxBlock || b[1] > maxBlock {
		expected := fmt.Sprintf("two integers from 1 to %d: etc supports scales of blocks only", maxBlock)
		return nil, fault(".weight_block_size", expected, b)
	}
	return &Config{Rows: b[0], Columns: b[1], file: file}, nil
}
