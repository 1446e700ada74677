package ir

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// Unbounded marks the missing side of a symbol's interval: -Unbounded below, Unbounded above.
const Unbounded = int64(math.MaxInt64)

// Symbol is an integer that is known only when a program runs: a dynamic dim of an input, the value
// of item_int, the joined dim of an If. Symbols are compared by identity; names are for people and
// are given anew by the printer.
type Symbol struct {
	Name string
	// Lo and Hi bound the value, both included; ±Unbounded where nothing is known.
	Lo, Hi int64
}

// Expr is an integer expression over constants and symbols in a canonical form: a sum of products of
// atoms. Equal expressions have equal keys; expressions are immutable. nil is not a valid Expr.
type Expr struct {
	terms []term // sorted by key, no two with equal atoms, no zero coefficient
	key   string
}

type term struct {
	coef  int64
	atoms []*atom // sorted by key
	key   string
}

type atomKind uint8

const (
	atomSymbol   atomKind = iota
	atomFloorDiv          // floor(a / b)
	atomMod               // a - b*floor(a/b), sign of b
	atomMin
	atomMax
	atomWrap // a < 0 ? a + b : a — a Python-style index a into a dim b
)

var atomNames = [...]string{"", "floordiv", "mod", "min", "max", "wrap"}

type atom struct {
	kind atomKind
	sym  *Symbol
	a, b *Expr
	key  string
}

// constants are the expressions of small constants that were asked for: most dims are one of a few numbers.
var constants [1 << 12]atomic.Pointer[Expr]

// Const returns the expression of a constant.
func Const(v int64) *Expr {
	if v < 0 || v >= int64(len(constants)) {
		return newConst(v)
	}
	e := constants[v].Load()
	if e == nil {
		e = newConst(v)
		constants[v].Store(e)
	}
	return e
}

func newConst(v int64) *Expr {
	if v == 0 {
		return newExpr(nil)
	}
	return &Expr{[]term{{coef: v}}, strconv.FormatInt(v, 10) + "*+"}
}

// Sym returns the expression of a bare symbol.
func Sym(s *Symbol) *Expr {
	return atomExpr(&atom{kind: atomSymbol, sym: s, key: fmt.Sprintf("%p", s)})
}

func atomExpr(a *atom) *Expr {
	return newExpr([]term{{coef: 1, atoms: []*atom{a}, key: a.key}})
}

func newExpr(terms []term) *Expr {
	slices.SortFunc(terms, func(x, y term) int { return cmp.Compare(x.key, y.key) })
	var b strings.Builder
	for _, t := range terms {
		b.WriteString(strconv.FormatInt(t.coef, 10))
		b.WriteByte('*')
		b.WriteString(t.key)
		b.WriteByte('+')
	}
	return &Expr{terms, b.String()}
}

// Equal reports whether e and o are the same expression (the same value for every value of the symbols,
// as far as the canonical form can tell).
func (e *Expr) Equal(o *Expr) bool { return e.key == o.key }

// Key is equal for equal expressions, and different for different ones, within one process.
func (e *Expr) Key() string { return e.key }

// Const returns the value of an expression without symbols.
func (e *Expr) Const() (int64, bool) {
	switch {
	case len(e.terms) == 0:
		return 0, true
	case len(e.terms) == 1 && len(e.terms[0].atoms) == 0:
		return e.terms[0].coef, true
	}
	return 0, false
}

// IsConst reports whether e is the constant v.
func (e *Expr) IsConst(v int64) bool { c, ok := e.Const(); return ok && c == v }

// Symbol returns the symbol of an expression that is a bare symbol.
func (e *Expr) Symbol() (*Symbol, bool) {
	if len(e.terms) == 1 && e.terms[0].coef == 1 && len(e.terms[0].atoms) == 1 &&
		e.terms[0].atoms[0].kind == atomSymbol {
		return e.terms[0].atoms[0].sym, true
	}
	return nil, false
}

// Symbols calls f for every symbol of e, in the order of the canonical form, repeated as they occur.
func (e *Expr) Symbols(f func(*Symbol)) {
	for _, t := range e.terms {
		for _, a := range t.atoms {
			if a.kind == atomSymbol {
				f(a.sym)
				continue
			}
			a.a.Symbols(f)
			a.b.Symbols(f)
		}
	}
}

// satMul and satAdd saturate at ±Unbounded, which intervals read as "unknown".
func satMul(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	negative := (a < 0) != (b < 0)
	hi, lo := bits.Mul64(magnitude(a), magnitude(b))
	if hi != 0 || lo >= uint64(Unbounded) {
		if negative {
			return -Unbounded
		}
		return Unbounded
	}
	if negative {
		return -int64(lo)
	}
	return int64(lo)
}

func magnitude(v int64) uint64 {
	if v < 0 {
		return uint64(-v)
	}
	return uint64(v)
}

func satAdd(a, b int64) int64 {
	s := a + b
	switch {
	case a > 0 && b > 0 && s < 0:
		return Unbounded
	case a < 0 && b < 0 && s >= 0:
		return -Unbounded
	}
	return s
}

// Add is e + o.
func (e *Expr) Add(o *Expr) *Expr { return e.combine(o, 1) }

// Sub is e - o.
func (e *Expr) Sub(o *Expr) *Expr { return e.combine(o, -1) }

func (e *Expr) combine(o *Expr, sign int64) *Expr {
	x, ok := e.Const()
	y, ok2 := o.Const()
	switch {
	case ok && ok2:
		return Const(satAdd(x, satMul(y, sign)))
	case ok2 && y == 0:
		return e
	}
	terms := make([]term, 0, len(e.terms)+len(o.terms))
	terms = append(terms, e.terms...)
	for _, t := range o.terms {
		t.coef = satMul(t.coef, sign)
		terms = append(terms, t)
	}
	return newExpr(mergeTerms(terms))
}

func mergeTerms(terms []term) []term {
	slices.SortFunc(terms, func(x, y term) int { return cmp.Compare(x.key, y.key) })
	out := terms[:0]
	for _, t := range terms {
		if n := len(out); n > 0 && out[n-1].key == t.key {
			out[n-1].coef = satAdd(out[n-1].coef, t.coef)
			continue
		}
		out = append(out, t)
	}
	return slices.DeleteFunc(out, func(t term) bool { return t.coef == 0 })
}

// Mul is e × o.
func (e *Expr) Mul(o *Expr) *Expr {
	x, ok := e.Const()
	y, ok2 := o.Const()
	switch {
	case ok && ok2:
		return Const(satMul(x, y))
	case ok && x == 1:
		return o
	case ok2 && y == 1:
		return e
	}
	var terms []term
	for _, x := range e.terms {
		for _, y := range o.terms {
			atoms := append(slices.Clone(x.atoms), y.atoms...)
			slices.SortFunc(atoms, func(a, b *atom) int { return cmp.Compare(a.key, b.key) })
			keys := make([]string, len(atoms))
			for i, a := range atoms {
				keys[i] = a.key
			}
			terms = append(terms, term{satMul(x.coef, y.coef), atoms, strings.Join(keys, "·")})
		}
	}
	return newExpr(mergeTerms(terms))
}

// FloorDiv is floor(e / o). o must not be the constant 0.
func (e *Expr) FloorDiv(o *Expr) *Expr {
	c, isConst := o.Const()
	if v, ok := e.Const(); ok && isConst && c != 0 {
		return Const(floorDiv(v, c))
	}
	if e.Equal(o) {
		if lo, _ := e.Bounds(); lo > 0 {
			return Const(1)
		}
	}
	if isConst && c == 1 {
		return e
	}
	if q, ok := e.divideExactly(o); ok {
		return q
	}
	if isConst && c > 0 {
		if lo, hi := e.Bounds(); lo >= 0 && hi < c {
			return Const(0)
		}
	}
	return binaryAtom(atomFloorDiv, e, o)
}

// divideExactly divides every term by a single-term divisor, where that leaves no remainder.
func (e *Expr) divideExactly(o *Expr) (*Expr, bool) {
	if len(o.terms) != 1 || o.terms[0].coef <= 0 {
		return nil, false
	}
	d := o.terms[0]
	for _, a := range d.atoms {
		if lo, _ := atomExpr(a).Bounds(); lo <= 0 {
			return nil, false
		}
	}
	var terms []term
	for _, t := range e.terms {
		if t.coef%d.coef != 0 {
			return nil, false
		}
		atoms := slices.Clone(t.atoms)
		for _, a := range d.atoms {
			i := slices.IndexFunc(atoms, func(x *atom) bool { return x.key == a.key })
			if i < 0 {
				return nil, false
			}
			atoms = slices.Delete(atoms, i, i+1)
		}
		keys := make([]string, len(atoms))
		for i, a := range atoms {
			keys[i] = a.key
		}
		terms = append(terms, term{t.coef / d.coef, atoms, strings.Join(keys, "·")})
	}
	return newExpr(mergeTerms(terms)), true
}

// Mod is e - o×floor(e/o): the sign of o. o must not be the constant 0.
func (e *Expr) Mod(o *Expr) *Expr {
	c, isConst := o.Const()
	if v, ok := e.Const(); ok && isConst && c != 0 {
		return Const(v - c*floorDiv(v, c))
	}
	if _, ok := e.divideExactly(o); ok {
		return Const(0)
	}
	if isConst && c > 0 {
		if lo, hi := e.Bounds(); lo >= 0 && hi < c {
			return e
		}
	}
	return binaryAtom(atomMod, e, o)
}

// Min returns the smaller of e and o.
func (e *Expr) Min(o *Expr) *Expr {
	switch lo, hi := e.Sub(o).Bounds(); {
	case lo == 0 && hi == 0:
		return sameValue(e, o)
	case hi <= 0:
		return e
	case lo >= 0:
		return o
	}
	return sortedAtom(atomMin, e, o)
}

// Max returns the larger of e and o.
func (e *Expr) Max(o *Expr) *Expr {
	switch lo, hi := e.Sub(o).Bounds(); {
	case lo == 0 && hi == 0:
		return sameValue(e, o)
	case hi <= 0:
		return o
	case lo >= 0:
		return e
	}
	return sortedAtom(atomMax, e, o)
}

// sameValue chooses between expressions that are provably equal, whatever their order: a constant if
// there is one, else the one with the shorter text. Keys hold addresses, which differ from run to run.
func sameValue(e, o *Expr) *Expr {
	if _, ok := e.Const(); ok {
		return e
	}
	if _, ok := o.Const(); ok {
		return o
	}
	x, y := e.String(), o.String()
	if cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y)) <= 0 {
		return e
	}
	return o
}

// Wrap reads e as a Python-style index into a dim: e + dim where e is negative, else e.
func (e *Expr) Wrap(dim *Expr) *Expr {
	if lo, hi := e.Bounds(); lo >= 0 {
		return e
	} else if hi < 0 {
		return e.Add(dim)
	}
	return binaryAtom(atomWrap, e, dim)
}

// Clamp limits e to [0, dim].
func (e *Expr) Clamp(dim *Expr) *Expr { return e.Max(Const(0)).Min(dim) }

func sortedAtom(kind atomKind, a, b *Expr) *Expr {
	if a.key > b.key {
		a, b = b, a
	}
	return binaryAtom(kind, a, b)
}

func binaryAtom(kind atomKind, a, b *Expr) *Expr {
	return atomExpr(&atom{kind: kind, a: a, b: b, key: atomNames[kind] + "(" + a.key + "," + b.key + ")"})
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// Bounds returns an interval that holds the value of e, ±[Unbounded] where nothing is known.
func (e *Expr) Bounds() (lo, hi int64) {
	for _, t := range e.terms {
		tlo, thi := t.coef, t.coef
		for _, a := range t.atoms {
			alo, ahi := a.bounds()
			products := []int64{satMul(tlo, alo), satMul(tlo, ahi), satMul(thi, alo), satMul(thi, ahi)}
			tlo, thi = slices.Min(products), slices.Max(products)
		}
		lo, hi = boundAdd(lo, tlo), boundAdd(hi, thi)
	}
	return lo, hi
}

// boundAdd adds interval ends: an unknown end stays unknown whatever is added to it.
func boundAdd(a, b int64) int64 {
	if a == Unbounded || a == -Unbounded {
		return a
	}
	if b == Unbounded || b == -Unbounded {
		return b
	}
	return satAdd(a, b)
}

func (a *atom) bounds() (lo, hi int64) {
	if a.kind == atomSymbol {
		return a.sym.Lo, a.sym.Hi
	}
	alo, ahi := a.a.Bounds()
	blo, bhi := a.b.Bounds()
	switch a.kind {
	case atomMin:
		return min(alo, blo), min(ahi, bhi)
	case atomMax:
		return max(alo, blo), max(ahi, bhi)
	case atomWrap:
		return min(0, boundAdd(alo, blo)), max(ahi, boundAdd(-1, bhi))
	case atomMod:
		if blo > 0 {
			return 0, boundAdd(bhi, -1)
		}
	case atomFloorDiv:
		if blo > 0 {
			lo, hi = -Unbounded, Unbounded
			if alo != -Unbounded {
				lo = min(floorDiv(alo, blo), floorDiv(alo, bhi))
			}
			if ahi != Unbounded {
				hi = max(floorDiv(ahi, blo), floorDiv(ahi, bhi))
			}
			return lo, hi
		}
	}
	return -Unbounded, Unbounded
}

// Eval returns the value of e where value gives that of each symbol. Division by zero gives an error.
func (e *Expr) Eval(value func(*Symbol) (int64, bool)) (int64, error) {
	var sum int64
	for _, t := range e.terms {
		product := t.coef
		for _, a := range t.atoms {
			v, err := a.eval(value)
			if err != nil {
				return 0, err
			}
			product *= v
		}
		sum += product
	}
	return sum, nil
}

func (a *atom) eval(value func(*Symbol) (int64, bool)) (int64, error) {
	if a.kind == atomSymbol {
		v, ok := value(a.sym)
		if !ok {
			return 0, fmt.Errorf("symbol %s has no value", a.sym.Name)
		}
		return v, nil
	}
	x, err := a.a.Eval(value)
	if err != nil {
		return 0, err
	}
	y, err := a.b.Eval(value)
	if err != nil {
		return 0, err
	}
	switch a.kind {
	case atomMin:
		return min(x, y), nil
	case atomMax:
		return max(x, y), nil
	case atomWrap:
		if x < 0 {
			return x + y, nil
		}
		return x, nil
	}
	if y == 0 {
		return 0, fmt.Errorf("%s by zero", atomNames[a.kind])
	}
	if a.kind == atomMod {
		return x - y*floorDiv(x, y), nil
	}
	return floorDiv(x, y), nil
}

// Substitute replaces symbols by expressions; symbols for which with gives nil stay.
func (e *Expr) Substitute(with func(*Symbol) *Expr) *Expr {
	if _, ok := e.Const(); ok {
		return e
	}
	sum := Const(0)
	for _, t := range e.terms {
		product := Const(t.coef)
		for _, a := range t.atoms {
			product = product.Mul(a.substitute(with))
		}
		sum = sum.Add(product)
	}
	return sum
}

func (a *atom) substitute(with func(*Symbol) *Expr) *Expr {
	if a.kind == atomSymbol {
		if e := with(a.sym); e != nil {
			return e
		}
		return Sym(a.sym)
	}
	return applyAtom(a.kind, a.a.Substitute(with), a.b.Substitute(with))
}

func applyAtom(kind atomKind, x, y *Expr) *Expr {
	switch kind {
	case atomFloorDiv:
		return x.FloorDiv(y)
	case atomMod:
		return x.Mod(y)
	case atomMin:
		return x.Min(y)
	case atomMax:
		return x.Max(y)
	default:
		return x.Wrap(y)
	}
}

// format writes e with the given symbol names. Terms and operands are ordered by their printed form,
// so that the text does not depend on the identity of symbols.
func (e *Expr) format(name func(*Symbol) string) string {
	if len(e.terms) == 0 {
		return "0"
	}
	type printed struct {
		coef int64
		text string
	}
	parts := make([]printed, len(e.terms))
	for i, t := range e.terms {
		factors := make([]string, len(t.atoms))
		for j, a := range t.atoms {
			factors[j] = a.format(name)
		}
		slices.Sort(factors)
		parts[i] = printed{t.coef, strings.Join(factors, "*")}
	}
	slices.SortFunc(parts, func(x, y printed) int {
		// The constant comes last; positive terms before negative ones, so that most sums need no sign in front.
		return cmp.Or(cmp.Compare(btoi(x.text == ""), btoi(y.text == "")),
			cmp.Compare(btoi(x.coef < 0), btoi(y.coef < 0)), cmp.Compare(x.text, y.text))
	})
	var b strings.Builder
	for i, p := range parts {
		switch {
		case p.coef < 0:
			b.WriteByte('-')
		case i > 0:
			b.WriteByte('+')
		}
		m := magnitude(p.coef)
		switch {
		case p.text == "":
			b.WriteString(strconv.FormatUint(m, 10))
		case m == 1:
			b.WriteString(p.text)
		default:
			b.WriteString(strconv.FormatUint(m, 10) + "*" + p.text)
		}
	}
	return b.String()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (a *atom) format(name func(*Symbol) string) string {
	if a.kind == atomSymbol {
		return name(a.sym)
	}
	x, y := a.a.format(name), a.b.format(name)
	if (a.kind == atomMin || a.kind == atomMax) && x > y {
		x, y = y, x
	}
	return atomNames[a.kind] + "(" + x + "," + y + ")"
}

// String writes e with the symbols' own names.
func (e *Expr) String() string { return e.format(symbolName) }

// symbolName names a symbol in errors; one that nothing has named yet is "?".
func symbolName(s *Symbol) string {
	if s.Name == "" {
		return "?"
	}
	return s.Name
}
