package numeric

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// format16 describes a 16-bit float format for an independent model of its
// values: the definition of IEEE 754 section 3.4, evaluated in float64.
type format16 struct {
	name              string
	mantissaBits      int
	bias              int
	widen             func(uint16) float32
	narrow            func(float32) uint16
	round             func(float32) float32
	widenSlice        func([]float32, []byte)
	narrowSlice       func([]byte, []float32)
	roundSlice        func(dst, src []float32)
	keepsSignallingIn bool // widening leaves signalling NaNs as they are
}

var formats16 = []format16{
	{"bf16", 7, 127, BF16ToF32, F32ToBF16, RoundBF16, BF16SliceToF32, F32SliceToBF16, RoundBF16Slice, true},
	{"f16", 10, 15, F16ToF32, F32ToF16, RoundF16, F16SliceToF32, F32SliceToF16, RoundF16Slice, false},
}

func (f format16) exponentMask() int { return 1<<(15-f.mantissaBits) - 1 }
func (f format16) infinity() uint16  { return uint16(f.exponentMask() << f.mantissaBits) }
func (f format16) quietBit() uint16  { return 1 << (f.mantissaBits - 1) }

// value is the number that the finite pattern h stands for.
func (f format16) value(h uint16) float64 {
	exponent := int(h&0x7fff) >> f.mantissaBits
	fraction := int(h) & (1<<f.mantissaBits - 1)
	if exponent == 0 {
		exponent = 1
	} else {
		fraction |= 1 << f.mantissaBits
	}
	v := math.Ldexp(float64(fraction), exponent-f.bias-f.mantissaBits)
	if h&0x8000 != 0 {
		return math.Copysign(v, -1)
	}
	return v
}

func TestWidenEveryPattern(t *testing.T) {
	for _, f := range formats16 {
		t.Run(f.name, func(t *testing.T) {
			for i := range 1 << 16 {
				h := uint16(i)
				got := f.widen(h)
				sign := uint32(h&0x8000) << 16
				switch magnitude := h & 0x7fff; {
				case magnitude < f.infinity():
					require.Equal(t, math.Float32bits(float32(f.value(h))), math.Float32bits(got), "pattern %#04x", h)
					require.Equal(t, h, f.narrow(got), "round trip of %#04x", h)
				case magnitude == f.infinity():
					require.Equal(t, sign|0x7f80_0000, math.Float32bits(got))
					require.Equal(t, h, f.narrow(got))
				default:
					payload := uint32(h&^(0x8000|f.infinity())) << (23 - f.mantissaBits)
					want := sign | 0x7f80_0000 | payload
					if !f.keepsSignallingIn {
						want |= 0x0040_0000
					}
					require.Equal(t, want, math.Float32bits(got), "NaN %#04x", h)
					require.Equal(t, h|f.quietBit(), f.narrow(got), "round trip of NaN %#04x", h)
				}
			}
		})
	}
}

// TestNarrowAroundEveryPattern takes each pair of neighbouring values and checks
// the float32 at, just below and just above their midpoint, which are all the
// places where a rounding can go wrong.
func TestNarrowAroundEveryPattern(t *testing.T) {
	for _, f := range formats16 {
		t.Run(f.name, func(t *testing.T) {
			for low := uint16(0); low < f.infinity(); low++ {
				high := low + 1
				top := f.value(high)
				if high == f.infinity() {
					// Overflow happens where the next binade's first number would round.
					top = math.Ldexp(1, f.exponentMask()-f.bias)
				}
				exact := (f.value(low) + top) / 2
				mid := float32(exact)
				require.Equal(t, exact, float64(mid), "a midpoint is a float32")
				even := low
				if low&1 == 1 {
					even = high
				}
				below := math.Float32frombits(math.Float32bits(mid) - 1)
				above := math.Float32frombits(math.Float32bits(mid) + 1)
				for _, c := range []struct {
					x    float32
					want uint16
				}{{below, low}, {mid, even}, {above, high}} {
					require.Equal(t, c.want, f.narrow(c.x), "%g between %#04x and %#04x", c.x, low, high)
					require.Equal(t, c.want|0x8000, f.narrow(-c.x), "%g", -c.x)
					require.Equal(t, math.Float32bits(f.widen(c.want)), math.Float32bits(f.round(c.x)), "%g", c.x)
				}
			}
		})
	}
}

func TestNarrowSpecials(t *testing.T) {
	cases := []struct {
		name      string
		bits      uint32
		bf16, f16 uint16
	}{
		{"+0", 0x0000_0000, 0x0000, 0x0000},
		{"-0", 0x8000_0000, 0x8000, 0x8000},
		{"+inf", 0x7f80_0000, 0x7f80, 0x7c00},
		{"-inf", 0xff80_0000, 0xff80, 0xfc00},
		{"quiet NaN", 0x7fc0_0000, 0x7fc0, 0x7e00},
		{"negative NaN", 0xffc0_0000, 0xffc0, 0xfe00},
		{"signalling NaN, payload lost", 0x7f80_0001, 0x7fc0, 0x7e00},
		{"NaN of all ones", 0xffff_ffff, 0xffff, 0xffff},
		{"largest float32", 0x7f7f_ffff, 0x7f80, 0x7c00},
		{"least float32", 0x0000_0001, 0x0000, 0x0000},
		{"65504", 0x477f_e000, 0x4780, 0x7bff},
		{"just below 65520", 0x477f_efff, 0x4780, 0x7bff},
		{"65520", 0x477f_f000, 0x4780, 0x7c00},
		{"2^-25, tie to zero", 0x3300_0000, 0x3300, 0x0000},
		{"above 2^-25", 0x3300_0001, 0x3300, 0x0001},
		{"2^-14 less an ulp", 0x387f_ffff, 0x3880, 0x0400},
		{"1/3", 0x3eaa_aaab, 0x3eab, 0x3555},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			x := math.Float32frombits(c.bits)
			require.Equal(t, c.bf16, F32ToBF16(x))
			require.Equal(t, c.f16, F32ToF16(x))
		})
	}
}

func TestSlicesAgreeWithScalars(t *testing.T) {
	for _, f := range formats16 {
		t.Run(f.name, func(t *testing.T) {
			for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 1 << 16} {
				src := make([]byte, 2*n+1) // one byte too many is not touched
				for i := range n {
					binary.LittleEndian.PutUint16(src[2*i:], uint16(i*0x9e37))
				}
				wide := make([]float32, n)
				f.widenSlice(wide, src)
				narrow := make([]byte, 2*n+1)
				narrow[2*n] = 0xa5
				f.narrowSlice(narrow, wide)
				require.Equal(t, byte(0xa5), narrow[2*n])
				for i, x := range wide {
					require.Equal(t, math.Float32bits(f.widen(uint16(i*0x9e37))), math.Float32bits(x))
					require.Equal(t, f.narrow(x), binary.LittleEndian.Uint16(narrow[2*i:]))
				}
				noisy := make([]float32, n)
				for i := range noisy {
					noisy[i] = math.Float32frombits(uint32(i) * 0x9e37_79b9)
				}
				rounded := make([]float32, n)
				f.roundSlice(rounded, noisy)
				for i, x := range noisy {
					require.Equal(t, math.Float32bits(f.round(x)), math.Float32bits(rounded[i]))
				}
			}
		})
	}
}

func TestSlicesRefuseShortBuffers(t *testing.T) {
	for _, f := range formats16 {
		require.Panics(t, func() { f.widenSlice(make([]float32, 2), make([]byte, 3)) })
		require.Panics(t, func() { f.narrowSlice(make([]byte, 3), make([]float32, 2)) })
		require.Panics(t, func() { f.roundSlice(make([]float32, 1), make([]float32, 2)) })
	}
	require.Panics(t, func() { F32SliceFromBytes(make([]float32, 2), make([]byte, 7)) })
	require.Panics(t, func() { F32SliceToBytes(make([]byte, 7), make([]float32, 2)) })
}

func TestFloat32Bytes(t *testing.T) {
	src := []byte{0, 0, 0x80, 0x3f, 1, 0, 0xa0, 0xff}
	dst := make([]float32, 2)
	F32SliceFromBytes(dst, src)
	require.Equal(t, float32(1), dst[0])
	require.Equal(t, uint32(0xffa0_0001), math.Float32bits(dst[1]))
	back := make([]byte, 8)
	F32SliceToBytes(back, dst)
	require.Equal(t, src, back)
}

func BenchmarkWiden(b *testing.B) {
	for _, f := range formats16 {
		b.Run(f.name, func(b *testing.B) {
			src, dst := make([]byte, 8192), make([]float32, 4096)
			for i := range dst {
				binary.LittleEndian.PutUint16(src[2*i:], f.narrow(float32(i)*0.37-700))
			}
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				f.widenSlice(dst, src)
			}
		})
	}
}

func BenchmarkNarrow(b *testing.B) {
	for _, f := range formats16 {
		b.Run(f.name, func(b *testing.B) {
			src, dst := make([]float32, 4096), make([]byte, 8192)
			for i := range src {
				src[i] = float32(i)*0.37 - 700
			}
			b.SetBytes(int64(len(dst)))
			for b.Loop() {
				f.narrowSlice(dst, src)
			}
		})
	}
}
