package ir

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// exprCase is an expression with the value that plain integers give it.
type exprCase struct {
	e     *Expr
	value int64
}

// exprSource draws expressions over a few symbols with known values.
type exprSource struct {
	symbols []*Symbol
	values  map[*Symbol]int64
}

func newExprSource(t *rapid.T) *exprSource {
	s := &exprSource{values: map[*Symbol]int64{}}
	for i := range 4 {
		lo := rapid.Int64Range(-20, 20).Draw(t, "lo")
		hi := lo + rapid.Int64Range(0, 20).Draw(t, "width")
		symbol := &Symbol{fmt.Sprintf("s%d", i), lo, hi}
		s.values[symbol] = rapid.Int64Range(lo, hi).Draw(t, "value")
		switch rapid.IntRange(0, 5).Draw(t, "open") {
		case 0:
			symbol.Lo = -Unbounded
		case 1:
			symbol.Hi = Unbounded
		}
		s.symbols = append(s.symbols, symbol)
	}
	return s
}

func (s *exprSource) value(sym *Symbol) (int64, bool) { v, ok := s.values[sym]; return v, ok }

// draw draws an expression of at most the given depth whose value, and those of its parts, stay small.
func (s *exprSource) draw(t *rapid.T, depth int) exprCase {
	kind := rapid.IntRange(0, 9).Draw(t, "kind")
	if depth == 0 || kind == 0 {
		if rapid.Bool().Draw(t, "symbol") {
			sym := rapid.SampledFrom(s.symbols).Draw(t, "which")
			return exprCase{Sym(sym), s.values[sym]}
		}
		v := rapid.Int64Range(-9, 9).Draw(t, "const")
		return exprCase{Const(v), v}
	}
	a, b := s.draw(t, depth-1), s.draw(t, depth-1)
	switch kind {
	case 1, 2:
		return exprCase{a.e.Add(b.e), a.value + b.value}
	case 3:
		return exprCase{a.e.Sub(b.e), a.value - b.value}
	case 4:
		return exprCase{a.e.Mul(b.e), a.value * b.value}
	case 5:
		if b.value == 0 || b.e.IsConst(0) {
			return a
		}
		return exprCase{a.e.FloorDiv(b.e), int64(math.Floor(float64(a.value) / float64(b.value)))}
	case 6:
		if b.value == 0 || b.e.IsConst(0) {
			return a
		}
		return exprCase{a.e.Mod(b.e), a.value - b.value*int64(math.Floor(float64(a.value)/float64(b.value)))}
	case 7:
		return exprCase{a.e.Min(b.e), min(a.value, b.value)}
	case 8:
		return exprCase{a.e.Max(b.e), max(a.value, b.value)}
	default:
		v := a.value
		if v < 0 {
			v += b.value
		}
		return exprCase{a.e.Wrap(b.e), v}
	}
}

// check requires that c.e has its value, that its bounds hold it, and that substitution and the text
// form do not change it.
func (s *exprSource) check(t *rapid.T, c exprCase) {
	got, err := c.e.Eval(s.value)
	require.NoError(t, err, c.e)
	require.Equal(t, c.value, got, "%s with %v", c.e, s.values)
	lo, hi := c.e.Bounds()
	require.True(t, lo <= c.value && c.value <= hi, "%s = %d is outside of its bounds [%d,%d]", c.e, c.value, lo, hi)
	if v, ok := c.e.Const(); ok {
		require.Equal(t, c.value, v)
	}
	all := c.e.Substitute(func(sym *Symbol) *Expr { return Const(s.values[sym]) })
	v, ok := all.Const()
	require.True(t, ok, "%s became %s", c.e, all)
	require.Equal(t, c.value, v)
	first := c.e.Substitute(func(sym *Symbol) *Expr {
		if sym == s.symbols[0] {
			return Const(s.values[sym])
		}
		return nil
	})
	v, err = first.Eval(s.value)
	require.NoError(t, err)
	require.Equal(t, c.value, v)
	require.True(t, c.e.Substitute(func(*Symbol) *Expr { return nil }).Equal(c.e), c.e)
	// The text form, read again, is the same expression.
	names := map[string]*Symbol{}
	for _, sym := range s.symbols {
		names[sym.Name] = sym
	}
	tokens, err := lex(c.e.String())
	require.NoError(t, err)
	p := &parser{tokens: tokens, symbols: names}
	again := p.expr()
	require.Equal(t, tokenEnd, p.peek().kind, c.e)
	require.True(t, again.Equal(c.e), "%s read again is %s", c.e, again)
}

func TestExprAgreesWithIntegers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newExprSource(t)
		s.check(t, s.draw(t, 3))
	})
}

func TestExprIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newExprSource(t)
		a, b, c := s.draw(t, 2).e, s.draw(t, 2).e, s.draw(t, 2).e
		k := rapid.Int64Range(1, 9).Draw(t, "k")
		equal := func(x, y *Expr, law string) { require.True(t, x.Equal(y), "%s: %s and %s", law, x, y) }
		equal(a.Add(b), b.Add(a), "a+b = b+a")
		equal(a.Add(b).Add(c), a.Add(b.Add(c)), "(a+b)+c = a+(b+c)")
		equal(a.Add(b).Sub(b), a, "(a+b)-b = a")
		equal(a.Sub(a), Const(0), "a-a = 0")
		equal(a.Mul(b), b.Mul(a), "a*b = b*a")
		equal(a.Mul(b).Mul(c), a.Mul(b.Mul(c)), "(a*b)*c = a*(b*c)")
		equal(a.Add(b).Mul(c), a.Mul(c).Add(b.Mul(c)), "(a+b)*c = a*c+b*c")
		equal(a.Mul(Const(0)), Const(0), "a*0 = 0")
		equal(a.Mul(Const(1)), a, "a*1 = a")
		equal(a.Mul(Const(k)).FloorDiv(Const(k)), a, "(a*k)/k = a")
		equal(a.Mul(Const(k)).Mod(Const(k)), Const(0), "(a*k)%k = 0")
		equal(a.Min(b), b.Min(a), "min(a,b) = min(b,a)")
		equal(a.Max(b), b.Max(a), "max(a,b) = max(b,a)")
		equal(a.Min(a), a, "min(a,a) = a")
		equal(a.Max(a), a, "max(a,a) = a")
	})
}

// TestExprIsImmutable: no operation changes its operands.
func TestExprIsImmutable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newExprSource(t)
		a, b := s.draw(t, 3).e, s.draw(t, 3).e
		keys, texts := a.key+"|"+b.key, a.String()+"|"+b.String()
		for _, f := range []func(*Expr) *Expr{a.Add, a.Sub, a.Mul, a.Min, a.Max, a.Wrap, a.Clamp} {
			f(b)
		}
		if !b.IsConst(0) {
			a.FloorDiv(b)
			a.Mod(b)
		}
		require.Equal(t, keys, a.key+"|"+b.key)
		require.Equal(t, texts, a.String()+"|"+b.String())
	})
}

func TestExprText(t *testing.T) {
	a, b := &Symbol{"a", 1, 10}, &Symbol{"b", 0, Unbounded}
	p := Sym(&Symbol{"p", math.MinInt32, math.MaxInt32})
	x, y := Sym(a), Sym(b)
	for _, c := range []struct {
		e    *Expr
		want string
	}{
		{Const(0), "0"},
		{Const(-3), "-3"},
		{x.Add(Const(1)), "a+1"},
		{Const(1).Sub(x), "-a+1"},
		{y.Sub(x), "b-a"},
		{x.Mul(Const(-2)).Add(y.Mul(x)), "a*b-2*a"},
		{x.Mul(x), "a*a"},
		{x.Min(y), "min(a,b)"},
		{y.Min(x), "min(a,b)"},
		{x.Min(Const(10)), "a"},
		{x.Max(Const(10)), "10"},
		{x.Wrap(y), "a"},
		{Const(-1).Wrap(y), "b-1"},
		{p.Wrap(y), "wrap(p,b)"},
		{p.Clamp(Const(7)), "min(7,max(0,p))"},
		{x.Clamp(Const(4096)), "a"},
		{x.Mul(Const(6)).FloorDiv(Const(3)), "2*a"},
		{x.Mul(y).FloorDiv(x), "b"},
		{x.Mul(y).FloorDiv(y), "floordiv(a*b,b)"}, // b may be 0
		{x.FloorDiv(x), "1"},
		{y.FloorDiv(y), "floordiv(b,b)"},
		{x.Sub(Const(1)).FloorDiv(Const(10)), "0"},
		{y.FloorDiv(Const(1)), "b"},
		{x.Mod(Const(11)), "a"},
		{y.Mod(Const(3)), "mod(b,3)"},
		{Const(-7).FloorDiv(Const(2)), "-4"},
		{Const(-7).Mod(Const(2)), "1"},
		{Const(7).Mod(Const(-2)), "-1"},
		{Sym(&Symbol{}), "?"},
	} {
		require.Equal(t, c.want, c.e.String())
	}
}

func TestExprBounds(t *testing.T) {
	a, b := Sym(&Symbol{"a", 1, 10}), Sym(&Symbol{"b", 0, Unbounded})
	n := Sym(&Symbol{"n", -5, 3})
	free := Sym(&Symbol{"p", -Unbounded, Unbounded})
	for _, c := range []struct {
		e      *Expr
		lo, hi int64
	}{
		{Const(4), 4, 4},
		{a.Add(Const(3)), 4, 13},
		{Const(3).Sub(a), -7, 2},
		{b.Add(a), 1, Unbounded},
		{a.Sub(b), -Unbounded, 10},
		{a.Mul(n), -50, 30},
		{n.Mul(n), -15, 25},
		{b.Mul(Const(-2)), -Unbounded, 0},
		{free, -Unbounded, Unbounded},
		{n.FloorDiv(Const(2)), -3, 1},
		{b.FloorDiv(Const(3)), 0, Unbounded},
		{free.Mod(a), 0, 9},
		{free.Mod(Const(7)), 0, 6},
		{free.Mod(n), -Unbounded, Unbounded},
		{n.Min(a.Sub(Const(4))), -5, 3},
		{n.Max(a.Sub(Const(4))), -3, 6},
		{n.Wrap(a), -4, 9},
		{free.Clamp(a), 0, 10},
	} {
		lo, hi := c.e.Bounds()
		require.Equal(t, []int64{c.lo, c.hi}, []int64{lo, hi}, c.e)
	}
}

func TestExprEvalErrors(t *testing.T) {
	s := &Symbol{"s", 0, 9}
	zero := func(*Symbol) (int64, bool) { return 0, true }
	unknown := func(*Symbol) (int64, bool) { return 0, false }
	for _, c := range []struct {
		e     *Expr
		value func(*Symbol) (int64, bool)
		err   string
	}{
		{Sym(s), unknown, "symbol s has no value"},
		{Const(8).FloorDiv(Sym(s)), unknown, "symbol s has no value"},
		{Sym(s).FloorDiv(Const(7)), unknown, "symbol s has no value"},
		{Const(8).FloorDiv(Sym(s)), zero, "floordiv by zero"},
		{Const(8).Mod(Sym(s)), zero, "mod by zero"},
	} {
		_, err := c.e.Eval(c.value)
		require.ErrorContains(t, err, c.err)
	}
}

func TestExprSymbols(t *testing.T) {
	a, b := &Symbol{"a", 0, 9}, &Symbol{"b", -9, 9}
	var names []string
	Sym(a).Mul(Sym(a)).Add(Sym(b).Wrap(Sym(a))).Symbols(func(s *Symbol) { names = append(names, s.Name) })
	require.Equal(t, 4, len(names))
	require.Equal(t, 3, strings.Count(strings.Join(names, ""), "a"))
	got, ok := Sym(a).Symbol()
	require.True(t, ok)
	require.Same(t, a, got)
	for _, e := range []*Expr{Const(1), Sym(a).Add(Const(1)), Sym(a).Mul(Const(2)),
		Sym(a).Mul(Sym(a)), Sym(b).Min(Sym(a))} {
		_, ok := e.Symbol()
		require.False(t, ok, e)
	}
	require.False(t, Sym(a).Equal(Sym(&Symbol{"a", 0, 9})), "symbols are compared by identity")
}

// TestExprSaturates: coefficients and bounds that do not fit 64 bits stop at the ends and stay ordered.
func TestExprSaturates(t *testing.T) {
	big := Sym(&Symbol{"s", 1, math.MaxInt32})
	e := big
	for range 8 {
		e = e.Mul(big).Mul(Const(1 << 20))
		lo, hi := e.Bounds()
		require.LessOrEqual(t, lo, hi)
		lo, hi = Const(0).Sub(e).Bounds()
		require.LessOrEqual(t, lo, hi)
		require.Negative(t, hi)
	}
	_, hi := e.Bounds()
	require.Equal(t, Unbounded, hi)
	require.Equal(t, "9223372036854775807", Const(math.MaxInt64).Add(Const(1)).String())
}
