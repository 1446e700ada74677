package kernels

import "fmt"

// What a threadgroup asks for at least whose strips are held, in bytes, so that a multiprocessor of Hopper, with 228
// KB, has room for no second one of the same kernel where it has several strips, and beside such a one for one of a
// kernel that has one.
const (
	largeResident = 116 << 10
	smallResident = 88 << 10
)

// leastHeld is the size of codes from which on holding them is worth measuring on a machine: of a smaller product
// little is waited for.
func leastResident(m Machine) int { return m.TransferLeast / 16 }

// checkHeld says why there is no such kernel, of a product that can be streamed else.
func (s streamed) checkResident() error {
	switch {
	case s.Sum != nil:
		return fmt.Errorf("tuning: weights that are held and a vector that is a sum")
	case s.Columns != s.K || s.Strip != 16:
		return fmt.Errorf("tuning: strips of %d rows of %d columns are held, want 16 of %d", s.Strip, s.Columns, s.K)
	case s.Stages < ceil(s.most(), s.strip()):
		return fmt.Errorf("tuning: %d strips of %d rows are held, there are %d rows", s.Stages, s.strip(), s.most())
	case s.piece == 0 && s.unit() > 1:
		return fmt.Errorf("tuning: rows of %d columns are held, whose scales do not take a multiple of 16 bytes", s.K)
	case s.all()%s.unit() != 0:
		return fmt.Errorf("tuning: %d rows are held, the scales of %d take a multiple of 16 bytes", s.all(), s.unit())
	}
	return nil
}

// heldMemory is what RESIDENT_MEMORY in prelude/resident.h is.
func (s streamed) residentMemory() int {
	row := s.K*s.Bits/8 + s.affine()
	if s.piece == 0 {
		row += s.between()
	}
	return ceil(s.working(), 128)*128 + s.Stages*16*row
}

// asked is the memory that the launch asks for.
func (s streamed) asked() int {
	switch {
	case !s.Resident:
		return s.memory()
	case s.Stages > 1:
		return max(s.memory(), largeResident)
	}
	return max(s.memory(), smallResident)
}

// heldRoom is the number of threadgroups that are to have registers on a multiprocessor: 2 of twelve simdgroups.
func (s streamed) residentRoom() int { return max(1, 24*32/s.threads()) }

// heldSimdgroups are the numbers of simdgroups worth measuring, the best first.
var residentSimdgroups = []int{8, 7, 6, 5, 4, 16}

// holds are the ways worth measuring to hold a product's strips on a machine.
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

// fits reports whether what is held takes at most so much memory, and what is asked for is there on a machine, with
// more beside it.
func (s streamed) fits(m Machine, most, more int) bool {
	return s.memory() <= most && s.asked()+more <= m.TransferMemory
}

// mostHeld is the memory beside which a kernel of one strip has room.
const mostResident = 228<<10 - smallResident - 4<<10
