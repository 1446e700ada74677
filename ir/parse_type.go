package ir

import (
	"errors"
	"strconv"
)

func (p *parser) parseType() Type {
	name := p.name()
	if name == "int" {
		p.expect("(")
		e := p.expr()
		p.expect(")")
		return IntType(e)
	}
	if name == "quantized" {
		p.expect("<")
		t := Type{Kind: QuantizedKind}
		if p.peek().kind == tokenName {
			mode, err := ParseQuantMode(p.name())
			if err != nil {
				p.fail("%w", err)
			}
			t.Mode = mode
			p.expect(",")
		}
		t.Bits = int(p.integer())
		p.expect(",")
		t.Group = int(p.integer())
		p.expect(",")
		t.DType = p.dtype(p.name())
		p.expect(">")
		t.Shape = p.shape()
		return t
	}
	return Type{Kind: TensorKind, DType: p.dtype(name), Shape: p.shape()}
}

func (p *parser) dtype(name string) DType {
	d, err := ParseDType(name)
	if err != nil {
		p.fail("%w", err)
	}
	return d
}

func (p *parser) shape() []*Expr {
	shape := []*Expr{}
	p.expect("[")
	p.list("]", func() { shape = append(shape, p.expr()) })
	return shape
}

// expr reads sums of products of numbers, symbols and floordiv, mod, min, max, wrap.
func (p *parser) expr() *Expr {
	p.enter()
	defer p.leave()
	sum := Const(0)
	for sign := int64(1); ; {
		if p.accept("-") {
			sign = -sign
		}
		sum = p.bounded(sum.Add(p.product().Mul(Const(sign))), true)
		switch t := p.peek(); {
		case p.accept("+"):
			sign = 1
		case t.kind == tokenPunct && t.text == "-":
			sign = 1
		default:
			return sum
		}
	}
}

// bounded refuses expressions that no type rule makes; products and nested operators grow fast.
func (p *parser) bounded(e *Expr, ok bool) *Expr {
	if !ok || tooLarge(e) {
		p.fail("an expression of more than %d terms or %d bytes", maxExprTerms, maxExprKey)
	}
	return e
}

var errDivisor = errors.New("division by the constant zero")

func (p *parser) product() *Expr {
	product := p.factor()
	for p.accept("*") {
		product = p.bounded(mulExpr(product, p.factor()))
	}
	return product
}

func (p *parser) factor() *Expr {
	t := p.next()
	switch t.kind {
	case tokenNumber:
		if v, err := strconv.ParseInt(t.text, 10, 64); err == nil {
			return Const(v)
		}
	case tokenName:
		if s := p.symbols[t.text]; s != nil {
			return Sym(s)
		}
		for kind := atomFloorDiv; kind <= atomWrap; kind++ {
			if atomNames[kind] != t.text {
				continue
			}
			p.expect("(")
			x := p.expr()
			p.expect(",")
			y := p.expr()
			p.expect(")")
			if (kind == atomFloorDiv || kind == atomMod) && y.IsConst(0) {
				p.fail("%w", errDivisor)
			}
			return p.bounded(applyAtom(kind, x, y), true)
		}
	}
	p.at--
	p.fail("want a number, a declared symbol or floordiv, mod, min, max, wrap, found %s", t)
	return nil
}
