package main

// vec is a vector register by number.
type vec int

// constant is a number by its name, see constantBits.
type constant string

// operand is a vec or a constant.
type operand interface{ isOperand() }

func (vec) isOperand()      {}
func (constant) isOperand() {}

// simd writes one function on vectors of float32 for an instruction set. Constants are in memory or in registers,
// whichever the instruction set prefers.
type simd interface {
	function() *function
	lanes() int

	// begin loads the pointers of slices and the length of the first one; scalar puts an argument into all
	// lanes of a register.
	begin(slices ...string)
	scalar(name string, d vec)
	// end returns.
	end()

	// loop writes body for whole vectors, unroll of them at a time, and for what is left. It moves the
	// pointers of the slices.
	loop(slices int, unroll int, body func(u int, part bool))

	load(d vec, slice, u int, part bool)
	store(s vec, slice, u int, part bool)

	zero(d vec)
	move(d vec, s operand)
	add(d, a vec, b operand)
	sub(d, a vec, b operand)
	mul(d, a vec, b operand)
	div(d, a, b vec)
	// mulAdd is d += a·b, mulSub d −= a·b, horner d = d·x + c; all fused.
	mulAdd(d, a vec, b operand)
	mulSub(d, a vec, b operand)
	horner(d, x vec, c constant)
	// smaller and larger are min and max of a and b that keep NaN in a; number is max of a and b where NaN in
	// a gives b.
	smaller(d, a vec, b constant)
	larger(d, a vec, b constant)
	number(d, a, b vec)
	abs(d, a vec)
	negate(d, a vec)
	// copySign gives d the sign of a; t is scratch.
	copySign(d, a, t vec)
	// clearLess sets d to 0 where a < b.
	clearLess(d, a vec, b constant)
	// choose sets d to e where a > b.
	choose(d, e, a vec, b constant)
	// scaleByPower is d = d·2^n for −126 ≤ n ≤ 128, n a rounded float in n; t is scratch.
	scaleByPower(d, n, t vec)
	// round is d = a rounded to an integer, half to even.
	round(d, a vec)
	// onlyPart clears the lanes of d that part of a vector does not have.
	onlyPart(d vec)

	// reduce adds all lanes of d into its lane 0, or takes the largest; t is scratch.
	reduceAdd(d, t vec)
	reduceMax(d, t vec)
	// result stores lane 0 as the result.
	result(d vec)
}
