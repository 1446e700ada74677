package template

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// asciiDigits trims a text and replaces decimal digits of other scripts, which int and float accept.
func asciiDigits(s string) string {
	s = strings.TrimFunc(s, isSpace)
	if isASCII(s) {
		return s
	}
	return strings.Map(func(c rune) rune {
		if c < 0x80 || !unicode.IsDigit(c) {
			return c
		}
		// The digits of a script are ten in a row, and the ranges of the table start with a zero.
		for _, r := range unicode.Nd.R16 {
			if rune(r.Lo) <= c && c <= rune(r.Hi) {
				return '0' + (c-rune(r.Lo))%10
			}
		}
		for _, r := range unicode.Nd.R32 {
			if rune(r.Lo) <= c && c <= rune(r.Hi) {
				return '0' + (c-rune(r.Lo))%10
			}
		}
		return c
	}, s)
}

// parseInt is int(s, base); ok is false where Python raises a ValueError.
func (in *interp) parseInt(s string, base int) (Value, bool) {
	if base != 0 && (base < 2 || base > 36) {
		return nil, false
	}
	in.look(len(s))
	s = asciiDigits(s)
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	prefixed := false
	if len(s) > 2 && s[0] == '0' {
		prefix := map[byte]int{'b': 2, 'o': 8, 'x': 16}[s[1]|0x20]
		if prefix != 0 && (base == 0 || base == prefix) {
			s, base, prefixed = s[2:], prefix, true
			s = strings.TrimPrefix(s, "_")
		}
	}
	if base == 0 {
		base = 10
		if strings.HasPrefix(s, "0") && strings.Trim(s, "0_") != "" {
			return nil, false // 010 is no integer literal
		}
	}
	if s == "" || s[0] == '_' || s[len(s)-1] == '_' || strings.Contains(s, "__") || strings.ContainsAny(s, "+-") {
		return nil, false
	}
	s = strings.ReplaceAll(s, "_", "")
	if !prefixed && base&(base-1) != 0 && len(s) > maxIntDigits || len(s) > maxIntBits {
		return nil, false
	}
	in.step(len(s))
	z, ok := new(big.Int).SetString(s, base)
	if !ok {
		return nil, false
	}
	if negative {
		z.Neg(z)
	}
	return in.intValue(z), true
}

// parseFloat is float(s); ok is false where Python raises a ValueError.
func parseFloat(s string) (float64, bool) {
	s = asciiDigits(s)
	rest := strings.ToLower(strings.TrimLeft(s, "+-"))
	if len(s)-len(rest) > 1 {
		return 0, false
	}
	sign := 1
	if strings.HasPrefix(s, "-") {
		sign = -1
	}
	switch rest {
	case "inf", "infinity":
		return math.Inf(sign), true
	case "nan":
		return math.NaN(), true
	}
	digits := digitsLength(rest)
	n := digits
	if n < len(rest) && rest[n] == '.' {
		fraction := digitsLength(rest[n+1:])
		n += 1 + fraction
		digits += fraction
	}
	if digits == 0 {
		return 0, false
	}
	if n < len(rest) && rest[n] == 'e' {
		e := n + 1
		if e < len(rest) && (rest[e] == '+' || rest[e] == '-') {
			e++
		}
		exponent := digitsLength(rest[e:])
		if exponent == 0 {
			return 0, false
		}
		n = e + exponent
	}
	if n != len(rest) {
		return 0, false
	}
	f, _ := strconv.ParseFloat(strings.ReplaceAll(rest, "_", ""), 64) // out of range is an infinity
	return math.Copysign(f, float64(sign)), true
}

// toInt is int(v) of a number; kind is the error where Python raises one.
func (in *interp) toInt(v Value) (n Value, kind Kind) {
	f, ok := v.(Float)
	if !ok {
		return plainNumber(v), ""
	}
	if math.IsNaN(float64(f)) {
		return nil, ValueError
	}
	if math.IsInf(float64(f), 0) {
		return nil, OverflowError
	}
	z, _ := big.NewFloat(float64(f)).Int(nil)
	return in.intValue(z), ""
}
