// Kernels for Advanced SIMD, which every arm64 processor has. Each gives the bits of the plain Go that simd_arm64.go
// names: integers, and floats in operations that round by themselves, in the same order.

#include "textflag.h"

// Instructions that Go's assembler does not know (Arm Architecture Reference Manual, C7.2), operands as it has
// them: the destination last.
#define SQRDMULH8H(m, n, d) WORD $(0x6e60b400 | m<<16 | n<<5 | d)
#define SQADD8H(m, n, d)    WORD $(0x4e600c00 | m<<16 | n<<5 | d)
#define SSHL8H(m, n, d)     WORD $(0x4e604400 | m<<16 | n<<5 | d)
#define SMAX8H(m, n, d)     WORD $(0x4e606400 | m<<16 | n<<5 | d)
#define SMIN8H(m, n, d)     WORD $(0x4e606c00 | m<<16 | n<<5 | d)
#define SMLAL4S(m, n, d)    WORD $(0x0e608000 | m<<16 | n<<5 | d)
#define SMLAL24S(m, n, d)   WORD $(0x4e608000 | m<<16 | n<<5 | d)
#define SADALP4S(n, d)      WORD $(0x4e606800 | n<<5 | d)
#define SADDLV8H(n, d)      WORD $(0x4e703800 | n<<5 | d)
#define SMAX4S(m, n, d)     WORD $(0x4ea06400 | m<<16 | n<<5 | d)
#define UMAX4S(m, n, d)     WORD $(0x6ea06400 | m<<16 | n<<5 | d)
#define SMAXV4S(n, d)       WORD $(0x4eb0a800 | n<<5 | d)
#define UMAXV4S(n, d)       WORD $(0x6eb0a800 | n<<5 | d)
#define SHLL4S(n, d)        WORD $(0x2e613800 | n<<5 | d)
#define SHLL24S(n, d)       WORD $(0x6e613800 | n<<5 | d)
#define SQXTN4H(n, d)       WORD $(0x0e614800 | n<<5 | d)
#define SQXTN28H(n, d)      WORD $(0x4e614800 | n<<5 | d)
#define SQXTUN8B(n, d)      WORD $(0x2e212800 | n<<5 | d)
#define SQXTUN216B(n, d)    WORD $(0x6e212800 | n<<5 | d)
#define FADD4S(m, n, d)     WORD $(0x4e20d400 | m<<16 | n<<5 | d)
#define FSUB4S(m, n, d)     WORD $(0x4ea0d400 | m<<16 | n<<5 | d)
#define FMUL4S(m, n, d)     WORD $(0x6e20dc00 | m<<16 | n<<5 | d)
#define FDIV4S(m, n, d)     WORD $(0x6e20fc00 | m<<16 | n<<5 | d)
#define FMAX4S(m, n, d)     WORD $(0x4e20f400 | m<<16 | n<<5 | d)
#define FMIN4S(m, n, d)     WORD $(0x4ea0f400 | m<<16 | n<<5 | d)
#define FRINTN4S(n, d)      WORD $(0x4e218800 | n<<5 | d)
#define FCVTNS4S(n, d)      WORD $(0x4e21a800 | n<<5 | d)

// func decodeNEON(dst *float32, src *byte, n int)
TEXT ·decodeNEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2

decode:
	VLD1.P  32(R1), [V0.H8, V1.H8]
	SHLL4S(0, 4)
	SHLL24S(0, 5)
	SHLL4S(1, 6)
	SHLL24S(1, 7)
	VST1.P  [V4.S4, V5.S4, V6.S4, V7.S4], 64(R0)
	SUBS    $16, R2
	BNE     decode
	RET

// func patternsNEON(w *float32, n int) (above int32, below uint32)
TEXT ·patternsNEON(SB), NOSPLIT, $0-24
	MOVD w+0(FP), R0
	MOVD n+8(FP), R1
	VLD1 (R0), [V0.S4, V1.S4] // signed maxima
	VORR V0.B16, V0.B16, V2.B16 // unsigned maxima
	VORR V1.B16, V1.B16, V3.B16

patterns:
	VLD1.P 64(R0), [V4.S4, V5.S4, V6.S4, V7.S4]
	SMAX4S(4, 0, 0)
	UMAX4S(4, 2, 2)
	SMAX4S(5, 1, 1)
	UMAX4S(5, 3, 3)
	SMAX4S(6, 0, 0)
	UMAX4S(6, 2, 2)
	SMAX4S(7, 1, 1)
	UMAX4S(7, 3, 3)
	SUBS   $16, R1
	BNE    patterns

	SMAX4S(1, 0, 0)
	UMAX4S(3, 2, 2)
	SMAXV4S(0, 0)
	UMAXV4S(2, 2)
	VMOV V0.S[0], R2
	VMOV V2.S[0], R3
	MOVW R2, above+16(FP)
	MOVW R3, below+20(FP)
	RET

// QUOTIENTS divides V0 to V3, less V15, by V14, limits them to V13 and V12, rounds and adds V11.
#define QUOTIENTS \
	FSUB4S(15, 0, 0) \
	FSUB4S(15, 1, 1) \
	FSUB4S(15, 2, 2) \
	FSUB4S(15, 3, 3) \
	FDIV4S(14, 0, 0) \
	FDIV4S(14, 1, 1) \
	FDIV4S(14, 2, 2) \
	FDIV4S(14, 3, 3) \
	FMAX4S(13, 0, 0) \
	FMAX4S(13, 1, 1) \
	FMAX4S(13, 2, 2) \
	FMAX4S(13, 3, 3) \
	FMIN4S(12, 0, 0) \
	FMIN4S(12, 1, 1) \
	FMIN4S(12, 2, 2) \
	FMIN4S(12, 3, 3) \
	FCVTNS4S(0, 0)   \ // to nearest, ties to even
	FCVTNS4S(1, 1)   \
	FCVTNS4S(2, 2)   \
	FCVTNS4S(3, 3)   \
	VADD V11.S4, V0.S4, V0.S4 \
	VADD V11.S4, V1.S4, V1.S4 \
	VADD V11.S4, V2.S4, V2.S4 \
	VADD V11.S4, V3.S4, V3.S4 \
	SQXTN4H(0, 4)    \
	SQXTN28H(1, 4)   \
	SQXTN4H(2, 5)    \
	SQXTN28H(3, 5)

// func packNEON(dst *uint32, w *float32, n, bits int, bias, scale, least, greatest float32, offset int32)
TEXT ·packNEON(SB), NOSPLIT, $0-52
	MOVD dst+0(FP), R0
	MOVD w+8(FP), R1
	MOVD n+16(FP), R2
	MOVD bits+24(FP), R3
	MOVW bias+32(FP), R4
	VDUP R4, V15.S4
	MOVW scale+36(FP), R4
	VDUP R4, V14.S4
	MOVW least+40(FP), R4
	VDUP R4, V13.S4
	MOVW greatest+44(FP), R4
	VDUP R4, V12.S4
	MOVW offset+48(FP), R4
	VDUP R4, V11.S4

pack:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	QUOTIENTS
	SQXTUN8B(4, 6)
	SQXTUN216B(5, 6)
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	QUOTIENTS
	SQXTUN8B(4, 7)
	SQXTUN216B(5, 7)
	CMP    $8, R3
	BEQ    bytes
	VUZP1  V7.B16, V6.B16, V0.B16
	VUZP2  V7.B16, V6.B16, V1.B16
	VSHL   $4, V1.B16, V1.B16
	VORR   V1.B16, V0.B16, V0.B16
	VST1.P [V0.B16], 16(R0)
	B      next

bytes:
	VST1.P [V6.B16, V7.B16], 32(R0)

next:
	SUBS $32, R2
	BNE  pack
	RET

// func toLevelsNEON(y *int16, w *float32, n int, mid, perWeight float32) (sum int32)
TEXT ·toLevelsNEON(SB), NOSPLIT, $0-36
	MOVD y+0(FP), R0
	MOVD w+8(FP), R1
	MOVD n+16(FP), R2
	MOVW mid+24(FP), R3
	VDUP R3, V15.S4
	MOVW perWeight+28(FP), R3
	VDUP R3, V14.S4
	VEOR V6.B16, V6.B16, V6.B16

levels:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	FSUB4S(15, 0, 0)
	FSUB4S(15, 1, 1)
	FSUB4S(15, 2, 2)
	FSUB4S(15, 3, 3)
	FMUL4S(14, 0, 0)
	FMUL4S(14, 1, 1)
	FMUL4S(14, 2, 2)
	FMUL4S(14, 3, 3)
	FCVTNS4S(0, 0)
	FCVTNS4S(1, 1)
	FCVTNS4S(2, 2)
	FCVTNS4S(3, 3)
	SQXTN4H(0, 4)
	SQXTN28H(1, 4)
	SQXTN4H(2, 5)
	SQXTN28H(3, 5)
	SADALP4S(4, 6)
	SADALP4S(5, 6)
	VST1.P [V4.H8, V5.H8], 32(R0)
	SUBS   $16, R2
	BNE    levels

	VADDV V6.S4, V6
	VMOV  V6.S[0], R3
	MOVW  R3, sum+32(FP)
	RET

// CODES gives in q the codes of the levels y.
#define CODES(y, q) \
	SQRDMULH8H(16, y, q) \
	SQADD8H(17, q, q)    \
	SSHL8H(12, q, q)     \
	SMAX8H(14, q, q)     \
	SMIN8H(15, q, q)

// MOMENTS adds the codes q of the levels y to the moments.
#define MOMENTS(y, q) \
	SMLAL4S(y, q, 20)  \
	SMLAL24S(y, q, 21) \
	SMLAL4S(q, q, 22)  \
	SMLAL24S(q, q, 23)

// func gridMomentsNEON(dst *moments, y *int16, n int, grids *grid, count, shift, greatest int)
TEXT ·gridMomentsNEON(SB), NOSPLIT, $0-56
	MOVD dst+0(FP), R0
	MOVD y+8(FP), R1
	MOVD n+16(FP), R2
	MOVD grids+24(FP), R3
	MOVD count+32(FP), R4
	MOVD shift+40(FP), R5
	NEG  R5, R5
	VDUP R5, V12.H8
	MOVD greatest+48(FP), R5
	VDUP R5, V15.H8
	VEOR V14.B16, V14.B16, V14.B16

grids:
	MOVH.P 2(R3), R6            // m
	VDUP   R6, V16.H8
	MOVH.P 2(R3), R6            // c
	VDUP   R6, V17.H8
	VEOR   V19.B16, V19.B16, V19.B16 // q, in words
	VEOR   V20.B16, V20.B16, V20.B16 // q*y
	VEOR   V21.B16, V21.B16, V21.B16
	VEOR   V22.B16, V22.B16, V22.B16 // q*q
	VEOR   V23.B16, V23.B16, V23.B16
	MOVD   R1, R7
	MOVD   R2, R8

moments:
	VLD1.P 64(R7), [V0.H8, V1.H8, V2.H8, V3.H8]
	CODES(0, 4)
	CODES(1, 5)
	CODES(2, 6)
	CODES(3, 7)
	VADD   V4.H8, V19.H8, V19.H8
	VADD   V5.H8, V19.H8, V19.H8
	VADD   V6.H8, V19.H8, V19.H8
	VADD   V7.H8, V19.H8, V19.H8
	MOMENTS(0, 4)
	MOMENTS(1, 5)
	MOMENTS(2, 6)
	MOMENTS(3, 7)
	SUBS   $32, R8
	BNE    moments

	SADDLV8H(19, 19)
	VADD   V21.S4, V20.S4, V20.S4
	VADD   V23.S4, V22.S4, V22.S4
	VADDV  V20.S4, V20
	VADDV  V22.S4, V22
	VMOV   V19.S[0], R6
	MOVW.P R6, 4(R0)
	VMOV   V22.S[0], R6
	MOVW.P R6, 4(R0)
	VMOV   V20.S[0], R6
	MOVW.P R6, 4(R0)
	SUBS   $1, R4
	BNE    grids
	RET

// ROUNDED gives in q the rounded quotients of x, limited.
#define ROUNDED(x, q) \
	FDIV4S(15, x, q) \
	FMIN4S(13, q, q) \
	FMAX4S(14, q, q) \
	FRINTN4S(q, q)

// PRODUCTS adds x*q to sum, and q*q to squares.
#define PRODUCTS(x, q, sum, squares) \
	FMUL4S(q, x, x)        \
	FMUL4S(q, q, q)        \
	FADD4S(x, sum, sum)    \
	FADD4S(q, squares, squares)

// func updateSumsNEON(lanes *[8]float32, w *float32, n int, scale, least, greatest float32) (squares int32)
TEXT ·updateSumsNEON(SB), NOSPLIT, $0-44
	MOVD lanes+0(FP), R0
	MOVD w+8(FP), R1
	MOVD n+16(FP), R2
	MOVW scale+24(FP), R3
	VDUP R3, V15.S4
	MOVW least+28(FP), R3
	VDUP R3, V14.S4
	MOVW greatest+32(FP), R3
	VDUP R3, V13.S4
	VEOR V16.B16, V16.B16, V16.B16 // sums of products, a register for each half of each vector of a block
	VEOR V17.B16, V17.B16, V17.B16
	VEOR V18.B16, V18.B16, V18.B16
	VEOR V19.B16, V19.B16, V19.B16
	VEOR V20.B16, V20.B16, V20.B16
	VEOR V21.B16, V21.B16, V21.B16
	VEOR V22.B16, V22.B16, V22.B16
	VEOR V23.B16, V23.B16, V23.B16
	VEOR V24.B16, V24.B16, V24.B16 // squares: integers below 2^24, exact in any order
	VEOR V25.B16, V25.B16, V25.B16

update:
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	ROUNDED(0, 4)
	ROUNDED(1, 5)
	ROUNDED(2, 6)
	ROUNDED(3, 7)
	PRODUCTS(0, 4, 16, 24)
	PRODUCTS(1, 5, 17, 25)
	PRODUCTS(2, 6, 18, 24)
	PRODUCTS(3, 7, 19, 25)
	VLD1.P 64(R1), [V0.S4, V1.S4, V2.S4, V3.S4]
	ROUNDED(0, 4)
	ROUNDED(1, 5)
	ROUNDED(2, 6)
	ROUNDED(3, 7)
	PRODUCTS(0, 4, 20, 24)
	PRODUCTS(1, 5, 21, 25)
	PRODUCTS(2, 6, 22, 24)
	PRODUCTS(3, 7, 23, 25)
	SUBS   $32, R2
	BNE    update

	FADD4S(18, 16, 16)
	FADD4S(19, 17, 17)
	FADD4S(20, 16, 16)
	FADD4S(21, 17, 17)
	FADD4S(22, 16, 16)
	FADD4S(23, 17, 17)
	VST1 [V16.S4, V17.S4], (R0)
	FADD4S(25, 24, 24)
	FCVTNS4S(24, 24)
	VADDV V24.S4, V24
	VMOV V24.S[0], R3
	MOVW R3, squares+40(FP)
	RET
