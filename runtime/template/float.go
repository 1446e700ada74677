package template

import (
	"math"
	"strconv"
	"strings"
)

// floatRepr is repr of a float: the shortest digits that give it back, with an exponent from 1e16 and below 1e-4.
func floatRepr(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	e := strings.IndexByte(s, 'e')
	if exponent, _ := strconv.Atoi(s[e+1:]); exponent < -4 || exponent >= 16 {
		return s
	}
	s = strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// formatGeneral formats the magnitude f like %g with a precision of at least 1: threshold is the number of
// digits before the point from which on the exponent is written. Trailing zeros stay if keepZeros.
func formatGeneral(f float64, precision, threshold int, keepZeros bool) string {
	s := strconv.FormatFloat(f, 'e', precision-1, 64)
	e := strings.IndexByte(s, 'e')
	mantissa, exponentText := s[:e], s[e:]
	exponent, _ := strconv.Atoi(exponentText[1:])
	if exponent >= -4 && exponent < threshold {
		mantissa, exponentText = strconv.FormatFloat(f, 'f', max(precision-1-exponent, 0), 64), ""
	}
	if keepZeros {
		if !strings.Contains(mantissa, ".") {
			mantissa += "."
		}
	} else if strings.Contains(mantissa, ".") {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	return mantissa + exponentText
}

// roundFloat is round(f, digits), ties to even on the exact value.
func (in *interp) roundFloat(f float64, digits int) float64 {
	if math.IsInf(f, 0) || math.IsNaN(f) || digits > 323 {
		return f
	}
	if digits < -308 {
		return math.Copysign(0, f)
	}
	if digits >= 0 {
		r, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
		return r
	}
	// The integer part decides together with whether there is a fraction.
	s := strconv.FormatFloat(math.Abs(f), 'f', -1, 64)
	whole, fraction, _ := strings.Cut(s, ".")
	r := roundDecimal(whole, strings.Trim(fraction, "0") != "", -digits)
	z, _ := strconv.ParseFloat(r, 64)
	if math.IsInf(z, 0) {
		in.fail(OverflowError, "rounded value too large to represent")
	}
	return math.Copysign(z, f)
}

// roundDecimal rounds decimal digits to a multiple of 10**places, ties to even; more says that something
// greater than zero follows the digits.
func roundDecimal(digits string, more bool, places int) string {
	if len(digits) < places {
		return "0"
	}
	kept, cut := digits[:len(digits)-places], digits[len(digits)-places:]
	up := cut[0] > '5' || cut[0] == '5' && (more || strings.Trim(cut[1:], "0") != "" ||
		kept != "" && (kept[len(kept)-1]-'0')%2 == 1)
	if up {
		b := []byte("0" + kept)
		i := len(b) - 1
		for ; b[i] == '9'; i-- {
			b[i] = '0'
		}
		b[i]++
		kept = string(b)
	}
	return kept + strings.Repeat("0", places)
}
