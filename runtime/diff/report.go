package diff

import "github.com/etc-ml/etc/runtime/inspect"

// Change tells what became of something from the first file to the second.
type Change string

const (
	// Added is only in the second file, Removed only in the first.
	Added   Change = "added"
	Removed Change = "removed"
	// Changed has other content, Retyped another dtype, shape or quantization too.
	Changed Change = "changed"
	Retyped Change = "retyped"
)

// Report is what differs between two files. The lists hold differences only.
type Report struct {
	A FileSummary `json:"a"`
	B FileSummary `json:"b"`
	// Equal reports whether all lists are empty.
	Equal           bool             `json:"equal"`
	Methods         []Method         `json:"methods"`
	ConstantMethods []ConstantMethod `json:"constant_methods"`
	Metadata        []Metadata       `json:"metadata"`
	Weights         []Weight         `json:"weights"`
	Counts          Counts           `json:"counts"`
}

// FileSummary describes a file. Sizes are in bytes.
type FileSummary struct {
	File string `json:"file"`
	Size int64  `json:"size"`
	// WeightSize, BitsPerWeight and Storage are sums over the weights of the first method that has some.
	WeightSize    int64             `json:"weight_size"`
	BitsPerWeight float64           `json:"bits_per_weight"`
	Storage       []inspect.Storage `json:"storage"`
}

// Counts are the numbers of differences.
type Counts struct {
	Methods         int `json:"methods"`
	ConstantMethods int `json:"constant_methods"`
	Metadata        int `json:"metadata"`
	// LinesAdded and LinesRemoved count lines of the graphs' text.
	LinesAdded   int `json:"graph_lines_added"`
	LinesRemoved int `json:"graph_lines_removed"`
	// Weights by what became of them.
	WeightsEqual   int `json:"weights_equal"`
	WeightsAdded   int `json:"weights_added"`
	WeightsRemoved int `json:"weights_removed"`
	WeightsChanged int `json:"weights_changed"`
	WeightsRetyped int `json:"weights_retyped"`
}

// Method is a method that differs.
type Method struct {
	Name   string `json:"name"`
	Change Change `json:"change"`
	// InputsA to OutputsB are set where inputs or outputs differ: "tokens i64[1,1..255]".
	InputsA  []string `json:"inputs_a,omitempty"`
	InputsB  []string `json:"inputs_b,omitempty"`
	OutputsA []string `json:"outputs_a,omitempty"`
	OutputsB []string `json:"outputs_b,omitempty"`
	// Problem says why the graphs are not compared.
	Problem string `json:"problem,omitempty"`
	// Added and Removed count lines of the graph; Diff has them in unified form, line numbers being those of
	// etc inspect --ir. Lines of constants and constant methods are left out: they are compared apart.
	Added   int      `json:"graph_lines_added"`
	Removed int      `json:"graph_lines_removed"`
	Diff    []string `json:"graph_diff,omitempty"`
}

// ConstantMethod is a constant method that differs. A nil value means that the file does not have it.
type ConstantMethod struct {
	Name string `json:"name"`
	A    []any  `json:"a"`
	B    []any  `json:"b"`
}

// Metadata is a piece of named data that is no weight and differs.
type Metadata struct {
	Key    string `json:"key"`
	Change Change `json:"change"`
	SizeA  int64  `json:"size_a"`
	SizeB  int64  `json:"size_b"`
	HashA  string `json:"sha256_a,omitempty"`
	HashB  string `json:"sha256_b,omitempty"`
	// Keys are the members that differ where both are JSON objects.
	Keys []string `json:"keys,omitempty"`
}

// Weight is a weight that differs.
type Weight struct {
	Name   string `json:"name"`
	Change Change `json:"change"`
	A      *Form  `json:"a,omitempty"`
	B      *Form  `json:"b,omitempty"`
	// RelativeRMS is the root of Σ(b-a)²/Σa² over the values of the weight, dequantized as ir/eval does; nil
	// where the shapes differ, the values are not floats, or the quotient is no number.
	RelativeRMS *float64 `json:"relative_rms,omitempty"`
}

// Form is how a file stores a weight.
type Form struct {
	// Format is a dtype, or mode, bits, group and the dtype of the scales: "affine 4-bit g64 bf16".
	Format string `json:"format"`
	// Shape is the shape of the weight, not of its codes.
	Shape []int64 `json:"shape"`
	// Size is the size of all parts in bytes.
	Size int64 `json:"size"`
	// Hash is the SHA-256 of all parts, where the bytes differ.
	Hash string `json:"sha256,omitempty"`
}
