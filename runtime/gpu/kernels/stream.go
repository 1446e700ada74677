package kernels

import (
	"cmp"
	"fmt"
	"slices"
)

// Stream says how a product of one vector is divided if its weights are copied to threadgroup memory asynchronously:
// through a ring (prelude/ring.h), or all of them at once (prelude/resident.h). The zero Stream is a product that is
// not streamed.
type Stream struct {
	// Groups is the number of threadgroups that the rows are spread over: one for each multiprocessor.
	Groups int
	// Simdgroups is the number of simdgroups that multiply. With a ring, one more simdgroup copies. With resident
	// weights the copying simdgroups, at least one, make the total a multiple of four.
	Simdgroups int
	// Strip is the number of rows of a stage, of all weights together: a multiple of 16.
	Strip int
	// Columns is the number of columns of a stage: a divisor of all columns, and a multiple of 128 times the
	// simdgroups.
	Columns int
	// Stages is the number of stages of the ring, at least 2 unless there is only one strip; or the number of resident
	// strips.
	Stages int
	// Apart says that rows are copied one by one, to addresses in different banks of memory. Rows are also copied so if
	// a stage does not contain whole rows.
	Apart bool
	// Resident says that every strip of a threadgroup has a stage of its own.
	Resident bool
}

// maxKept is the largest number of rows whose sums a threadgroup stores before it finishes them.
const maxKept = 192

// streamed is a product that is streamed.
type streamed struct {
	Vectors
	Stream
	planes int
	// rows are the numbers of rows of the weights; of a pair, those of one weight.
	rows []int
	// piece is set where a row consists of the rows of several weights: the number of columns of one of them. It is 0
	// for a single weight.
	piece int
}

// strip returns the number of rows of each weight in a stage.
func (s streamed) strip() int { return s.Strip / s.planes }

// unit returns the smallest number of rows whose scales take a multiple of 16 bytes.
func (s streamed) unit() int {
	n := 1
	for n < 16 && s.ScaleBytes(cmp.Or(s.piece, s.K))*n%16 != 0 {
		n *= 2
	}
	return n
}

// room returns the number of threadgroups, 1 or 2, that a multiprocessor has memory for. It must have registers for as
// many.
func (s streamed) room() int {
	if s.Resident {
		return s.residentRoom()
	}
	if s.memory() <= halfMemory && s.Simdgroups < 12 {
		return 2
	}
	return 1
}

// covered returns the number of rows that the first groups threadgroups compute.
func (s streamed) covered(groups int) int {
	unit := s.unit()
	return min(ceil(s.all(), unit)*groups/s.Groups*unit, s.all())
}

// most returns the largest number of rows of a threadgroup.
func (s streamed) most() int { return ceil(ceil(s.all(), s.unit()), s.Groups) * s.unit() }

func (s streamed) all() int {
	n := 0
	for _, rows := range s.rows {
		n += rows
	}
	return n
}

// stage returns the number of bytes of a stage.
func (s streamed) stage() int {
	pitch := s.Columns * s.Bits / 8
	if s.Columns != s.K || s.Apart {
		pitch += s.between()
	}
	return s.Strip * pitch
}

// between returns STREAM_BETWEEN of prelude/stream.h: the padding in bytes between rows, which puts them in different
// banks.
func (s streamed) between() int {
	if s.Bits == 4 {
		return 64
	}
	return 16
}

// affine returns the number of bytes of a row's scales and biases.
func (s streamed) affine() int {
	if s.Symmetric {
		return s.ScaleBytes(s.K)
	}
	return 2 * s.ScaleBytes(s.K)
}

// shelves returns the number of bytes of the scales and biases of all strips that can be in the ring at once.
func (s streamed) shelves() int {
	segments := s.K / s.Columns
	return s.Strip * s.affine() * (1 + (s.Stages+segments-2)/segments)
}

// working returns the number of bytes of the vector's digits and of the sums.
func (s streamed) working() int {
	return s.K*3 + s.K/8 + s.K/16 + 32 + s.planes*s.Simdgroups*s.kept()*4
}

// kept returns the number of rows whose sums are stored before they are finished.
func (s streamed) kept() int {
	if s.Resident {
		return s.Stages * s.strip()
	}
	return min(ceil(s.most(), s.Strip)*s.Strip, maxKept)
}

// threads returns the number of threads of a threadgroup; with resident weights it is 32 times RESIDENT_SIMDS of
// prelude/resident.h.
func (s streamed) threads() int {
	if s.Resident {
		return ceil(s.Simdgroups+1, 4) * 4 * 32
	}
	return (s.Simdgroups + 1) * 32
}

// memory returns STREAM_MEMORY of prelude/stream.h, in bytes.
func (s streamed) memory() int {
	if s.Resident {
		return s.residentMemory()
	}
	return s.Stages*s.stage() + s.shelves() + s.working()
}

// check returns an error where there is no such kernel.
func (s streamed) check() error {
	if err := s.Vectors.check(s.K); err != nil {
		return err
	}
	switch {
	case s.M != 1:
		return fmt.Errorf("%d vectors, one can be streamed to", s.M)
	case s.Bits > 8 || s.Group%64 != 0:
		return fmt.Errorf("weights %s, want 4 or 8 bits in groups of 64 or 128", s.Format)
	case s.K%256 != 0:
		return fmt.Errorf("%d columns, want a multiple of 256", s.K)
	case s.Simdgroups < 1 || s.Simdgroups > 31 || s.Columns < 1 || s.Columns%(128*s.Simdgroups) != 0 ||
		s.K%s.Columns != 0:
		return fmt.Errorf("tuning: stages of %d of %d columns do not suit %d simdgroups", s.Columns, s.K, s.Simdgroups)
	case s.Groups < 1 || s.Groups*s.unit() > s.all() || s.Stages < 1:
		return fmt.Errorf("tuning: %d threadgroups with %d stages for %d rows", s.Groups, s.Stages, s.all())
	case s.Resident:
		return s.checkResident()
	case s.Sum != nil && s.Columns != s.K:
		return fmt.Errorf("tuning: stages of %d of %d columns, want all for a vector that is a sum", s.Columns, s.K)
	case s.Strip < 16 || s.Strip%16 != 0:
		return fmt.Errorf("tuning: strips of %d rows, want a multiple of 16", s.Strip)
	case s.Stages < 2 && (s.most() > s.strip() || s.Columns != s.K || len(s.rows) > 1):
		return fmt.Errorf("tuning: %d threadgroups with %d stages for %d rows", s.Groups, s.Stages, s.all())
	}
	// Copies begin and end at multiples of 16 bytes.
	if slices.ContainsFunc(append([]int{s.strip()}, s.rows...), func(n int) bool { return n%s.unit() != 0 }) {
		return fmt.Errorf("%v rows of %d columns in strips of %d: scales do not begin at multiples of 16 bytes", s.rows,
			s.K, s.Strip)
	}
	return nil
}

// launch returns the dispatch, and the largest number of rows of a threadgroup.
func (s streamed) launch() (l Launch, block int, err error) {
	l = Launch{File: "stream", Kernel: "stream"}
	if err := s.check(); err != nil {
		return l, 0, err
	}
	l.Defines = append(s.defines(), define("STREAM_GRID", s.Groups, "STREAM_UNIT", s.unit(), "STREAM_ROOM", s.room(),
		"STREAM_SIMDS", s.Simdgroups, "STREAM_STRIP", s.Strip, "STREAM_COLUMNS", s.Columns, "STREAM_STAGES", s.Stages,
		"STREAM_APART", s.Apart,
		"STREAM_FLUSH", s.kept(), "STREAM_PLANES", s.planes, "STREAM_BYTES", s.memory(),
		"STREAM_RESIDENT", s.Resident)...)
	if s.Sum != nil {
		sum := 1
		if s.Sum.Scaled {
			sum = 2
		}
		l.Defines = append(l.Defines, define("MATVEC_SUM", sum, "MATVEC_SUM_EPS", s.Sum.Eps,
			"MATVEC_SUM_KEPT", s.Sum.Kept)...)
	}
	l.Groups, l.Threads, l.Memory, l.covers = [3]int{s.Groups, 1, 1}, [3]int{s.threads(), 1, 1}, s.asked(), s.covered
	return l, s.most(), nil
}

// halfMemory is the threadgroup memory, in bytes, beside which a threadgroup of the next kernel has room on a
// multiprocessor of Hopper.
const halfMemory = 110 << 10

// worth reports whether a machine can run streamed products, and whether this one has at least least bytes of codes.
func (s streamed) worth(m Machine, least int) bool {
	return s.Quantized() && m.TransferMemory > 0 && m.Cores > 0 && s.all()*s.planes*s.K*s.Bits/8 >= least
}

// streams returns the variants with a ring worth measuring on a machine. The default comes first; it was found with the
// command bench on an H100.
func (s streamed) streams(m Machine) (out []Tuning) {
	if !s.worth(m, m.TransferLeast) {
		return nil
	}
	s.Groups = min(m.Cores, s.all()/s.unit())
	add := func(most int) {
		for s.Stages = 5; s.Stages >= 2; s.Stages-- {
			if s.check() == nil && s.memory() <= most {
				if t := (Tuning{Stream: s.Stream}); !slices.Contains(out, t) {
					out = append(out, t)
				}
				return
			}
		}
	}
	simdgroups := []int{8, 7, 14, 6, 4, 16, 9, 12, 5, 3, 2, 1}
	// Products with short rows are faster with rows copied one by one, those with long rows with few copies.
	apart := []bool{s.K <= 4096 && s.most() <= maxKept, false}
	for _, s.Strip = range []int{16, 32} {
		for _, s.Apart = range slices.Compact(apart) {
			for _, s.Columns = range s.columns() {
				if s.Apart && s.Columns < s.K {
					continue
				}
				fit := 0
				for _, n := range simdgroups {
					if s.Columns%(128*n) != 0 || fit == 3 {
						continue
					}
					fit++
					s.Simdgroups = n
					if s.K > 4096 {
						add(m.TransferMemory)
					}
					add(min(halfMemory, m.TransferMemory))
				}
			}
		}
	}
	return out
}

// columns returns two lengths of stages, the better one first: 2048 columns, or whole rows, or the longest parts of
// rows that leave room for several stages.
func (s streamed) columns() (out []int) {
	if s.K%2048 == 0 {
		out = append(out, 2048)
	}
	for parts := 1; parts <= s.K/128 && len(out) < 2; parts++ {
		if n := s.K / parts; s.K%(128*parts) == 0 && n*s.Bits <= 5376*4 && n != 2048 {
			out = append(out, n)
		}
	}
	return out
}
