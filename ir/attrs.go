package ir

// AddmmAttrs: result = Alpha·(mat1 @ mat2) + Beta·bias. Without a bias the delegate ignores both.
type AddmmAttrs struct {
	Alpha float32
	Beta  float32
}

// AxisAttrs name an axis; a negative one counts from the end.
type AxisAttrs struct {
	Axis int
}

// NormAttrs: Eps is added to the mean square (rms_norm) or the variance (layer_norm).
type NormAttrs struct {
	Eps float32
}

// RopeAttrs: the first Dims of the last axis are rotated, in pairs (i, i+Dims/2), or (2i, 2i+1) where
// Traditional. The angle at position p is Scale·p·Base^(-2i/Dims), or Scale·p/freqs[i] with the freqs operand.
type RopeAttrs struct {
	Dims        int
	Traditional bool
	Base        float32
	Scale       float32
}

// SdpaAttrs: Scale multiplies the scores; Causal masks keys after the query, aligned at the last ones.
type SdpaAttrs struct {
	Scale  float32
	Causal bool
}

// SymSizeAttrs: Dim is the axis whose length is read.
type SymSizeAttrs struct {
	Dim int
}

// Conv1DAttrs are those of a convolution over one spatial axis; x [N, L, C], w [O, K, C/Groups].
type Conv1DAttrs struct {
	Stride   int
	Padding  int
	Dilation int
	Groups   int
}

// Conv2DAttrs are those of a convolution over height and width; x [N, H, W, C], w [O, KH, KW, C/Groups].
type Conv2DAttrs struct {
	StrideH   int
	StrideW   int
	PaddingH  int
	PaddingW  int
	DilationH int
	DilationW int
	Groups    int
}

// Conv3DAttrs are those of a convolution over depth, height and width; x [N, D, H, W, C].
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

// GeluAttrs: Approximate is "none" (by the error function) or "tanh".
type GeluAttrs struct {
	Approximate string
}

// OptionalDTypeAttrs name the result's dtype; nil leaves it to the operation.
type OptionalDTypeAttrs struct {
	ScalarType *DType
}

// SqueezeAttrs: Dims are the axes to drop where their length is 1; none means all such.
type SqueezeAttrs struct {
	Dims []int
}

// SoftmaxAttrs: the softmax is over Axis; Precise computes in float32.
type SoftmaxAttrs struct {
	Axis    int
	Precise bool
}

// PadAttrs: Mode is "constant", with ConstantValue, or "edge".
type PadAttrs struct {
	Mode          string
	ConstantValue float32
}

// TransposeAttrs: axis i of the result is axis Perm[i] of x.
type TransposeAttrs struct {
	Perm []int
}

// AsStridedAttrs: Offset is the first element of the view.
type AsStridedAttrs struct {
	Offset int
}

// GatherAttrs: indices[i] runs along Axes[i]; SliceSizes are the sizes taken along every axis of x.
type GatherAttrs struct {
	Axes       []int
	SliceSizes []int
}

// StepAttrs: every Step-th index is taken; a negative step walks backwards.
type StepAttrs struct {
	Step int
}

// DTypeAttrs name the result's dtype.
type DTypeAttrs struct {
	ScalarType DType
}

// ArgReduceAttrs: the index is along Axis, which stays with length 1 where Keepdims.
type ArgReduceAttrs struct {
	Axis     int
	Keepdims bool
}

// DequantizeAttrs: codes of Bits bits in groups of GroupSize; Mode "affine" is scale·code + bias. Dtype is the
// result's; nil means that of the scales.
type DequantizeAttrs struct {
	GroupSize int
	Bits      int
	Mode      string
	Dtype     *DType
}

// TriAttrs: ones at and below diagonal K; ScalarType is the result's dtype.
type TriAttrs struct {
	K          int
	ScalarType DType
}

// DiagonalAttrs: diagonal K bounds what is kept; 0 is the main one, positive ones are above it.
type DiagonalAttrs struct {
	K int
}

// RoundAttrs: values are rounded to Decimals decimal places, ties to even.
type RoundAttrs struct {
	Decimals int
}

// ReduceAttrs: the reduction is over Axes, all where there are none; they stay with length 1 where Keepdims.
type ReduceAttrs struct {
	Axes     []int
	Keepdims bool
}

// VarianceAttrs are ReduceAttrs with Ddof, which is subtracted from the number of elements.
type VarianceAttrs struct {
	Axes     []int
	Keepdims bool
	Ddof     int
}

// ConvTranspose1DAttrs are those of a transposed convolution over one axis.
type ConvTranspose1DAttrs struct {
	Stride        int
	Padding       int
	Dilation      int
	OutputPadding int
	Groups        int
}

// ConvTranspose2DAttrs are those of a transposed convolution over height and width.
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

// ConvTranspose3DAttrs are those of a transposed convolution over depth, height and width.
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

// CumsumAttrs: sums along Axis, from the end where Reverse, each with its own element where Inclusive.
type CumsumAttrs struct {
	Axis      int
	Reverse   bool
	Inclusive bool
}

// QuantizedMatmulAttrs: w holds codes of Bits bits in groups of GroupSize along K, [N, K] where Transpose,
// else [K, N].
type QuantizedMatmulAttrs struct {
	GroupSize int
	Bits      int
	Mode      string
	Transpose bool
}

// GatherMmAttrs: SortedIndices promises that rhs_indices ascend, which allows a faster kernel.
type GatherMmAttrs struct {
	SortedIndices bool
}

// GatherQmmAttrs are QuantizedMatmulAttrs with the promise of GatherMmAttrs.
type GatherQmmAttrs struct {
	Mode          string
	Transpose     bool
	GroupSize     int
	Bits          int
	SortedIndices bool
}

// ScanAttrs are the attributes of scan, a loop over an axis of its operands "originals". The body runs once for every
// index of ScanAxis, with the slice of each original at that index.
type ScanAttrs struct {
	ScanAxis int
}

// MetalKernelAttrs are the arguments of MLX's metal_kernel: the body of a kernel, the names in it, shapes and
// dtypes of what it writes, template arguments (kind 0 int, 1 bool, 2 dtype).
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

// RollAttrs: shift[i] moves elements along Axes[i].
type RollAttrs struct {
	Axes []int
}

// RandomBitsAttrs: Width is the bytes of an element, 1, 2 or 4.
type RandomBitsAttrs struct {
	Width int
}

// UpdateAndAttendAttrs: LayerId names the runner's cache, Scale multiplies the scores, OutDtype is the result's
// dtype, nil for that of the attention.
type UpdateAndAttendAttrs struct {
	LayerId  *int
	Scale    *float32
	OutDtype *DType
}

// QuantizedAttrs are the attributes of quantized, which joins packed codes, scales and biases to one weight. Dtype is
// what the weight dequantizes to in modes other than affine, whose scales are bytes; nil means bf16.
type QuantizedAttrs struct {
	GroupSize int
	Bits      int
	Mode      QuantMode
	Dtype     *DType
}

// NewQuantizedAttrs returns the attributes of the operation quantized for a weight of a form. d is the dtype that it
// dequantizes to; mode affine takes that from its scales.
func NewQuantizedAttrs(form WeightForm, d DType) *QuantizedAttrs {
	a := &QuantizedAttrs{GroupSize: form.Group, Bits: form.Bits, Mode: form.Mode}
	if form.Mode != Affine && d != BF16 {
		a.Dtype = &d
	}
	return a
}

// TopKAttrs: K elements are taken.
type TopKAttrs struct {
	K int
}

// LogprobsAttrs: logprobs has room for Top tokens of each row.
type LogprobsAttrs struct {
	Top int
}

// SwitchMLPAttrs are the attributes of switch_mlp and switch_geglu: calls of more than SortCutoff tokens sort their
// token-expert pairs by expert.
type SwitchMLPAttrs struct {
	SortCutoff int
}

// LinearAttrs are the attributes of linear.
type LinearAttrs struct {
	// Fuse names the weight that this linear's rows become part of: linears with the same input and the
	// same name may be merged, their rows in list order. Empty: on its own.
	Fuse string
}
