package numeric

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorded holds, per function, the bits of its value at 0.7 (at 1.7 for Acosh)
// and the first 64 bits of the SHA-256 of its values over sweepArguments. They
// were recorded on linux/amd64; any other system must reproduce them.
var recorded = map[string]struct {
	at0_7 uint64
	sweep string
}{
	"Exp":               {0x40001c2a61268987, "f9304c68380ade72"},
	"Expm1":             {0x3ff03854c24d130d, "4b0ee14e6355111e"},
	"Log":               {0xbfd6d3c324e13f50, "fe543308a1a3cb44"},
	"Log1p":             {0x3fe0fae81914a991, "8188964cc0f546f6"},
	"Log2":              {0xbfe0776228967d13, "c8f06903f61f1c1e"},
	"Log10":             {0xbfc3d3d3d21ccf04, "308bbfc47d174de3"},
	"Pow":               {0x3fecc0b43ba5c3d9, "fef287a08a82cc5c"},
	"Sin":               {0x3fe49d6e694619b8, "dc7c3bb9754d1ee8"},
	"Cos":               {0x3fe87996529f9d93, "1a76ece7bdca62ed"},
	"Tan":               {0x3feaf406c2fc78ae, "ede7bcf2dd1b2bae"},
	"Asin":              {0x3fe8d00e692afd95, "15bc4df2c39abfe5"},
	"Acos":              {0x3fe973e83f5d5c9b, "55f284dec4f76815"},
	"Atan":              {0x3fe38b112d7bd4ad, "4aeb220b5168c7a5"},
	"Atan2":             {0x3ff2a78b84fbf5fc, "ad76da60d1a19253"},
	"Sinh":              {0x3fe8465153d5bdbd, "d2e8fc4500216a86"},
	"Cosh":              {0x3ff4152c1862342f, "ac99f8308c77c847"},
	"Tanh":              {0x3fe356fb17af2e91, "1ea10cbad9f9bfc7"},
	"Asinh":             {0x3fe4e2a4fe9085dd, "7e16aee1d28825b0"},
	"Acosh":             {0x3ff1f8c10d010fe6, "459b1748f7c6fca4"},
	"Atanh":             {0x3febc0ed0947fbe8, "a59c012932e7c617"},
	"Erf":               {0x3fe5b08c21171646, "049aeefdcffd4e0c"},
	"Exp32":             {0x4000e153, "eae56745ebdb9aa2"},
	"Log32":             {0xbeb69e1a, "1b2eb9de02d0870f"},
	"GumbelFromUniform": {0xbd5a7542, "e11d9b4c22049c6f"},
	"RoundBF16":         {0x3f330000, "61716ad81e645283"},
	"RoundF16":          {0x3f334000, "a476c13b7580ed30"},
	"F16ToF32":          {0x3fe66000, "1c55c8b8f995df17"},
}

// sweepArguments calls f with the same 20,000 arguments on every system: bit
// patterns of all kinds, NaN included, and evenly spaced numbers in [-10, 10].
// They are made with integer arithmetic and exact conversions only.
func sweepArguments(f func(x float64)) {
	state := uint64(0x9e37_79b9_7f4a_7c15)
	next := func() uint64 { // Marsaglia's xorshift64
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		return state
	}
	for range 10_000 {
		f(math.Float64frombits(next()))
		f(float64(int64(next())>>3) * (10 * 0x1p-60))
	}
}

// sweepSum is the digest of the bits that each yields over the sweep.
func sweepSum(each func(yield func(bits uint64))) string {
	digest := sha256.New()
	var buffer [8]byte
	each(func(bits uint64) {
		binary.LittleEndian.PutUint64(buffer[:], bits)
		digest.Write(buffer[:])
	})
	return hex.EncodeToString(digest.Sum(nil)[:8])
}

func TestSameBitsEverywhere(t *testing.T) {
	check := func(name string, at0_7 uint64, sweep string) {
		t.Helper()
		want := recorded[name]
		if at0_7 != want.at0_7 || sweep != want.sweep {
			t.Errorf("%q: {%#016x, %q}, recorded %#016x, %q", name, at0_7, sweep, want.at0_7, want.sweep)
		}
	}
	for _, f := range functions {
		x := 0.7
		if f.name == "Acosh" {
			x = 1.7
		}
		check(f.name, math.Float64bits(f.f(x)), sweepSum(func(yield func(uint64)) {
			sweepArguments(func(x float64) { yield(math.Float64bits(f.f(x))) })
		}))
	}
	for name, f := range map[string]func(x, y float64) float64{"Pow": Pow, "Atan2": Atan2} {
		check(name, math.Float64bits(f(0.7, 0.3)), sweepSum(func(yield func(uint64)) {
			previous := 1.5
			sweepArguments(func(x float64) {
				yield(math.Float64bits(f(math.Abs(x), previous)))
				yield(math.Float64bits(f(x, previous)))
				previous = x
			})
		}))
	}
	for name, f := range map[string]func(float32) float32{
		"Exp32": Exp32, "Log32": Log32, "RoundBF16": RoundBF16, "RoundF16": RoundF16,
		"F16ToF32": func(x float32) float32 { return F16ToF32(uint16(math.Float32bits(x) >> 16)) },
		"GumbelFromUniform": func(x float32) float32 {
			return GumbelFromUniform(UniformFromBits(math.Float32bits(x) * 0x9e37_79b9))
		},
	} {
		check(name, uint64(math.Float32bits(f(0.7))), sweepSum(func(yield func(uint64)) {
			sweepArguments(func(x float64) {
				if x == x { // converting a NaN may change its payload
					yield(uint64(math.Float32bits(f(float32(x)))))
				}
				yield(uint64(math.Float32bits(f(math.Float32frombits(uint32(math.Float64bits(x)))))))
			})
		}))
	}
	require.Len(t, recorded, len(functions)+2+6)
}
