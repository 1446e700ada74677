package main

import (
	"fmt"
	"math"
)

// This file generates the functions on vectors of float32 for all instruction sets. The coefficients of elementary
// functions are those of exp_generic.go in package kernel, which explains them.

// constantBits returns the bits of a constant by its name.
func constantBits(name constant) uint32 {
	switch name {
	case "sign":
		return 1 << 31
	case "magnitude":
		return 1<<31 - 1
	}
	v, ok := map[constant]float64{
		"codeMost": 127, "codeLeast": -127, "sixteenth": 1.0 / 16,
		"one": 1, "minusTwo": -2, "minusInfinity": math.Inf(-1),
		"log2E": math.Log2E, "ln2High": 0x1.62e4p-1, "ln2Low": math.Ln2 - 0x1.62e4p-1,
		"expQ0": 0.49999993447796487, "expQ1": 0.16666520631709497, "expQ2": 0.041668388045313996,
		"expQ3": 0.00836871687972814, "expQ4": 0.0013814598646664034,
		"expHigh": 89, "expFloor": -87.33654,
		"tanhSmall": 0.625, "tanhP0": -0.333332839254639, "tanhP1": 0.13331491291065325,
		"tanhP2": -0.05374349837680722, "tanhP3": 0.020650588161878564, "tanhP4": -0.005717045938568599,
		"geluScale": 1.5957691216057308, "geluCube": 0.044715,
	}[name]
	if !ok {
		panic("gen: no constant " + string(name))
	}
	return math.Float32bits(float32(v))
}

// exponential sets d = e^a with four registers of scratch; a stays.
func exponential(s simd, d, a, n, q, t, u vec) {
	s.smaller(d, a, "expHigh")
	s.larger(n, d, "expFloor")
	s.move(t, n) // x
	s.mul(n, n, constant("log2E"))
	s.round(n, n)
	s.mulSub(t, n, constant("ln2High"))
	s.mulSub(t, n, constant("ln2Low")) // r
	s.move(q, constant("expQ4"))
	for _, c := range []constant{"expQ3", "expQ2", "expQ1", "expQ0"} {
		s.horner(q, t, c)
	}
	s.mul(u, t, t)
	s.mulAdd(t, q, u)
	s.add(t, t, constant("one"))
	s.scaleByPower(t, n, u)
	s.move(n, d)
	s.move(d, t)
	s.clearLess(d, n, "expFloor")
}

// sigmoid sets d = 1/(1 + e^−a) with five registers of scratch; a stays.
func sigmoid(s simd, d, a vec, scratch [5]vec) {
	s.negate(scratch[4], a)
	exponential(s, d, scratch[4], scratch[0], scratch[1], scratch[2], scratch[3])
	s.add(scratch[0], d, constant("one"))
	s.move(d, constant("one"))
	s.div(d, d, scratch[0])
}

// vectorFile has the functions for one instruction set. It is long because it is a list: one function after the other.
func vectorFile(f *file, suffix string, use func(fn *function) simd) *file {
	begin := func(name, params, result, doc string, slices ...string) simd {
		s := use(f.function(name+suffix, params, result, doc))
		s.begin(slices...)
		return s
	}
	each := func(body string) string { return "is\n\n\tfor i := range dst {\n\t\t" + body + "\n\t}" }
	scratch := [5]vec{3, 4, 5, 6, 7}

	for _, op := range []struct {
		name, sign string
		do         func(s simd)
	}{
		{"add", "+", func(s simd) { s.add(0, 0, vec(1)) }},
		{"mul", "*", func(s simd) { s.mul(0, 0, vec(1)) }},
	} {
		s := begin(op.name, "dst, a, b []float32", "", each("dst[i] = a[i] "+op.sign+" b[i]"), "dst", "a", "b")
		s.loop(3, 1, func(u int, part bool) {
			s.load(0, 1, u, part)
			s.load(1, 2, u, part)
			op.do(s)
			s.store(0, 0, u, part)
		})
		s.end()
	}

	s := begin("scale", "dst, x []float32, s float32", "", each("dst[i] = x[i] * s"), "dst", "x")
	s.scalar("s", 2)
	s.loop(2, 1, func(u int, part bool) {
		s.load(0, 1, u, part)
		s.mul(0, 0, vec(2))
		s.store(0, 0, u, part)
	})
	s.end()

	s = begin("axpy", "dst []float32, s float32, x []float32", "", each("dst[i] += s * x[i]"), "dst", "x")
	s.scalar("s", 2)
	s.loop(2, 1, func(u int, part bool) {
		s.load(0, 1, u, part)
		s.load(1, 0, u, part)
		s.mulAdd(1, 0, vec(2))
		s.store(1, 0, u, part)
	})
	s.end()

	s = begin("scaleMul", "dst, x, weight []float32, s float32", "", each("dst[i] = x[i] * s * weight[i]"), "dst", "x",
		"weight")
	s.scalar("s", 2)
	s.loop(3, 1, func(u int, part bool) {
		s.load(0, 1, u, part)
		s.load(1, 2, u, part)
		s.mul(0, 0, vec(2))
		s.mul(0, 0, vec(1))
		s.store(0, 0, u, part)
	})
	s.end()

	sums := func(s simd) {
		s.add(0, 0, vec(1))
		s.add(2, 2, vec(3))
		s.add(0, 0, vec(2))
		s.reduceAdd(0, 1)
		s.result(0)
		s.end()
	}
	s = begin("dot", "a, b []float32", "float32", "is\n\n\tfor i := range a {\n\t\tret += a[i] * b[i]\n\t}", "a", "b")
	s.zero(0)
	s.zero(1)
	s.zero(2)
	s.zero(3)
	s.loop(2, 4, func(u int, part bool) {
		s.load(4, 0, u, part)
		s.load(5, 1, u, part)
		s.mulAdd(vec(u), 4, vec(5))
	})
	sums(s)

	s = begin("sum", "x []float32", "float32", "is\n\n\tfor _, v := range x {\n\t\tret += v\n\t}", "x")
	s.zero(0)
	s.zero(1)
	s.zero(2)
	s.zero(3)
	s.loop(1, 4, func(u int, part bool) {
		s.load(4, 0, u, part)
		s.add(vec(u), vec(u), vec(4))
	})
	sums(s)

	s = begin("maximum", "x []float32", "float32",
		fmt.Sprintf("is the largest element of the whole vectors of %d, −Inf for none:\n\n\tfor _, v := range x {\n\t\tif v > ret {\n\t\t\tret = v\n\t\t}\n\t}", s.lanes()), "x")
	s.move(0, constant("minusInfinity"))
	s.move(1, constant("minusInfinity"))
	s.move(2, constant("minusInfinity"))
	s.move(3, constant("minusInfinity"))
	s.loop(1, 4, func(u int, part bool) {
		if !part {
			s.load(4, 0, u, part)
			s.number(vec(u), 4, vec(u))
		}
	})
	s.number(0, 1, 0)
	s.number(2, 3, 2)
	s.number(0, 2, 0)
	s.reduceMax(0, 1)
	s.result(0)
	s.end()

	s = begin("exp", "dst, x []float32, shift float32", "float32",
		"is\n\n\tfor i := range dst {\n\t\tdst[i] = e^(x[i] - shift)\n\t\tret += dst[i]\n\t}", "dst", "x")
	s.scalar("shift", 8)
	s.zero(9)
	s.loop(2, 1, func(u int, part bool) {
		s.load(1, 1, u, part)
		s.sub(1, 1, vec(8))
		exponential(s, 0, 1, 3, 4, 5, 6)
		s.store(0, 0, u, part)
		if part {
			s.onlyPart(0)
		}
		s.add(9, 9, vec(0))
	})
	s.reduceAdd(9, 1)
	s.result(9)
	s.end()

	s = begin("sigmoid", "dst, x []float32", "", each("dst[i] = 1 / (1 + e^-x[i])"), "dst", "x")
	s.loop(2, 1, func(u int, part bool) {
		s.load(1, 1, u, part)
		sigmoid(s, 0, 1, scratch)
		s.store(0, 0, u, part)
	})
	s.end()

	s = begin("sigmoidMul", "dst, gate, x []float32", "", each("dst[i] = x[i] / (1 + e^-gate[i])"), "dst", "gate", "x")
	s.loop(3, 1, func(u int, part bool) {
		s.load(1, 1, u, part)
		sigmoid(s, 0, 1, scratch)
		s.load(2, 2, u, part)
		s.mul(0, 0, vec(2))
		s.store(0, 0, u, part)
	})
	s.end()

	s = begin("siluMul", "dst, gate, up []float32", "", each("dst[i] = gate[i] / (1 + e^-gate[i]) * up[i]"), "dst",
		"gate", "up")
	s.loop(3, 1, func(u int, part bool) {
		s.load(1, 1, u, part)
		sigmoid(s, 0, 1, scratch)
		s.load(2, 2, u, part)
		s.mul(0, 1, vec(0))
		s.mul(0, 0, vec(2))
		s.store(0, 0, u, part)
	})
	s.end()

	s = begin("geluMul", "dst, gate, up []float32", "",
		each("dst[i] = gate[i] / (1 + e^-(1.5957691*(gate[i] + 0.044715*gate[i]*gate[i]*gate[i]))) * up[i]"), "dst",
		"gate", "up")
	s.loop(3, 1, func(u int, part bool) {
		s.load(1, 1, u, part)
		s.mul(2, 1, vec(1))
		s.mul(2, 2, vec(1))
		s.move(8, vec(1))
		s.mulAdd(8, 2, constant("geluCube"))
		s.mul(8, 8, constant("geluScale"))
		sigmoid(s, 0, 8, scratch)
		s.load(2, 2, u, part)
		s.mul(0, 1, vec(0))
		s.mul(0, 0, vec(2))
		s.store(0, 0, u, part)
	})
	s.end()

	s = begin("tanh", "dst, x []float32", "", each("dst[i] = tanh(x[i])"), "dst", "x")
	s.loop(2, 1, func(u int, part bool) {
		s.load(1, 1, u, part)
		s.abs(2, 1)
		s.add(8, 2, vec(2))
		exponential(s, 0, 8, 3, 4, 5, 6)
		s.add(0, 0, constant("one"))
		s.move(3, constant("minusTwo"))
		s.div(0, 3, 0)
		s.add(0, 0, constant("one"))
		s.copySign(0, 1, 3)
		s.mul(3, 1, vec(1)) // z
		s.move(4, constant("tanhP4"))
		for _, c := range []constant{"tanhP3", "tanhP2", "tanhP1", "tanhP0"} {
			s.horner(4, 3, c)
		}
		s.mul(4, 4, vec(3))
		s.move(5, vec(1))
		s.mulAdd(5, 4, vec(1))
		s.choose(5, 0, 2, "tanhSmall")
		s.store(5, 0, u, part)
	})
	s.end()

	s = begin("rotateHalves", "a, b, cos, sin []float32", "",
		"is\n\n\tfor i := range a {\n\t\ta[i], b[i] = a[i]*cos[i]-b[i]*sin[i], a[i]*sin[i]+b[i]*cos[i]\n\t}",
		"a", "b", "cos", "sin")
	s.loop(4, 1, func(u int, part bool) {
		for i := range 4 {
			s.load(vec(i), i, u, part)
		}
		s.mul(4, 0, vec(2))
		s.mulSub(4, 1, vec(3))
		s.mul(5, 0, vec(3))
		s.mulAdd(5, 1, vec(2))
		s.store(4, 0, u, part)
		s.store(5, 1, u, part)
	})
	s.end()
	return f
}
