package numeric

// The functions below round the results of the float64 functions to float32. Since the errors of those are below 2^-52,
// this gives the correctly rounded float32 result, except for about one argument in 2^28. Special cases are as in the
// functions without the suffix.

// Exp32 returns e^x; see [Exp].
func Exp32(x float32) float32 { return float32(Exp(float64(x))) }

// Expm132 returns e^x - 1; see [Expm1].
func Expm132(x float32) float32 { return float32(Expm1(float64(x))) }

// Log32 returns the natural logarithm of x; see [Log].
func Log32(x float32) float32 { return float32(Log(float64(x))) }

// Log1p32 returns log(1+x); see [Log1p].
func Log1p32(x float32) float32 { return float32(Log1p(float64(x))) }

// Log232 returns the binary logarithm of x; see [Log2].
func Log232(x float32) float32 { return float32(Log2(float64(x))) }

// Log1032 returns the decimal logarithm of x; see [Log10].
func Log1032(x float32) float32 { return float32(Log10(float64(x))) }

// Pow32 returns x^y; see [Pow].
func Pow32(x, y float32) float32 { return float32(Pow(float64(x), float64(y))) }

// Sin32 returns the sine of x radians; see [Sin].
func Sin32(x float32) float32 { return float32(Sin(float64(x))) }

// Cos32 returns the cosine of x radians; see [Cos].
func Cos32(x float32) float32 { return float32(Cos(float64(x))) }

// Sincos32 returns Sin32(x) and Cos32(x).
func Sincos32(x float32) (sin, cos float32) {
	s, c := Sincos(float64(x))
	return float32(s), float32(c)
}

// Tan32 returns the tangent of x radians; see [Tan].
func Tan32(x float32) float32 { return float32(Tan(float64(x))) }

// Asin32 returns the arc sine of x in radians; see [Asin].
func Asin32(x float32) float32 { return float32(Asin(float64(x))) }

// Acos32 returns the arc cosine of x in radians; see [Acos].
func Acos32(x float32) float32 { return float32(Acos(float64(x))) }

// Atan32 returns the arc tangent of x in radians; see [Atan].
func Atan32(x float32) float32 { return float32(Atan(float64(x))) }

// Atan232 returns the angle of the point (x, y) in radians; see [Atan2].
func Atan232(y, x float32) float32 { return float32(Atan2(float64(y), float64(x))) }

// Sinh32 returns the hyperbolic sine of x; see [Sinh].
func Sinh32(x float32) float32 { return float32(Sinh(float64(x))) }

// Cosh32 returns the hyperbolic cosine of x; see [Cosh].
func Cosh32(x float32) float32 { return float32(Cosh(float64(x))) }

// Tanh32 returns the hyperbolic tangent of x; see [Tanh].
func Tanh32(x float32) float32 { return float32(Tanh(float64(x))) }

// Asinh32 returns the inverse hyperbolic sine of x; see [Asinh].
func Asinh32(x float32) float32 { return float32(Asinh(float64(x))) }

// Acosh32 returns the inverse hyperbolic cosine of x; see [Acosh].
func Acosh32(x float32) float32 { return float32(Acosh(float64(x))) }

// Atanh32 returns the inverse hyperbolic tangent of x; see [Atanh].
func Atanh32(x float32) float32 { return float32(Atanh(float64(x))) }

// Erf32 returns the error function of x; see [Erf].
func Erf32(x float32) float32 { return float32(Erf(float64(x))) }
