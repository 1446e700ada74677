package constrain

import (
	"fmt"
	"math/big"
	"strings"
)

// numberSpec has the requirements of schemas on a number.
type numberSpec struct {
	integer   bool
	low, high *big.Rat // nil: no bound
	lowOpen   bool     // low itself is not allowed
	highOpen  bool
	multiples []*big.Rat
}

// maxModulus bounds what integers can be asked to be a multiple of.
const maxModulus = 4096

// above makes the bounds narrower.
func (n *numberSpec) above(low *big.Rat, open bool) {
	if n.low == nil || low.Cmp(n.low) > 0 {
		n.low, n.lowOpen = low, open
	} else if low.Cmp(n.low) == 0 {
		n.lowOpen = n.lowOpen || open
	}
}

func (n *numberSpec) below(high *big.Rat, open bool) {
	if n.high == nil || high.Cmp(n.high) < 0 {
		n.high, n.highOpen = high, open
	} else if high.Cmp(n.high) == 0 {
		n.highOpen = n.highOpen || open
	}
}

// apart reports whether no number is within the bounds of both.
func (n *numberSpec) apart(o *numberSpec) bool {
	before := func(a, b *numberSpec) bool {
		if a.high == nil || b.low == nil {
			return false
		}
		c := a.high.Cmp(b.low)
		return c < 0 || c == 0 && (a.highOpen || b.lowOpen)
	}
	return before(n, o) || before(o, n)
}

// free reports whether nothing is asked but the kind.
func (n *numberSpec) free() bool { return n.low == nil && n.high == nil && len(n.multiples) == 0 }

// expr returns the texts of the numbers: digits, and for numbers a fraction; no exponent. A wrong keyword is named in
// the error.
func (n *numberSpec) expr() (e *expr, keyword string, err error) {
	modulus, places := int64(1), int32(maxDigits)
	integer := n.integer
	for _, m := range n.multiples {
		switch num, denom := m.Num(), m.Denom(); {
		case integer || m.IsInt():
			// An integer is a multiple of p/q, in lowest terms, if it is one of p.
			integer = true
			if !num.IsInt64() || num.Int64() > maxModulus {
				return nil, "multipleOf", fmt.Errorf("integers can be multiples of up to %d; found %s",
					maxModulus, m.RatString())
			}
			if modulus = modulus / gcd(modulus, num.Int64()) * num.Int64(); modulus > maxModulus {
				return nil, "multipleOf", fmt.Errorf("together they ask for multiples of more than %d", maxModulus)
			}
		default:
			digits := int32(len(denom.String()) - 1)
			power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)
			if num.Cmp(big.NewInt(1)) != 0 || denom.Cmp(power) != 0 || digits > maxDigits {
				return nil, "multipleOf", fmt.Errorf(
					"numbers can be multiples of 0.1, 0.01 and so on, or of an integer; found %s", m.RatString())
			}
			places = min(places, digits)
		}
	}
	positive, keyword, err := n.side(integer, places, modulus, false)
	if err != nil {
		return nil, keyword, err
	}
	negative, keyword, err := n.side(integer, places, modulus, true)
	if err != nil {
		return nil, keyword, err
	}
	return alt(positive, cat(lit("-"), negative)), "", nil
}

// side returns the texts, without sign, of the numbers from 0 on or, with negative, below it.
func (n *numberSpec) side(integer bool, places int32, modulus int64, negative bool) (*expr, string, error) {
	low, high, lowOpen, highOpen := n.low, n.high, n.lowOpen, n.highOpen
	lowWord, highWord := "minimum", "maximum"
	if negative {
		low, high, lowOpen, highOpen = n.high, n.low, n.highOpen, n.lowOpen
		lowWord, highWord = highWord, lowWord
		if low != nil {
			low = new(big.Rat).Neg(low)
		}
		if high != nil {
			high = new(big.Rat).Neg(high)
		}
	}
	whole := alt(lit("0"), cat(byteRange('1', '9'), repeat(digit, 0, maxDigits-1)))
	fraction := empty
	if !integer && places > 0 {
		fraction = opt(cat(lit("."), repeat(digit, 1, places)))
	}
	parts := []*expr{cat(whole, fraction)}
	if modulus > 1 {
		parts = append(parts, multiplesOf(modulus).expr())
	}
	if low != nil && low.Sign() >= 0 {
		e, err := atLeast(low, lowOpen)
		if err != nil {
			return nil, lowWord, err
		}
		parts = append(parts, e)
	}
	if high != nil && high.Sign() < 0 {
		return none, "", nil
	}
	if high != nil {
		e, err := atMost(high, highOpen)
		if err != nil {
			return nil, highWord, err
		}
		parts = append(parts, e)
	}
	if len(parts) == 1 {
		return parts[0], "", nil
	}
	d, ok := intersect(parts...)
	if !ok {
		return nil, lowWord, fmt.Errorf("the bounds and multiples together take too large an automaton")
	}
	return d.expr(), "", nil
}

// intersect makes the automaton of what all parts accept.
func intersect(parts ...*expr) (*dfa, bool) {
	var all *dfa
	for _, e := range parts {
		d, ok := determinize(e)
		if ok && all != nil {
			d, ok = all.and(d)
		}
		if !ok {
			return nil, false
		}
		all = d
	}
	return all, true
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// multiplesOf accepts the digits of the multiples of n, without leading zeros.
func multiplesOf(n int64) *dfa {
	d := &dfa{next: make([][256]int32, n+2), accept: make([]bool, n+2)}
	const start, zero = 0, 1 // the state of remainder r is r+2
	for i := range d.next {
		for b := range d.next[i] {
			d.next[i][b] = -1
		}
		for c := int64(0); c <= 9 && i != zero; c++ {
			before := max(int64(i)-2, 0)
			d.next[i]['0'+c] = int32((before*10+c)%n) + 2
		}
	}
	d.next[start]['0'] = zero
	d.accept[zero], d.accept[2] = true, true
	return d
}

// decimal splits a number from 0 on into its digits before and after the point.
func decimal(r *big.Rat) (whole, fraction string, err error) {
	places, exact := r.FloatPrec()
	if !exact || places > maxDigits {
		return "", "", fmt.Errorf("%s has more than %d digits after the point", r.RatString(), maxDigits)
	}
	whole, fraction, _ = strings.Cut(r.FloatString(places), ".")
	if len(whole) >= maxDigits {
		return "", "", fmt.Errorf("the bound has %d digits; less than %d are supported", len(whole), maxDigits)
	}
	return whole, strings.TrimRight(fraction, "0"), nil
}

func anyFraction() *expr { return opt(cat(lit("."), repeat(digit, 1, maxDigits))) }

// atLeast returns an expression of the digits of the numbers from low on; with open, of those above low.
func atLeast(low *big.Rat, open bool) (*expr, error) {
	whole, fraction, err := decimal(low)
	if err != nil {
		return nil, err
	}
	n := int32(len(whole))
	more := []*expr{cat(byteRange('1', '9'), repeat(digit, n, maxDigits))}
	for i := range len(whole) {
		if c := whole[i]; c < '9' {
			more = append(more, cat(lit(whole[:i]), byteRange(c+1, '9'), repeat(digit, n-int32(i)-1, n-int32(i)-1)))
		}
	}
	rest := star(digit)
	var same []*expr // fractions that are large enough after the same digits before the point
	if fraction == "" && !open {
		same = append(same, anyFraction())
	} else {
		for i := range len(fraction) {
			if c := fraction[i]; c < '9' {
				same = append(same, cat(lit("."+fraction[:i]), byteRange(c+1, '9'), rest))
			}
		}
		behind := rest
		if open {
			behind = cat(star(lit("0")), byteRange('1', '9'), rest)
		}
		same = append(same, cat(lit("."+fraction), behind))
	}
	return alt(cat(alt(more...), anyFraction()), cat(lit(whole), alt(same...))), nil
}

// atMost accepts the digits of the numbers up to high, before it with open.
func atMost(high *big.Rat, open bool) (*expr, error) {
	whole, fraction, err := decimal(high)
	if err != nil {
		return nil, err
	}
	n := int32(len(whole))
	var less []*expr
	if n > 1 {
		less = append(less, lit("0"), cat(byteRange('1', '9'), repeat(digit, 0, n-2)))
	}
	for i := range len(whole) {
		first := byte('0')
		if i == 0 && n > 1 {
			first = '1'
		}
		if c := whole[i]; c > first {
			less = append(less, cat(lit(whole[:i]), byteRange(first, c-1), repeat(digit, n-int32(i)-1, n-int32(i)-1)))
		}
	}
	rest := star(digit)
	var same []*expr
	if fraction != "" {
		same = append(same, empty)
	}
	for i := range len(fraction) {
		if i > 0 {
			same = append(same, lit("."+fraction[:i])) // a beginning is less: the last digit is not 0
		}
		if c := fraction[i]; c > '0' {
			same = append(same, cat(lit("."+fraction[:i]), byteRange('0', c-1), rest))
		}
	}
	switch zeros := star(lit("0")); {
	case open:
	case fraction == "":
		same = append(same, opt(cat(lit(".0"), zeros)))
	default:
		same = append(same, cat(lit("."+fraction), zeros))
	}
	return alt(cat(alt(less...), anyFraction()), cat(lit(whole), alt(same...))), nil
}
