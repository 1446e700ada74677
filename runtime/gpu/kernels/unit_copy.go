package kernels

import "fmt"

// UnitCopy copies units of Unit bytes within a pool [Outer, Units, Unit], one copy after the other: the operation
// unit_copy.
type UnitCopy struct {
	Outer, Units, Unit int
}

// part returns the type of the piece of a unit that a thread copies, and its size in bytes.
func (u UnitCopy) part() (text string, size int) {
	switch {
	case u.Unit%16 == 0:
		return "uint4", 16
	case u.Unit%4 == 0:
		return "uint", 4
	}
	return "ushort", 2
}

// Launch returns the dispatch. It takes UnitCopyArguments: Pool, and Pairs i32 [copies, 2] of source and destination
// units; a pair with a negative number is skipped.
func (u UnitCopy) Launch() (Launch, error) {
	text, size := u.part()
	if u.Outer <= 0 || u.Units <= 0 || u.Unit <= 0 || u.Unit%2 != 0 {
		return Launch{},
			fmt.Errorf("copies of units of %d bytes in a pool [%d,%d], "+
				"want an even number of bytes and a pool that is not empty", u.Unit, u.Outer, u.Units)
	}
	return Launch{File: "unit_copy", Kernel: "unit_copy", Case: u.newCase,
		Defines: define("UNIT_PARTS", u.Unit/size, "UNIT_COUNT", u.Units, "UNIT_T", text),
		Groups:  [3]int{ceil(u.Unit/size, 256), u.Outer, 1}, Threads: [3]int{256, 1, 1}}, nil
}

// Reference computes what the launch does, on bytes.
func (u UnitCopy) Reference(pairs []int32, pool []byte) {
	for ; len(pairs) >= 2; pairs = pairs[2:] {
		if pairs[0] < 0 || pairs[1] < 0 {
			continue
		}
		for o := range u.Outer {
			at := func(unit int32) []byte { return pool[(o*u.Units+int(unit))*u.Unit:][:u.Unit] }
			copy(at(pairs[1]), at(pairs[0]))
		}
	}
}

// newCase returns a case with copies whose source is the destination of the copy before, and a skipped one. A self-test
// has a part of the pool.
func (u UnitCopy) newCase(s Sizes) *Case {
	c := newCase(s, 4, 0)
	l, _ := u.Launch()
	if !c.Whole {
		l.Groups[1], u.Outer, u.Units = 1, 1, min(u.Units, 8)
	}
	pairs := make([]int32, 2*c.Tokens)
	for i := range c.Tokens {
		from, to := int32(i*2%u.Units), int32((i*2+2)%u.Units) // the source is the destination of the copy before
		switch {
		case i%4 == 2:
			from = -1
		case i%4 == 3:
			from, to = to, from
		}
		copy(pairs[2*i:], []int32{from, to})
	}
	pool := c.random(BF16, u.Outer*u.Units*u.Unit/2)
	pool.Content = Kept
	c.run(l, UnitCopyArguments[*Buffer]{Pool: pool, Pairs: c.ints(pairs...), Step: c.step()})
	c.reference = func() {
		content := BF16.Bytes(pool.Values())
		u.Reference(pairs, content)
		want := c.want(pool, Bounds{}, u.Outer*u.Units*u.Unit/2)
		for i, x := range BF16.Numbers(content) {
			want[i] = float32(x)
		}
	}
	return c
}
