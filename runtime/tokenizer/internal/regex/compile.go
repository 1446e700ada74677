package regex

import "fmt"

// A Regex is a compiled pattern. It may be used concurrently.
type Regex struct {
	program []instruction
	sets    []set
	branch  int // how many branch instructions there are

	lookBranches int // of the look-around that has the most
}

type op uint8

const (
	opSet    op = iota // one character of sets[arg]
	opBranch           // go on at x, and if that fails at y; arg numbers the branches
	opJump             // go on at x
	opAssert           // an anchor
	opLook             // a look-around: its program begins at the next instruction and ends with opMatch, x follows
	opMatch
)

type instruction struct {
	op      op
	anchor  anchor
	negated bool
	behind  bool
	arg     int // of a look-behind: how many characters to go back
	x, y    int
}

// Compile parses a pattern of the supported part of Oniguruma's Ruby syntax. Every error is a *SyntaxError.
func Compile(pattern string) (*Regex, error) {
	n, err := parse(pattern)
	if err != nil {
		return nil, err
	}
	re := &Regex{}
	if !re.emit(n) || re.lookBranches > maxLookBranches {
		return nil, &SyntaxError{pattern, 0, fmt.Sprintf(
			"it is too large: it needs more than %d instructions, or %d alternatives in a look-around",
			maxProgram, maxLookBranches)}
	}
	re.add(instruction{op: opMatch})
	return re, nil
}

func (re *Regex) add(in instruction) int {
	re.program = append(re.program, in)
	return len(re.program) - 1
}

func (re *Regex) addBranch() int {
	re.branch++
	return re.add(instruction{op: opBranch, arg: re.branch - 1})
}

// aim sets where a branch goes: to next first, or last if it is lazy.
func (re *Regex) aim(branch, next, exit int, lazy bool) {
	if lazy {
		next, exit = exit, next
	}
	re.program[branch].x, re.program[branch].y = next, exit
}

// emit appends the program of a node. It says false when the program is too large.
func (re *Regex) emit(n *node) bool {
	if len(re.program) > maxProgram {
		return false
	}
	switch n.kind {
	case character:
		re.sets = append(re.sets, n.class.compile())
		re.add(instruction{op: opSet, arg: len(re.sets) - 1})
	case sequence:
		for _, s := range n.subs {
			if !re.emit(s) {
				return false
			}
		}
	case alternation:
		var jumps []int
		for i, s := range n.subs {
			if i == len(n.subs)-1 {
				if !re.emit(s) {
					return false
				}
				break
			}
			b := re.addBranch()
			if !re.emit(s) {
				return false
			}
			jumps = append(jumps, re.add(instruction{op: opJump}))
			re.aim(b, b+1, len(re.program), false)
		}
		for _, j := range jumps {
			re.program[j].x = len(re.program)
		}
	case repetition:
		return re.repeat(n)
	case lookAround:
		look := re.add(instruction{op: opLook, negated: n.negated, behind: n.behind, arg: n.min})
		before := re.branch
		if !re.emit(n.subs[0]) {
			return false
		}
		re.add(instruction{op: opMatch})
		re.program[look].x = len(re.program)
		re.lookBranches = max(re.lookBranches, re.branch-before)
	case assertion:
		re.add(instruction{op: opAssert, anchor: n.anchor, negated: n.negated})
	}
	return true
}

func (re *Regex) repeat(n *node) bool {
	body := n.subs[0]
	for range n.min {
		if !re.emit(body) {
			return false
		}
	}
	if n.max < 0 {
		b := re.addBranch()
		if !re.emit(body) {
			return false
		}
		re.add(instruction{op: opJump, x: b})
		re.aim(b, b+1, len(re.program), n.lazy)
		return true
	}
	var branches []int
	for range n.max - n.min {
		branches = append(branches, re.addBranch())
		if !re.emit(body) {
			return false
		}
	}
	for _, b := range branches {
		re.aim(b, b+1, len(re.program), n.lazy)
	}
	return true
}
