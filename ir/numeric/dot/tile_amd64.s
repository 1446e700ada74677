// Rows by AVX2: the bits of Product, whose eight partial sums are the lanes of a register. No product is fused with a
// sum.

#include "textflag.h"

// STEP adds the products of a row of b, at byte BX of it, to the sums of both rows of a.
#define STEP(row, s0, s1) \
	VMOVUPS (row)(BX*1), Y10; \
	VMULPS  Y8, Y10, Y11;     \
	VMULPS  Y9, Y10, Y12;     \
	VADDPS  Y11, s0, s0;      \
	VADDPS  Y12, s1, s1

// JOIN stores the joined lanes of a sum.
#define JOIN(s, xs, xt, at) \
	VEXTRACTF128 $1, s, xt;    \
	VADDPS       xt, xs, xs;   \
	VMOVHLPS     xs, xs, xt;   \
	VADDPS       xt, xs, xs;   \
	VMOVSHDUP    xs, xt;       \
	VADDSS       xt, xs, xs;   \
	VMOVSS       xs, at

// func tileAVX2(out *float32, outStride int, a *float32, aStride int, b *float32, bStride, cols, k int)
TEXT ·tileAVX2(SB), NOSPLIT, $0-64
	MOVQ out+0(FP), DI
	MOVQ outStride+8(FP), R8
	MOVQ a+16(FP), SI
	MOVQ aStride+24(FP), R13
	MOVQ b+32(FP), R9
	MOVQ bStride+40(FP), AX
	MOVQ cols+48(FP), CX
	MOVQ k+56(FP), DX
	SHLQ $2, DX            // bytes of a row
	SHLQ $2, AX            // from row to row of b
	LEAQ (SI)(R13*4), R13  // second row of a
	LEAQ (DI)(R8*4), R14   // second row of out

columns:
	LEAQ   (R9)(AX*1), R10
	LEAQ   (R10)(AX*1), R11
	LEAQ   (R11)(AX*1), R12
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	XORQ   BX, BX

inner:
	VMOVUPS (SI)(BX*1), Y8
	VMOVUPS (R13)(BX*1), Y9
	STEP(R9, Y0, Y4)
	STEP(R10, Y1, Y5)
	STEP(R11, Y2, Y6)
	STEP(R12, Y3, Y7)
	ADDQ    $32, BX
	CMPQ    BX, DX
	JLT     inner

	JOIN(Y0, X0, X8, (DI))
	JOIN(Y1, X1, X8, 4(DI))
	JOIN(Y2, X2, X8, 8(DI))
	JOIN(Y3, X3, X8, 12(DI))
	JOIN(Y4, X4, X8, (R14))
	JOIN(Y5, X5, X8, 4(R14))
	JOIN(Y6, X6, X8, 8(R14))
	JOIN(Y7, X7, X8, 12(R14))
	ADDQ $16, DI
	ADDQ $16, R14
	LEAQ (R12)(AX*1), R9
	SUBQ $4, CX
	JNE  columns
	VZEROUPPER
	RET
