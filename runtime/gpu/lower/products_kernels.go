package lower

import (
	"github.com/etc-ml/etc/ir"
	"github.com/etc-ml/etc/runtime/gpu/kernels"
)

// The functions in this file return the kernel for a product operation. Passes use them to ask whether the device may
// use the kernel; the engine uses them to bind it. They return false where kernels cannot read the weight or lack the
// activation.

// MatVec returns the kernel of matvec with one weight, of matvec_heads or of matvec_sum.
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

// MatVecMany returns the kernel of matvec with several weights, or of matvec_conv without its convolution.
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
	if len(k.N) > 1 {
		k.M = elements(op.Input("x")) / k.K // tiles take more rows than other kernels of vectors
	}
	return k, len(k.N) > 0
}

// MatVecGLU returns the kernel of matvec_glu or of matvec_glu_sum.
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

// MatMul returns the kernel of matmul, and the number of rows.
func MatMul(op *ir.Op) (k kernels.MatMul, rows int, ok bool) {
	a := ir.Attrs[ir.MatmulAttrs](op)
	k.Matrices, k.N, rows, ok = matricesOf(op, op.Input("weight"), a.Exact)
	k.Packed = a.Packed
	k.Cap, k.Epilogue = a.Cap, epilogueOf(a.Cap, op.Input("bias"), op.Input("extra"))
	return k, rows, ok
}

// MatMulGLU returns the kernel of matmul_glu, and the number of rows.
func MatMulGLU(op *ir.Op) (k kernels.MatMulGLU, rows int, ok bool) {
	a, known := ir.Attrs[ir.MatmulGLUAttrs](op), false
	k.Matrices, k.N, rows, ok = matricesOf(op, op.Input("gate"), a.Exact)
	k.N, k.Packed = columnsOfPair(op, k.N), a.Packed
	k.Half, k.Lanes = a.Prepared, a.ResultPacked == kernels.InLanes
	k.Activation, known = activationOf(a.Activation)
	return k, rows, ok && known
}

// vectorsOf describes the product of the few rows of operand x with the weight w, which has n rows. With norm the rows
// are normalized first, with the weight in operand norm if there is one.
func vectorsOf(op *ir.Op, w *ir.Value, norm bool, eps float32) (v kernels.Vectors, n int, ok bool) {
	form, ok := weightOf(w)
	if !ok || form.count != 1 {
		return v, 0, false
	}
	v = kernels.Vectors{Format: form.Format, K: form.cols, M: min(elements(op.Input("x"))/form.cols, FewRows), Eps: eps}
	v.Norm = normOf(op, norm)
	return v, form.rows, true
}

// normOf returns the norm that is part of op: none if it is not asked for, with or without the weight in operand norm.
func normOf(op *ir.Op, asked bool) kernels.Norm {
	switch {
	case !asked:
		return kernels.NoNorm
	case op.Input("norm") == nil:
		return kernels.NormPlain
	}
	return kernels.NormF32
}

// vectorsOfSum is vectorsOf for one row that is the norm of a residual sum.
func vectorsOfSum(op *ir.Op, a *ir.MatvecSumAttrs, w *ir.Value) (v kernels.Vectors, n int, ok bool) {
	v, n, ok = vectorsOf(op, w, true, a.Eps)
	v.Sum = &kernels.VectorSum{Eps: a.PreEps, Scaled: op.Input("scale") != nil, Kept: a.Kept}
	return v, n, ok
}

// matricesOf describes the tiled product of the many rows of operand x with the weight w, which has n rows.
func matricesOf(op *ir.Op, w *ir.Value, exact bool) (m kernels.Matrices, n, rows int, ok bool) {
	form, ok := weightOf(w)
	if !ok || form.count != 1 {
		return m, 0, 0, false
	}
	return kernels.Matrices{Format: form.Format, K: form.cols, Exact: exact}, form.rows,
		elements(op.Input("x")) / form.cols, true
}

// epilogueOf returns what a kernel does with its results: it adds a vector or a matrix, or soft-caps them.
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

// columnsOfPair returns the number of columns of activation(gate) · up where operand gate has n rows: n, or n/2 where
// gate has the rows of both.
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
