package gpu

import "github.com/etc-ml/etc/runtime/gpu/kernels"

// pairOf is activation(gate)·up of two products of the same few rows that is deferred: a shared expert's becomes a part
// of the mixture of experts. first and second are the buffers of both weights, of n rows.
type pairOf struct {
	gate, up      *linearOf
	n             int
	first, second kernels.WeightArguments[operand]
	activation    kernels.Activation
	out           *value
}

// deferGLU defers the operation, whose products then are a part of it.
func (b *binder) deferGLU(p *pairOf) bool {
	k := p.kernel()
	if _, err := usable(b, k.Tunings(b.x.exe.machine), k.Launch); err != nil {
		return false
	}
	if p.out = b.result(0, nil); p.out == nil || p.out.len() != p.gate.rows*p.n {
		return false
	}
	b.later(p.out.slot, p, p.gate.x)
	return true
}

func (p *pairOf) kernel() kernels.MatVecGLU {
	v, _ := p.gate.vectors()
	return kernels.MatVecGLU{Vectors: v, N: p.n, Activation: p.activation}
}

func (p *pairOf) emit(b *binder) {
	k := p.kernel()
	_, norm := p.gate.vectors()
	ways := k.Tunings(b.x.exe.machine)
	l, err := k.Launch(ways[0])
	a := kernels.MatVecGLUArguments[operand]{W0: p.first, W1: p.second, X: bytesOf(p.gate.x), Norm: norm, Y: bytesOf(p.out), Step: b.stepAt(p.gate.rows, nil)}
	if b.launch("glu", l, err, a) {
		tuned(b, ways, k.Launch)
		b.reading(p.bytes())
	}
}

// bytes are those of both weights.
func (p *pairOf) bytes() int { return p.gate.w.bytes() * 2 * p.n / p.gate.w.rows }
