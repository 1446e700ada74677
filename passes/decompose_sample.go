package passes

import (
	"math"

	"github.com/etc-ml/etc/ir"
)

// decomposeSample samples by the Gumbel-max trick: argmax(logits/T + g) with g = -log(-log u) draws from
// softmax(logits/T) (Gumbel 1954; ExecuTorch's mlx::sample). Everything is float32: in bf16 u rounds to 1
// and g to infinity. Order: temperature, top-k, top-p; ties with the threshold are kept.
//
// Unlike ExecuTorch's graph each filter stands in an if of its own, so that it costs nothing when it is
// off and is exactly a no-op then; and the conditions are cast to int32 before item_int reads them, which
// takes four bytes whatever the dtype.
func decomposeSample(b *ir.Builder, op *ir.Op, _ *Options) []*ir.Value {
	logits, temperature := op.Input("logits"), op.Input("temperature")
	if op.Input("seed") == nil && op.Input("top_k") == nil && op.Input("top_p") == nil {
		return []*ir.Value{sampleAsAuthors(b, logits, temperature)}
	}
	hot := condition(b, b.Value("greater", nil, temperature, scalar(b, ir.F32, 0)))
	token := b.If(hot, func(b *ir.Builder) []*ir.Value {
		scaled := b.Value("divide", nil, cast(b, logits, ir.F32), temperature)
		if k := op.Input("top_k"); k != nil {
			scaled = filterTopK(b, scaled, k)
		}
		if p := op.Input("top_p"); p != nil {
			scaled = filterTopP(b, scaled, p)
		}
		var seed *ir.Value // without one, noise of the runtime's own
		if s := op.Input("seed"); s != nil {
			seed = b.Value("item_int", nil, s)
		}
		return []*ir.Value{argmax(b, b.Value("add", nil, scaled, gumbel(b, scaled, seed, 0)))}
	}, func(b *ir.Builder) []*ir.Value {
		return []*ir.Value{argmax(b, logits)}
	})[0]
	return []*ir.Value{cast(b, token, ir.I64)}
}

// sampleAsAuthors returns the model authors' own sampler (examples/models/*/sampler.py): noise of the runtime's
// own, a temperature that is clamped away from zero instead of a greedy branch (requirement E8), and a
// shift that keeps the logarithms finite.
func sampleAsAuthors(b *ir.Builder, logits, temperature *ir.Value) *ir.Value {
	const least, shift = 1e-6, 1e-20
	t := b.Value("maximum", nil, temperature, scalar(b, ir.F32, least))
	scaled := b.Value("divide", nil, cast(b, logits, ir.F32), t)
	return cast(b, argmax(b, b.Value("add", nil, scaled, gumbel(b, scaled, nil, shift))), ir.I64)
}

func argmax(b *ir.Builder, x *ir.Value) *ir.Value {
	return b.Value("argmax", &ir.ArgReduceAttrs{Axis: -1}, x)
}

// condition reads a bool tensor of one element as an int.
func condition(b *ir.Builder, x *ir.Value) *ir.Value {
	return b.Value("item_int", nil, b.Value("astype", &ir.DTypeAttrs{ScalarType: ir.I32}, x))
}

// gumbel draws noise -log(-log(u+shift)+shift) of the shape of x: u = min(bits/(2^32-1), the largest
// float32 below 1).
func gumbel(b *ir.Builder, x, seed *ir.Value, shift float64) *ir.Value {
	var s any
	if seed != nil {
		s = seed
	}
	bits := b.Value("random_bits", nil, shapeLike(b, x), s)
	below := float64(math.Nextafter32(1, 0))
	u := b.Value("divide", nil, cast(b, bits, ir.F32), scalar(b, ir.F32, math.MaxUint32))
	u = b.Value("minimum", nil, u, scalar(b, ir.F32, below))
	negLog := func(v *ir.Value) *ir.Value {
		if shift != 0 {
			v = b.Value("add", nil, v, scalar(b, ir.F32, shift))
		}
		return b.Value("neg", nil, b.Value("log", nil, v))
	}
	return negLog(negLog(u))
}

// descending sorts the last axis from large to small.
func descending(b *ir.Builder, x *ir.Value) *ir.Value {
	return b.Value("neg", nil, b.Value("sort", &ir.AxisAttrs{Axis: -1}, b.Value("neg", nil, x)))
}

// maskBelow sets what is below the threshold to -inf in x.
func maskBelow(b *ir.Builder, x, of, threshold *ir.Value) *ir.Value {
	return b.Value("where", nil, b.Value("less", nil, of, threshold), scalar(b, ir.F32, math.Inf(-1)), x)
}

// filterTopK keeps the k largest of each row, where 0 < k < vocab.
func filterTopK(b *ir.Builder, scaled, k *ir.Value) *ir.Value {
	vocab := float64(mustConst(b, scaled.Type.Shape[1]))
	on := b.Value("logical_and", nil, b.Value("greater", nil, k, scalar(b, ir.I64, 0)),
		b.Value("less", nil, k, scalar(b, ir.I64, vocab)))
	return b.If(condition(b, on), func(b *ir.Builder) []*ir.Value {
		last := b.Value("subtract_int", nil, b.Value("item_int", nil, k), 1)
		threshold := b.Value("take", &ir.AxisAttrs{Axis: -1}, descending(b, scaled), last)
		return []*ir.Value{maskBelow(b, scaled, scaled, b.Value("expand_dims", &ir.AxisAttrs{Axis: -1}, threshold))}
	}, func(*ir.Builder) []*ir.Value { return []*ir.Value{scaled} })[0]
}

// filterTopP keeps the smallest set of most likely tokens whose probability exceeds p, where p < 1: in
// descending order those with cumulated probability before them of at most p.
func filterTopP(b *ir.Builder, scaled, p *ir.Value) *ir.Value {
	on := condition(b, b.Value("less", nil, p, scalar(b, ir.F32, 1)))
	return b.If(on, func(b *ir.Builder) []*ir.Value {
		probabilities := b.Value("softmax", &ir.SoftmaxAttrs{Axis: -1, Precise: true}, scaled)
		sorted := descending(b, probabilities)
		before := b.Value("subtract", nil, b.Value("cumsum", &ir.CumsumAttrs{Axis: -1, Inclusive: true}, sorted),
			sorted)
		kept := b.Value("where", nil, b.Value("greater", nil, before, p), scalar(b, ir.F32, math.Inf(1)), sorted)
		threshold := b.Value("min", &ir.ReduceAttrs{Axes: []int{-1}, Keepdims: true}, kept)
		return []*ir.Value{maskBelow(b, scaled, probabilities, threshold)}
	}, func(*ir.Builder) []*ir.Value { return []*ir.Value{scaled} })[0]
}

func mustConst(b *ir.Builder, e *ir.Expr) int64 {
	v, ok := e.Const()
	if !ok {
		b.Fail("dim %s must be a constant", e)
	}
	return v
}
