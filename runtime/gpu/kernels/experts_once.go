package kernels

import "fmt"

// Once says how the first product of Experts divides its work if it reads an expert's weights once for all tokens. A
// step is 16 rows of weights; experts_once.metal has the details.
type Once struct {
	// Groups is the number of threadgroups. They divide the steps of all experts among each other. Room is the number
	// of threadgroups that one multiprocessor must have registers for.
	Groups, Room int
	// Depth is the number of steps whose weights are read ahead: 1 to 4.
	Depth int
}

const (
	// onceColumns is the number of columns that a simdgroup multiplies.
	onceColumns = 256
	// onceMemory is the largest threadgroup memory in bytes that the kernel declares.
	onceMemory = 46 << 10
	// leastOnce is the number of tokens from which on the kernel is worthwhile. With fewer tokens the choice of
	// experts, which every threadgroup waits for, takes too large a part of the time. mostOnce is the largest number of
	// tokens that the kernel can multiply.
	leastOnce, mostOnce = 5, 8
)

// OnceTunings returns the variants of the first product that read an expert's weights once for all of up to tokens
// tokens. It returns those that are worth measuring on a machine, the default first; there may be none. These variants
// round x to bf16.
func (e Experts) OnceTunings(m Machine, tokens int) (out []Tuning) {
	if tokens < leastOnce || m.Cores == 0 || m.Target != CUDA && !m.Lanes {
		return nil
	}
	for _, w := range []Once{{Room: 2, Depth: 1}, {Room: 2, Depth: 2}, {Room: 1, Depth: 3}} {
		w.Groups = m.Cores * w.Room
		if t := (Tuning{Once: w}); e.checkOnce(t.Once, tokens) == nil {
			out = append(out, t)
		}
	}
	return out
}

// checkOnce returns an error where there is no kernel that reads the weights once.
func (e Experts) checkOnce(w Once, tokens int) error {
	wide := e.Hidden / onceColumns
	kept, lists := 2*w.Depth*wide*128*4, min(wide, 8)*8*(e.Count/4*4+36)
	used := max(kept, lists) + mostOnce*(e.Count+4*wide+4+e.Top*20)
	switch {
	case e.Router.Top == 0:
		return fmt.Errorf("tuning: weights read once for experts that are given, want a kernel that chooses them")
	case tokens < 1 || tokens > mostOnce:
		return fmt.Errorf("tuning: weights read once for %d tokens, want 1 to %d", tokens, mostOnce)
	case e.Bits != 4 || e.Group != 64 || e.F32 || e.Floats:
		return fmt.Errorf("tuning: weights of %s read once, want codes of 4 bits in groups of 64 with scales in bf16",
			e.Format)
	case e.Hidden%onceColumns != 0 || e.Hidden > 16*onceColumns || e.Inner%8 != 0 || e.Top > 32:
		return fmt.Errorf("tuning: weights of %d columns and %d rows read once, want a multiple of %d up to %d, and of 8",
			e.Hidden, e.Inner, onceColumns, 16*onceColumns)
	case w.Depth < 1 || w.Depth > 4 || w.Groups < 1 || w.Room < 1:
		return fmt.Errorf("tuning: %d steps ahead of %d threadgroups, room for %d, want 1 to 4 and at least 1", w.Depth,
			w.Groups, w.Room)
	case used > onceMemory:
		return fmt.Errorf("tuning: %d bytes of threadgroup memory, there are %d", used, onceMemory)
	}
	return e.check()
}

// launchOnce returns the dispatch of the first product that reads weights once for all tokens.
func (e Experts) launchOnce(t Tuning, tokens int) (Launch, error) {
	w := t.Once
	if err := e.checkOnce(w, tokens); err != nil {
		return Launch{}, fmt.Errorf("once_choose %d×%d×%d: %w", e.Count, e.Inner, e.Hidden, err)
	}
	l := Launch{File: "experts_once", Kernel: "once_choose", Groups: [3]int{w.Groups, 1, 1},
		Threads: [3]int{e.Hidden / onceColumns * 32, 1, 1}}
	l.Defines = append(e.up().defines(), define("EXPERTS_ACTIVATION", int(e.Activation), "ONCE_GROUPS", w.Groups,
		"ONCE_ROOM", w.Room, "ONCE_DEPTH", w.Depth)...)
	l.Defines = append(append(l.Defines, e.defines(e.Inner, tokens)...), e.Router.defines()...)
	l.Case = func(s Sizes) *Case { return e.onceCase(s, tokens, l) }
	return l, nil
}
