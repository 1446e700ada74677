package lower

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// The functions in this file tell the kernel of a product from its operation. Rows ask with them whether the device may
// use it, and the engine binds it. They give false where kernels read no such weight or have no such activation.

// MatVec is the kernel of matvec of one weight, of matvec_heads or of matvec_sum.
func MatVec(op *ir.Op) (k kernels.MatVec, ok bool) {
	switch a := op.Attrs.(type) {
	case *ir.MatvecAttrs:
		k.Vectors, k.N, ok = vectorsOf(op, op.Operand("weights")[0].Value, a.Norm, a.Eps)
		k.Cap, k.Epilogue = a.Cap, epilogueOf(a.Cap, op.Input("bias"), op.Input("extra"))
	case *ir.MatvecHeadsAttrs:
		var known bool
		k.Vectors, k.N, ok = vectorsOf(op, op.Input("weight"), true, a.Eps)
		k.Cap, k.Epilogue, k.Head = a.Cap, epilogueOf(a.Cap, nil, op.Input("extra")), a.Head
		k.Activation, known = activationOf(a.Activation)
		ok = ok && known
	case *ir.MatvecSumAttrs:
		k.Vectors, k.N, ok = vectorsOfSum(op, a, op.Input("weight"))
		k.Cap, k.Epilogue = a.Cap, epilogueOf(a.Cap, nil, nil)
	}
	return k, ok
}

// MatVecMany is the kernel of matvec of several weights, or of matvec_conv without its convolution.
func MatVecMany(op *ir.Op) (k kernels.MatVecMany, ok bool) {
	norm, eps := false, float32(0)
	switch a := op.Attrs.(type) {
	case *ir.MatvecAttrs:
		norm, eps = a.Norm, a.Eps
	case *ir.MatvecConvAttrs:
		norm, eps = a.Norm, a.Eps
	}
	for _, w := range op.Operand("weights") {
		v, n, ok := vectorsOf(op, w.Value, norm, eps)
		if !ok {
			return k, false
		}
		k.Vectors, k.N = v, append(k.N, n)
	}
	return k, len(k.N) > 0
}

// MatVecGLU is the kernel of matvec_glu or of matvec_glu_sum.
func MatVecGLU(op *ir.Op) (k kernels.MatVecGLU, ok bool) {
	name, gate, known := "", op.Input("gate"), false
	switch a := op.Attrs.(type) {
	case *ir.MatvecGLUAttrs:
		name = a.Activation
		k.Vectors, k.N, ok = vectorsOf(op, gate, a.Norm, a.Eps)
	case *ir.MatvecSumAttrs:
		name = a.Activation
		k.Vectors, k.N, ok = vectorsOfSum(op, a, gate)
	}
	k.N = columnsOfPair(op, k.N)
	k.Activation, known = activationOf(name)
	return k, ok && known
}

// MatMul is the kernel of matmul, for so many rows.
func MatMul(op *ir.Op) (k kernels.MatMul, rows int, ok bool) {
	a := ir.Attrs[ir.MatmulAttrs](op)
	k.Matrices, k.N, rows, ok = matricesOf(op, op.Input("weight"), a.Exact)
	k.Cap, k.Epilogue = a.Cap, epilogueOf(a.Cap, op.Input("bias"), op.Input("extra"))
	return k, rows, ok
}

// MatMulGLU is the kernel of matmul_glu, for so many rows.
func MatMulGLU(op *ir.Op) (k kernels.MatMulGLU, rows int, ok bool) {
	a, known := ir.Attrs[ir.MatmulGLUAttrs](op), false
	k.Matrices, k.N, rows, ok = matricesOf(op, op.Input("gate"), a.Exact)
	k.N = columnsOfPair(op, k.N)
	k.Activation, known = activationOf(a.Activation)
	return k, rows, ok && known
}

// vectorsOf describes the product of the few rows of operand x with a weight, which has n rows. With norm they are
// normalized first, with the weight in operand norm if there is one.
func vectorsOf(op *ir.Op, w *ir.Value, norm bool, eps float32) (v kernels.Vectors, n int, ok bool) {
	form, ok := weightOf(w)
	if !ok || form.count != 1 {
		return v, 0, false
	}
	v = kernels.Vectors{Format: form.Format, K: form.cols, M: min(elements(op.Input("x"))/form.cols, FewRows), Eps: eps}
	v.Norm = normOf(op, norm)
	return v, form.rows, true
}

// normOf is the normalization that operation op asks for, or not, with the weight in operand norm if there is one.
func normOf(op *ir.Op, asked bool) kernels.Norm {
	switch {
	case !asked:
		return kernels.NoNorm
	case op.Input("norm") == nil:
		return kernels.NormPlain
	}
	return kernels.NormF32
}

// vectorsOfSum is vectorsOf of one row that is the normalization of a sum.
func vectorsOfSum(op *ir.Op, a *ir.MatvecSumAttrs, w *ir.Value) (v kernels.Vectors, n int, ok bool) {
	v, n, ok = vectorsOf(op, w, true, a.Eps)
	v.Sum = &kernels.VectorSum{Eps: a.PreEps, Scaled: op.Input("scale") != nil, Kept: a.Kept}
	return v, n, ok
}

// matricesOf describes the product of many rows, operand x, with a weight of n rows by tiles.
func matricesOf(op *ir.Op, w *ir.Value, exact bool) (m kernels.Matrices, n, rows int, ok bool) {
	form, ok := weightOf(w)
	if !ok || form.count != 1 {
		return m, 0, 0, false
	}
	return kernels.Matrices{Format: form.Format, K: form.cols, Exact: exact}, form.rows,
		elements(op.Input("x")) / form.cols, true
}

// epilogueOf is what follows a product: a vector or a matrix that is added, or a bound.
func epilogueOf(limit float32, bias, extra *ir.Value) kernels.Epilogue {
	switch {
	case bias != nil:
		return kernels.AddVector
	case extra != nil:
		return kernels.AddMatrix
	case limit != 0:
		return kernels.Softcap
	}
	return kernels.NoEpilogue
}

// columnsOfPair is the number of columns that activation(gate) · up has where operand gate has n rows: half as many
// where both are halves of one weight.
func columnsOfPair(op *ir.Op, n int) int {
	if op.Input("up") == nil {
		return n / 2
	}
	return n
}

func activationOf(name string) (a kernels.Activation, ok bool) {
	a, err := kernels.ActivationNamed(name)
	return a, err == nil
}
