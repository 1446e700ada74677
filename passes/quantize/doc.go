// Package quantize turns matrices of weights into 4- and 8-bit codes with a scale and a bias for
// each group of neighbouring columns, in MLX's affine form, or into the small floats of its modes mxfp4,
// mxfp8 and nvfp4. It knows numbers only: which weight gets
// which scheme is the recipe's business, where the bytes go the writer's.
//
// # Form
//
// A weight is scale*Q + bias with an unsigned code Q of b bits (b is 4 or 8). A row of K codes is
// K*b/32 words of 32 bits, the first code in the low bits; scales and biases are [rows, K/group]
// with a group of 32, 64 or 128 (mlx/ops.cpp, affine_quantize). The words are written in
// little-endian order, scales and biases in the format [Scheme.Params], which is bf16 in etc's files.
//
// Below, n = 2^b - 1, h = 2^(b-1), rne rounds to the nearest integer with ties to even, clamp
// limits to the codes, fl rounds to Params and bf to bf16; all else is float32, each operation
// rounded by itself.
//
// # MinMax: MLX's quantize
//
// Source: mlx/backend/cpu/quantized.cpp, quantize; weights of every dtype are computed in float32.
// Over the least value lo and the greatest value hi of the group:
//
//	s    = max((hi - lo)/n, 1e-7), negative unless |lo| > |hi|
//	edge = lo if |lo| > |hi|, else hi
//	k    = rne(edge/s)
//	s, B = edge/k, edge    when k != 0, else  s, 0
//	Q    = clamp(rne((w - B)/s), 0, n)
//	stored: fl(s), fl(B)
//
// The codes belong to the unrounded s and B. The edge of larger magnitude has code 0 and is exact;
// stretching s by edge/(k*s) makes zero exact too and may cut off up to about one step at the other
// end. MLX's Metal kernel rounds ties away from zero and so differs in codes whose quotient ends in
// exactly .5; this package follows the CPU.
//
// # HQQ: torchao's scale-only half-quadratic quantization
//
// Source: torchao/quantization/quant_primitives.py,
// _choose_qparams_and_quantize_scale_only_hqq, after Badri and Shaji, Half-Quadratic Quantization
// (2023); ExecuTorch's --qlinear 4w and 8w and --qembedding 4w and 8w use it
// (extension/llm/export/quantize.py). With e = 2^-23:
//
//	s = max(max|w|/h, e)
//	at most 20 times:
//	    q  = clamp(rne(w/s), -h, h-1)
//	    s' = |max(sum(w*q)/sum(q*q), e)|, or |max(s, e)| when all q are 0
//	    stop after this update when max |s' - s|/max(s, e) over all groups of the tensor < 1e-5
//	q = clamp(rne(w/s), -h, h-1)
//	stored: Q = q + h, fl(s), B = -fl(s)*h
//
// The codes belong to the unrounded s. The stop test spans the tensor, so the same row can get
// other codes in another tensor; a matrix that the exporter fuses out of several (q, k and v, or
// the four input projections of a gated delta net) counts as one tensor, each expert's projection
// as one of its own. [Search] splits the test from the quantization, so that a tensor need not be
// in memory. Sums of float32 products depend on their order; the order is torch's, see sum.go.
//
// # TorchAOAsymmetric and TorchAOSymmetric: torchao's min/max
//
// Source: the same file, _choose_qparams_affine and _quantize_affine_no_dtype_cast, as called by
// extension/llm/export/quant/quantize.py: 4-bit asymmetric for the linear weights of Gemma and of
// prequantized Qwen, 8-bit symmetric with one group a row for their embeddings. With lo and hi
// extended to include 0 and m = 2^-126:
//
//	asymmetric:  s = max((hi - lo)/n, m),  z = clamp(0 - rne(lo/s), 0, n)
//	symmetric:   s = max(max|w|/(n/2), m), z = h
//	r = bf(1/bf(s))
//	Q = clamp(rne(w*r) + z, 0, n)
//	stored: bf(s), B = bf(-bf(s)*z)
//
// The zero point comes from the unrounded s, the codes from the rounded one, and its reciprocal is
// rounded to bf16 once more.
//
// # The modes mxfp4 and mxfp8
//
// Source: mlx/backend/metal/kernels/fp_quantized.h, fp_quantize, which is what makes the checkpoints of mlx-lm; codes
// and scales are those of the OCP Microscaling Formats (MX) Specification 1.0. Groups are of 32; a code Q is an e2m1
// (largest magnitude m = 6) or an e4m3 (m = 448), the scale an e8m0, a power of two:
//
//	E = clamp(round(log2(max|w|/m)), -127, 127), halves away from zero; -127 where all w are 0
//	Q = the code nearest to w*2^-E, ties to the even code, limited to m
//	stored: E + 127
//
// So the largest weight may lie up to a factor of √2 beyond m and is then cut off. The specification's own example
// rounds the exponent down, floor(log2(max|w|)) - floor(log2(m)), which cuts off a factor of 4/3 (mxfp4) or 8/7 (mxfp8)
// at most. MLX's fallback for its CPU differs from the Metal kernel in ties, and in groups of zeros, whose scale it
// makes 1; this package follows the Metal kernel. Best takes that exponent of the five around MLX's whose squared error
// is least.
//
// nvfp4 is the same with groups of 16 and a scale e4m3, the nearest to max|w|/6 (ties to the even code); codes are
// nearest to w/scale. A group whose scale e4m3 cannot say, because it would be 0 or beyond 448, is refused: the format
// has a global scale for it, which nodes that multiply by a weight do not have.
//
// # From torchao's form to MLX's
//
// torchao means s*(q - z) with signed q and z; [Bias] gives the B = -s*(z + h) that makes it
// s*(q + h) + B, rounded to the format twice, as ExecuTorch's exporter computes it
// (backends/mlx/builder/op_helpers.py, to_mlx_qparams). A group coarser than 128, such as a whole
// row, is stored as equal groups of the largest of 128, 64 and 32 that divides it
// (regroup_affine_scales; that function also knows 16, for which MLX has no affine kernel).
//
// # Invariants
//
// The results are the same bits on every CPU, however the rows are split and whoever calls: only
// correctly rounded operations are used, no product is fused with a sum, sums of floats have a fixed
// order, and no state is shared. Every kernel in assembly has a reference implementation in Go that it equals bit by
// bit. Weights that are not finite are an error that names their place, and so is a group whose scale or bias its
// format cannot hold. Memory beyond the result is one group, or one scale a group for HQQ without a [Search].
//
// # Imports
//
// The package imports ir and ir/numeric and must not import loaders, codegen, runtime or other passes.
package quantize
