// Kernels for AVX2. Each gives the bits of the plain Go that simd_amd64.go names: integers, and floats in
// operations that round by themselves, in the same order.

#include "textflag.h"

// Order of 32-bit words after a pack to 16 bits and one to 8, lane by lane.
DATA packOrder<>+0(SB)/4, $0
DATA packOrder<>+4(SB)/4, $4
DATA packOrder<>+8(SB)/4, $1
DATA packOrder<>+12(SB)/4, $5
DATA packOrder<>+16(SB)/4, $2
DATA packOrder<>+20(SB)/4, $6
DATA packOrder<>+24(SB)/4, $3
DATA packOrder<>+28(SB)/4, $7
GLOBL packOrder<>(SB), RODATA|NOPTR, $32

// func decodeAVX2(dst *float32, src *byte, n int)
TEXT ·decodeAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

decode:
	VPMOVZXWD (SI), Y0
	VPMOVZXWD 16(SI), Y1
	VPSLLD    $16, Y0, Y0
	VPSLLD    $16, Y1, Y1
	VMOVDQU   Y0, (DI)
	VMOVDQU   Y1, 32(DI)
	ADDQ      $32, SI
	ADDQ      $64, DI
	SUBQ      $16, CX
	JNE       decode
	VZEROUPPER
	RET

// func patternsAVX2(w *float32, n int) (above int32, below uint32)
TEXT ·patternsAVX2(SB), NOSPLIT, $0-24
	MOVQ    w+0(FP), SI
	MOVQ    n+8(FP), CX
	VMOVDQU (SI), Y0      // signed maxima
	VMOVDQU Y0, Y1        // unsigned maxima
	VMOVDQU 32(SI), Y2
	VMOVDQU Y2, Y3

patterns:
	VMOVDQU (SI), Y4
	VMOVDQU 32(SI), Y5
	VPMAXSD Y4, Y0, Y0
	VPMAXUD Y4, Y1, Y1
	VPMAXSD Y5, Y2, Y2
	VPMAXUD Y5, Y3, Y3
	ADDQ    $64, SI
	SUBQ    $16, CX
	JNE     patterns

	VPMAXSD      Y2, Y0, Y0
	VPMAXUD      Y3, Y1, Y1
	VEXTRACTI128 $1, Y0, X2
	VEXTRACTI128 $1, Y1, X3
	VPMAXSD      X2, X0, X0
	VPMAXUD      X3, X1, X1
	VPSHUFD      $0x4e, X0, X2
	VPSHUFD      $0x4e, X1, X3
	VPMAXSD      X2, X0, X0
	VPMAXUD      X3, X1, X1
	VPSHUFD      $0xb1, X0, X2
	VPSHUFD      $0xb1, X1, X3
	VPMAXSD      X2, X0, X0
	VPMAXUD      X3, X1, X1
	VMOVD        X0, AX
	VMOVD        X1, BX
	MOVL         AX, above+16(FP)
	MOVL         BX, below+20(FP)
	VZEROUPPER
	RET

// func packAVX2(dst *uint32, w *float32, n, bits int, bias, scale, least, greatest float32, offset int32)
TEXT ·packAVX2(SB), NOSPLIT, $0-52
	MOVQ         dst+0(FP), DI
	MOVQ         w+8(FP), SI
	MOVQ         n+16(FP), CX
	MOVQ         bits+24(FP), AX
	VBROADCASTSS bias+32(FP), Y15
	VBROADCASTSS scale+36(FP), Y14
	VBROADCASTSS least+40(FP), Y13
	VBROADCASTSS greatest+44(FP), Y12
	MOVL         offset+48(FP), DX
	VMOVD        DX, X11
	VPBROADCASTD X11, Y11
	VMOVDQU      packOrder<>(SB), Y10
	MOVL         $0x10011001, DX
	VMOVD        DX, X9
	VPBROADCASTD X9, Y9                      // bytes 1, 16, 1, 16, …

pack:
	VMOVUPS    (SI), Y0
	VMOVUPS    32(SI), Y1
	VMOVUPS    64(SI), Y2
	VMOVUPS    96(SI), Y3
	VSUBPS     Y15, Y0, Y0
	VSUBPS     Y15, Y1, Y1
	VSUBPS     Y15, Y2, Y2
	VSUBPS     Y15, Y3, Y3
	VDIVPS     Y14, Y0, Y0
	VDIVPS     Y14, Y1, Y1
	VDIVPS     Y14, Y2, Y2
	VDIVPS     Y14, Y3, Y3
	VMAXPS     Y13, Y0, Y0
	VMAXPS     Y13, Y1, Y1
	VMAXPS     Y13, Y2, Y2
	VMAXPS     Y13, Y3, Y3
	VMINPS     Y12, Y0, Y0
	VMINPS     Y12, Y1, Y1
	VMINPS     Y12, Y2, Y2
	VMINPS     Y12, Y3, Y3
	VCVTPS2DQ  Y0, Y0                        // to nearest, ties to even
	VCVTPS2DQ  Y1, Y1
	VCVTPS2DQ  Y2, Y2
	VCVTPS2DQ  Y3, Y3
	VPADDD     Y11, Y0, Y0
	VPADDD     Y11, Y1, Y1
	VPADDD     Y11, Y2, Y2
	VPADDD     Y11, Y3, Y3
	VPACKSSDW  Y1, Y0, Y0
	VPACKSSDW  Y3, Y2, Y2
	VPACKUSWB  Y2, Y0, Y0
	VPERMD     Y0, Y10, Y0
	CMPQ       AX, $8
	JEQ        bytes
	VPMADDUBSW Y9, Y0, Y0                    // even + 16*odd
	VPACKUSWB  Y0, Y0, Y0
	VPERMQ     $0x08, Y0, Y0
	VMOVDQU    X0, (DI)
	ADDQ       $16, DI
	JMP        next

bytes:
	VMOVDQU Y0, (DI)
	ADDQ    $32, DI

next:
	ADDQ $128, SI
	SUBQ $32, CX
	JNE  pack
	VZEROUPPER
	RET

// func toLevelsAVX2(y *int16, w *float32, n int, mid, perWeight float32) (sum int32)
TEXT ·toLevelsAVX2(SB), NOSPLIT, $0-36
	MOVQ         y+0(FP), DI
	MOVQ         w+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS mid+24(FP), Y15
	VBROADCASTSS perWeight+28(FP), Y14
	VPCMPEQW     Y13, Y13, Y13
	VPSRLW       $15, Y13, Y13               // words 1
	VPXOR        Y12, Y12, Y12

levels:
	VMOVUPS   (SI), Y0
	VMOVUPS   32(SI), Y1
	VSUBPS    Y15, Y0, Y0
	VSUBPS    Y15, Y1, Y1
	VMULPS    Y14, Y0, Y0
	VMULPS    Y14, Y1, Y1
	VCVTPS2DQ Y0, Y0
	VCVTPS2DQ Y1, Y1
	VPACKSSDW Y1, Y0, Y0
	VPERMQ    $0xd8, Y0, Y0
	VMOVDQU   Y0, (DI)
	VPMADDWD  Y13, Y0, Y0
	VPADDD    Y0, Y12, Y12
	ADDQ      $64, SI
	ADDQ      $32, DI
	SUBQ      $16, CX
	JNE       levels

	VEXTRACTI128 $1, Y12, X0
	VPADDD       X0, X12, X0
	VPSHUFD      $0x4e, X0, X1
	VPADDD       X1, X0, X0
	VPSHUFD      $0xb1, X0, X1
	VPADDD       X1, X0, X0
	VMOVD        X0, AX
	MOVL         AX, sum+32(FP)
	VZEROUPPER
	RET

// func gridMomentsAVX2(dst *moments, y *int16, n int, grids *grid, count, shift, greatest int)
TEXT ·gridMomentsAVX2(SB), NOSPLIT, $0-56
	MOVQ         dst+0(FP), DI
	MOVQ         y+8(FP), SI
	MOVQ         n+16(FP), CX
	MOVQ         grids+24(FP), BX
	MOVQ         count+32(FP), DX
	VMOVQ        shift+40(FP), X12
	MOVQ         greatest+48(FP), AX
	VMOVQ        AX, X15
	VPBROADCASTW X15, Y15
	VPXOR        Y14, Y14, Y14
	VPCMPEQW     Y13, Y13, Y13
	VPSRLW       $15, Y13, Y13               // words 1
	SHLQ         $1, CX                      // bytes of levels

grids:
	VPBROADCASTW (BX), Y0                    // m
	VPBROADCASTW 2(BX), Y1                   // c
	VPXOR        Y2, Y2, Y2                  // q, in words
	VPXOR        Y3, Y3, Y3                  // q*q
	VPXOR        Y4, Y4, Y4                  // q*y
	XORQ         AX, AX

moments:
	VMOVDQU   (SI)(AX*1), Y5
	VMOVDQU   32(SI)(AX*1), Y6
	VPMULHRSW Y5, Y0, Y7
	VPMULHRSW Y6, Y0, Y8
	VPADDSW   Y7, Y1, Y7
	VPADDSW   Y8, Y1, Y8
	VPSRAW    X12, Y7, Y7
	VPSRAW    X12, Y8, Y8
	VPMAXSW   Y7, Y14, Y7
	VPMAXSW   Y8, Y14, Y8
	VPMINSW   Y7, Y15, Y7
	VPMINSW   Y8, Y15, Y8
	VPADDW    Y7, Y2, Y2
	VPADDW    Y8, Y2, Y2
	VPMADDWD  Y5, Y7, Y5
	VPMADDWD  Y6, Y8, Y6
	VPMADDWD  Y7, Y7, Y7
	VPMADDWD  Y8, Y8, Y8
	VPADDD    Y5, Y4, Y4
	VPADDD    Y6, Y4, Y4
	VPADDD    Y7, Y3, Y3
	VPADDD    Y8, Y3, Y3
	ADDQ      $64, AX
	CMPQ      AX, CX
	JNE       moments

	VPMADDWD     Y13, Y2, Y2
	VPHADDD      Y3, Y2, Y2                  // q, q, q*q, q*q by lane
	VPHADDD      Y4, Y4, Y4
	VPHADDD      Y4, Y2, Y2                  // q, q*q, q*y, q*y by lane
	VEXTRACTI128 $1, Y2, X3
	VPADDD       X3, X2, X2
	VMOVQ        X2, (DI)
	VPEXTRD      $2, X2, 8(DI)
	ADDQ         $12, DI
	ADDQ         $4, BX
	DECQ         DX
	JNE          grids
	VZEROUPPER
	RET

// func updateScaleAVX2(lanes *[8]float32, w *float32, n int, scale, least, greatest float32) (squares int32)
TEXT ·updateScaleAVX2(SB), NOSPLIT, $0-44
	MOVQ         lanes+0(FP), DI
	MOVQ         w+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS scale+24(FP), Y15
	VBROADCASTSS least+28(FP), Y14
	VBROADCASTSS greatest+32(FP), Y13
	VXORPS       Y0, Y0, Y0                  // sums of products, a register for each vector of a block
	VXORPS       Y1, Y1, Y1
	VXORPS       Y2, Y2, Y2
	VXORPS       Y3, Y3, Y3
	VXORPS       Y4, Y4, Y4                  // squares: integers below 2^24, exact in any order
	VXORPS       Y5, Y5, Y5

update:
	VMOVUPS  (SI), Y6
	VMOVUPS  32(SI), Y7
	VMOVUPS  64(SI), Y8
	VMOVUPS  96(SI), Y9
	VDIVPS   Y15, Y6, Y10
	VDIVPS   Y15, Y7, Y11
	VMINPS   Y13, Y10, Y10
	VMINPS   Y13, Y11, Y11
	VMAXPS   Y14, Y10, Y10
	VMAXPS   Y14, Y11, Y11
	VROUNDPS $0, Y10, Y10                    // to nearest, ties to even
	VROUNDPS $0, Y11, Y11
	VMULPS   Y10, Y6, Y6
	VMULPS   Y11, Y7, Y7
	VMULPS   Y10, Y10, Y10
	VMULPS   Y11, Y11, Y11
	VADDPS   Y6, Y0, Y0
	VADDPS   Y7, Y1, Y1
	VADDPS   Y10, Y4, Y4
	VADDPS   Y11, Y5, Y5
	VDIVPS   Y15, Y8, Y10
	VDIVPS   Y15, Y9, Y11
	VMINPS   Y13, Y10, Y10
	VMINPS   Y13, Y11, Y11
	VMAXPS   Y14, Y10, Y10
	VMAXPS   Y14, Y11, Y11
	VROUNDPS $0, Y10, Y10
	VROUNDPS $0, Y11, Y11
	VMULPS   Y10, Y8, Y8
	VMULPS   Y11, Y9, Y9
	VMULPS   Y10, Y10, Y10
	VMULPS   Y11, Y11, Y11
	VADDPS   Y8, Y2, Y2
	VADDPS   Y9, Y3, Y3
	VADDPS   Y10, Y4, Y4
	VADDPS   Y11, Y5, Y5
	ADDQ     $128, SI
	SUBQ     $32, CX
	JNE      update

	VADDPS       Y1, Y0, Y0
	VADDPS       Y2, Y0, Y0
	VADDPS       Y3, Y0, Y0
	VMOVUPS      Y0, (DI)
	VADDPS       Y5, Y4, Y4
	VEXTRACTF128 $1, Y4, X5
	VADDPS       X5, X4, X4
	VMOVHLPS     X4, X4, X5
	VADDPS       X5, X4, X4
	VMOVSHDUP    X4, X5
	VADDSS       X5, X4, X4
	VCVTTSS2SI   X4, AX
	MOVL         AX, squares+40(FP)
	VZEROUPPER
	RET
