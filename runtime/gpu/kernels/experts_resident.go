package kernels

import (
	"errors"
	"fmt"
	"slices"
)

// residentUp returns the first product of a token with weights resident in threadgroup memory. Every threadgroup has
// the same number of rows of each part, its slots; the last one of a part may be empty.
func (e Experts) residentUp(s Stream) streamed {
	return streamed{Vectors: e.up(), Stream: s, planes: 2, rows: []int{s.Groups * e.Parts() * e.slots(s)}}
}

// slots returns the number of slots of a threadgroup for the rows of a part.
func (e Experts) slots(s Stream) int { return ceil(e.Inner, max(1, s.Groups)) }

// residentDown returns the second product of a token with weights resident in threadgroup memory. The rows of its
// parts are treated as one long row.
func (e Experts) residentDown(s Stream) streamed {
	return streamed{Vectors: e.down(), Stream: s, planes: 1, rows: []int{e.Hidden}, piece: e.Inner}
}

// checkResident returns an error where there are no kernels with resident weights: for experts that another kernel has
// chosen.
func (e Experts) checkResident() error {
	switch {
	case e.Router.Top == 0:
		return errors.New("tuning: resident weights with experts that are given, want a kernel that chooses them")
	}
	return e.check()
}

// launchResident returns the dispatch of a kernel with resident weights, whose matrices have rows rows and columns
// columns. wrong is an error that the caller has found already, or nil.
func (e Experts) launchResident(kernel string, s streamed, tokens, rows, columns int, wrong error,
	more ...any) (l Launch, err error) {
	if err = e.checkResident(); err == nil {
		err = wrong
	}
	if err == nil {
		l, _, err = s.launch()
	}
	if err != nil {
		return Launch{}, fmt.Errorf("%s %d×%d×%d: %w", kernel, e.Count, rows, columns, err)
	}
	l.File, l.Kernel = "stream_experts", kernel
	l.Defines = slices.Concat(l.Defines, define("MATVEC_N0", s.rows[0]), define(more...),
		e.defines(rows, tokens), e.Router.defines())
	if l.Groups[1] = tokens; tokens > 1 { // a multiprocessor has threadgroups of several tokens
		l.Memory = s.memory()
	}
	return l, nil
}

func (e Experts) launchResidentUp(t Tuning, tokens int) (Launch, error) {
	s, slots := e.residentUp(t.Stream), e.slots(t.Stream)
	var wrong error
	switch {
	case t.Stream.Groups < 1 || t.Stream.Groups > e.Inner:
		wrong = fmt.Errorf("tuning: %d threadgroups for %d rows of a part", t.Stream.Groups, e.Inner)
	case 8%slots != 0 || !t.Stream.Resident:
		wrong = fmt.Errorf("tuning: %d rows of a part in a threadgroup, want 1, 2, 4 or 8, with resident weights", slots)
	}
	l, err := e.launchResident("stream_choose", s, tokens, e.Inner, e.Hidden, wrong, "STREAM_LATE", true,
		"EXPERTS_ACTIVATION", int(e.Activation), "EXPERTS_SLOTS", slots)
	if err != nil {
		return l, err
	}
	l.covers = func(groups int) int { return groups * e.Inner / s.Groups }
	l.Case = func(s Sizes) *Case { return e.upCase(l, 0, s) }
	return l, nil
}

func (e Experts) launchResidentDown(t Tuning, tokens int) (Launch, error) {
	s := e.residentDown(t.Stream)
	var wrong error
	if t.Stream.Simdgroups != e.Parts() || t.Stream.Stages != 1 || !t.Stream.Resident || !e.Shared {
		wrong = fmt.Errorf("tuning: %d simdgroups with %d strips, want one resident strip and a simdgroup for "+
			"each of %d parts, one of them shared", t.Stream.Simdgroups, t.Stream.Stages, e.Parts())
	}
	l, err := e.launchResident("stream_join", s, tokens, e.Hidden, e.Inner, wrong, "STREAM_PIECE", e.Inner,
		"STREAM_SCORED", true, "EXPERTS_RESIDUAL", e.Residual)
	if err != nil {
		return l, err
	}
	l.Case = func(s Sizes) *Case { return e.downCase(l, 0, s) }
	return l, nil
}

// choiceMemory is the size in bytes of the lists for choosing experts, which the first launch needs in addition.
const choiceMemory = 8 * (mostChosen + 36)

// residentTunings returns the variants with resident weights on a machine; none where there is not enough memory.
func (e Experts) residentTunings(m Machine) (up, down []Tuning) {
	if m.TransferMemory == 0 || m.Cores == 0 || !e.Shared || 3*e.Parts()*e.Inner*e.Hidden*e.Bits/8 < leastResident(m) {
		return nil, nil
	}
	lift := Tuning{Stream: Stream{Groups: min(m.Cores, e.Inner), Strip: 16, Columns: e.Hidden, Resident: true}}
	lift.Stream.Stages = ceil(e.Parts()*e.slots(lift.Stream), 8)
	for _, lift.Stream.Simdgroups = range residentSimdgroups {
		if _, err := e.launchResidentUp(lift, 1); err == nil &&
			e.residentUp(lift.Stream).fits(m, mostResident, choiceMemory) {
			up = append(up, lift)
			break
		}
	}
	fall := Tuning{Stream: Stream{Groups: min(m.Cores, e.Hidden/16), Simdgroups: e.Parts(), Strip: 16,
		Columns: e.Parts() * e.Inner, Stages: 1, Resident: true}}
	if _, err := e.launchResidentDown(fall, 1); err == nil && e.residentDown(fall.Stream).fits(m, smallResident, 0) {
		down = append(down, fall)
	}
	return up, down
}
