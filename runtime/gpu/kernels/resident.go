package kernels

import "fmt"

// The least threadgroup memory, in bytes, that a launch with resident strips asks for. A multiprocessor of Hopper has
// 228 KB. With largeResident, for threadgroups with several strips, it has no room for a second threadgroup of the same
// kernel. With smallResident, for those with one strip, it has room for one beside such a large one.
const (
	largeResident = 116 << 10
	smallResident = 88 << 10
)

// leastResident returns the size in bytes of a product's codes from which on resident weights are worth measuring on a
// machine. Smaller products gain little.
func leastResident(m Machine) int { return m.TransferLeast / 16 }

// checkResident returns an error where a product that could be streamed cannot have resident weights.
func (s streamed) checkResident() error {
	switch {
	case s.Sum != nil:
		return fmt.Errorf("tuning: resident weights with a vector that is a sum")
	case s.Columns != s.K || s.Strip != 16:
		return fmt.Errorf("tuning: resident strips of %d rows of %d columns, want 16 of %d", s.Strip, s.Columns, s.K)
	case s.Stages < ceil(s.most(), s.strip()):
		return fmt.Errorf("tuning: %d resident strips of %d rows, there are %d rows", s.Stages, s.strip(), s.most())
	case s.piece == 0 && s.unit() > 1:
		return fmt.Errorf("tuning: resident rows of %d columns, whose scales do not take a multiple of 16 bytes", s.K)
	case s.all()%s.unit() != 0:
		return fmt.Errorf("tuning: %d resident rows, the scales of %d take a multiple of 16 bytes", s.all(), s.unit())
	}
	return nil
}

// residentMemory returns RESIDENT_MEMORY of prelude/resident.h, in bytes.
func (s streamed) residentMemory() int {
	row := s.K*s.Bits/8 + s.affine()
	if s.piece == 0 {
		row += s.between()
	}
	return ceil(s.working(), 128)*128 + s.Stages*16*row
}

// asked returns the threadgroup memory that the launch asks for, in bytes.
func (s streamed) asked() int {
	switch {
	case !s.Resident:
		return s.memory()
	case s.Stages > 1:
		return max(s.memory(), largeResident)
	}
	return max(s.memory(), smallResident)
}

// residentRoom returns the number of threadgroups for which a multiprocessor must have registers: 24 simdgroups, such
// as 2 threadgroups of twelve.
func (s streamed) residentRoom() int { return max(1, 24*32/s.threads()) }

// residentSimdgroups are the numbers of simdgroups worth measuring, the best first.
var residentSimdgroups = []int{8, 7, 6, 5, 4, 16}

// residentTunings returns the variants with resident weights worth measuring on a machine.
func (s streamed) residentTunings(m Machine) (out []Tuning) {
	if !s.worth(m, leastResident(m)) {
		return nil
	}
	s.Groups, s.Strip, s.Columns, s.Resident = min(m.Cores, s.all()/s.unit()), 16, s.K, true
	s.Stages = ceil(s.most(), s.strip())
	for _, s.Simdgroups = range residentSimdgroups {
		if s.check() == nil && s.fits(m, mostResident, 0) && len(out) < 2 {
			out = append(out, Tuning{Stream: s.Stream})
		}
	}
	return out
}

// fits reports whether the threadgroup memory is at most most bytes, and whether the machine has more bytes beside what
// the launch asks for.
func (s streamed) fits(m Machine, most, more int) bool {
	return s.memory() <= most && s.asked()+more <= m.TransferMemory
}

// mostResident is the largest threadgroup memory, in bytes, beside which a kernel with one strip still has room on a
// multiprocessor.
const mostResident = 228<<10 - smallResident - 4<<10
