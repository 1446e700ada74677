// Multiply by Advanced SIMD: the bits of Product, whose eight partial sums are the lanes of two registers. No product
// is fused with a sum.

#include "textflag.h"

// Instructions that Go's assembler does not know (Arm Architecture Reference Manual, C7.2), the destination last.
#define FADD4S(m, n, d)  WORD $(0x4e20d400 | m<<16 | n<<5 | d)
#define FMUL4S(m, n, d)  WORD $(0x6e20dc00 | m<<16 | n<<5 | d)
#define FADDP4S(m, n, d) WORD $(0x6e20d400 | m<<16 | n<<5 | d)

// STEP adds the products of eight numbers of a row of b to the sums (u0, u1) of the first row of a and (v0, v1) of the
// second.
#define STEP(row, u0, u1, v0, v1) \
	VLD1.P 32(row), [V20.S4, V21.S4]; \
	FMUL4S(20, 16, 22);               \
	FMUL4S(21, 17, 23);               \
	FMUL4S(20, 18, 24);               \
	FMUL4S(21, 19, 25);               \
	FADD4S(22, u0, u0);               \
	FADD4S(23, u1, u1);               \
	FADD4S(24, v0, v0);               \
	FADD4S(25, v1, v1)

// JOIN stores the joined lanes of a sum: those of its halves, then lanes 0 and 2 with 1 and 3.
#define JOIN(s0, s1, at, V) \
	FADD4S(s1, s0, s0);           \
	VEXT $8, V.B16, V.B16, V22.B16; \
	FADD4S(22, s0, s0);           \
	FADDP4S(s0, s0, s0);          \
	VMOV V.S[0], R15;             \
	MOVW R15, at

// func tileNEON(out *float32, outStride int, a *float32, aStride int, b *float32, bStride, cols, k int)
TEXT ·tileNEON(SB), NOSPLIT, $0-64
	MOVD out+0(FP), R0
	MOVD outStride+8(FP), R1
	MOVD a+16(FP), R2
	MOVD aStride+24(FP), R3
	MOVD b+32(FP), R4
	MOVD bStride+40(FP), R5
	MOVD cols+48(FP), R6
	MOVD k+56(FP), R7
	ADD  R1<<2, R0, R1 // second row of out
	ADD  R3<<2, R2, R3 // second row of a

columns:
	ADD  R5<<2, R4, R8
	ADD  R5<<2, R8, R9
	ADD  R5<<2, R9, R10
	ADD  R5<<2, R10, R11 // the next columns
	MOVD R2, R12
	MOVD R3, R13
	MOVD R7, R14
	VEOR V0.B16, V0.B16, V0.B16
	VEOR V1.B16, V1.B16, V1.B16
	VEOR V2.B16, V2.B16, V2.B16
	VEOR V3.B16, V3.B16, V3.B16
	VEOR V4.B16, V4.B16, V4.B16
	VEOR V5.B16, V5.B16, V5.B16
	VEOR V6.B16, V6.B16, V6.B16
	VEOR V7.B16, V7.B16, V7.B16
	VEOR V8.B16, V8.B16, V8.B16
	VEOR V9.B16, V9.B16, V9.B16
	VEOR V10.B16, V10.B16, V10.B16
	VEOR V11.B16, V11.B16, V11.B16
	VEOR V12.B16, V12.B16, V12.B16
	VEOR V13.B16, V13.B16, V13.B16
	VEOR V14.B16, V14.B16, V14.B16
	VEOR V15.B16, V15.B16, V15.B16

inner:
	VLD1.P 32(R12), [V16.S4, V17.S4]
	VLD1.P 32(R13), [V18.S4, V19.S4]
	STEP(R4, 0, 1, 8, 9)
	STEP(R8, 2, 3, 10, 11)
	STEP(R9, 4, 5, 12, 13)
	STEP(R10, 6, 7, 14, 15)
	SUBS $8, R14
	BNE  inner

	JOIN(0, 1, (R0), V0)
	JOIN(2, 3, 4(R0), V2)
	JOIN(4, 5, 8(R0), V4)
	JOIN(6, 7, 12(R0), V6)
	JOIN(8, 9, (R1), V8)
	JOIN(10, 11, 4(R1), V10)
	JOIN(12, 13, 8(R1), V12)
	JOIN(14, 15, 12(R1), V14)
	ADD  $16, R0
	ADD  $16, R1
	MOVD R11, R4
	SUBS $4, R6
	BNE  columns
	RET
