package ir

// AddmmAttrs are the attributes of AddmmNode.
type AddmmAttrs struct {
	Alpha float32
	Beta  float32
}

// AxisAttrs are the attributes of ExpandDimsNode.
type AxisAttrs struct {
	Axis int
}

// NormAttrs are the attributes of RMSNormNode.
type NormAttrs struct {
	Eps float32
}

// RopeAttrs are the attributes of RopeNode.
type RopeAttrs struct {
	Dims        int
	Traditional bool
	Base        float32
	Scale       float32
}

// SdpaAttrs are the attributes of SdpaNode.
type SdpaAttrs struct {
	Scale  float32
	Causal bool
}

// SymSizeAttrs are the attributes of SymSizeNode.
type SymSizeAttrs struct {
	Dim int
}

// Conv1DAttrs are the attributes of Conv1DNode.
type Conv1DAttrs struct {
	Stride   int
	Padding  int
	Dilation int
	Groups   int
}

// Conv2DAttrs are the attributes of Conv2DNode.
type Conv2DAttrs struct {
	StrideH   int
	StrideW   int
	PaddingH  int
	PaddingW  int
	DilationH int
	DilationW int
	Groups    int
}

// Conv3DAttrs are the attributes of Conv3DNode.
type Conv3DAttrs struct {
	StrideD   int
	StrideH   int
	StrideW   int
	PaddingD  int
	PaddingH  int
	PaddingW  int
	DilationD int
	DilationH int
	DilationW int
	Groups    int
}

// GeluAttrs are the attributes of GeluNode.
type GeluAttrs struct {
	Approximate string
}

// OptionalDTypeAttrs are the attributes of ARangeNode.
type OptionalDTypeAttrs struct {
	ScalarType *DType
}

// SqueezeAttrs are the attributes of SqueezeNode.
type SqueezeAttrs struct {
	Dims []int
}

// SoftmaxAttrs are the attributes of SoftmaxNode.
type SoftmaxAttrs struct {
	Axis    int
	Precise bool
}

// PadAttrs are the attributes of PadNode.
type PadAttrs struct {
	Mode          string
	ConstantValue float32
}

// TransposeAttrs are the attributes of TransposeNode.
type TransposeAttrs struct {
	Perm []int
}

// AsStridedAttrs are the attributes of AsStridedNode.
type AsStridedAttrs struct {
	Offset int
}

// GatherAttrs are the attributes of GatherNode.
type GatherAttrs struct {
	Axes       []int
	SliceSizes []int
}

// StepAttrs are the attributes of SliceNode.
type StepAttrs struct {
	Step int
}

// DTypeAttrs are the attributes of AsTypeNode.
type DTypeAttrs struct {
	ScalarType DType
}

// ArgReduceAttrs are the attributes of ArgmaxNode.
type ArgReduceAttrs struct {
	Axis     int
	Keepdims bool
}

// DequantizeAttrs are the attributes of DequantizeNode.
type DequantizeAttrs struct {
	GroupSize int
	Bits      int
	Mode      string
	Dtype     *DType
}

// TriAttrs are the attributes of TriNode.
type TriAttrs struct {
	K          int
	ScalarType DType
}

// DiagonalAttrs are the attributes of TrilNode.
type DiagonalAttrs struct {
	K int
}

// RoundAttrs are the attributes of RoundNode.
type RoundAttrs struct {
	Decimals int
}

// ReduceAttrs are the attributes of LogSumExpNode.
type ReduceAttrs struct {
	Axes     []int
	Keepdims bool
}

// VarianceAttrs are the attributes of VarNode.
type VarianceAttrs struct {
	Axes     []int
	Keepdims bool
	Ddof     int
}

// ConvTranspose1DAttrs are the attributes of ConvTranspose1DNode.
type ConvTranspose1DAttrs struct {
	Stride        int
	Padding       int
	Dilation      int
	OutputPadding int
	Groups        int
}

// ConvTranspose2DAttrs are the attributes of ConvTranspose2DNode.
type ConvTranspose2DAttrs struct {
	StrideH        int
	StrideW        int
	PaddingH       int
	PaddingW       int
	DilationH      int
	DilationW      int
	OutputPaddingH int
	OutputPaddingW int
	Groups         int
}

// ConvTranspose3DAttrs are the attributes of ConvTranspose3DNode.
type ConvTranspose3DAttrs struct {
	StrideD        int
	StrideH        int
	StrideW        int
	PaddingD       int
	PaddingH       int
	PaddingW       int
	DilationD      int
	DilationH      int
	DilationW      int
	OutputPaddingD int
	OutputPaddingH int
	OutputPaddingW int
	Groups         int
}

// CumsumAttrs are the attributes of CumsumNode.
type CumsumAttrs struct {
	Axis      int
	Reverse   bool
	Inclusive bool
}

// QuantizedMatmulAttrs are the attributes of QuantizedMatmulNode.
type QuantizedMatmulAttrs struct {
	GroupSize int
	Bits      int
	Mode      string
	Transpose bool
}

// GatherMmAttrs are the attributes of GatherMmNode.
type GatherMmAttrs struct {
	SortedIndices bool
}

// GatherQmmAttrs are the attributes of GatherQmmNode.
type GatherQmmAttrs struct {
	Mode          string
	Transpose     bool
	GroupSize     int
	Bits          int
	SortedIndices bool
}

// ScanAttrs are the attributes of ScanNode.
type ScanAttrs struct {
	ScanAxis int
}

// MetalKernelAttrs are the attributes of MetalKernelNode.
type MetalKernelAttrs struct {
	Name                string
	Source              string
	Header              string
	InputNames          []string
	OutputNames         []string
	EnsureRowContiguous bool
	AtomicOutputs       bool
	OutputShapeLengths  []int
	OutputDtypes        []DType
	TemplateArgNames    []string
	TemplateArgKinds    []int
	TemplateArgValues   []int
	InitValue           *float32
}

// RollAttrs are the attributes of RollNode.
type RollAttrs struct {
	Axes []int
}

// RandomBitsAttrs are the attributes of RandomBitsNode.
type RandomBitsAttrs struct {
	Width int
}

// UpdateAndAttendAttrs are the attributes of UpdateAndAttendNode.
type UpdateAndAttendAttrs struct {
	LayerId  *int
	Scale    *float32
	OutDtype *DType
}

// QuantizedAttrs are the attributes of quantized, which joins packed codes, scales and biases to one weight.
type QuantizedAttrs struct {
	GroupSize int
	Bits      int
}

// TopKAttrs are the attributes of top_k.
type TopKAttrs struct {
	K int
}

// SwitchMLPAttrs are the attributes of switch_mlp.
type SwitchMLPAttrs struct {
	SortCutoff int
}

// LinearAttrs are the attributes of linear.
type LinearAttrs struct {
	// Fuse names the weight that this linear's rows become part of: linears with the same input and the
	// same name may be merged, their rows in list order. Empty: on its own.
	Fuse string
}
