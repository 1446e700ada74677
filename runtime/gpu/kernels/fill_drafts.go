package kernels

// FillDrafts fills drafts into the tokens of a call of up to Rows rows: the operation fill_drafts.
type FillDrafts struct {
	Rows int
}

// Launch is the dispatch. It takes FillDraftsArguments: Tokens, Index and Y i32 [T] and Drafts i32. No index may be
// beyond the drafts.
func (f FillDrafts) Launch() Launch {
	return Launch{File: "fill_drafts", Kernel: "fill_drafts", Case: f.newCase,
		Groups: [3]int{ceil(f.Rows, 256), 1, 1}, Threads: [3]int{256, 1, 1}}
}

// Reference computes what the launch does.
func (f FillDrafts) Reference(tokens, drafts, index, y []int32) {
	for r, at := range index {
		if y[r] = tokens[r]; at >= 0 {
			y[r] = drafts[at]
		}
	}
}

// newCase returns a case in which two of three rows are drafts.
func (f FillDrafts) newCase(s Sizes) *Case {
	c := newCase(s, min(f.Rows, 5), 0)
	tokens, drafts, index := make([]int32, c.Capacity), make([]int32, 3), make([]int32, c.Capacity)
	for i := range tokens {
		tokens[i], index[i] = int32(1000+i), int32(i%3)-1
	}
	for i := range drafts {
		drafts[i] = int32(7 * i)
	}
	y := c.out(I32, c.Capacity)
	c.run(f.Launch(), FillDraftsArguments[*Buffer]{Tokens: c.ints(tokens...), Drafts: c.ints(drafts...),
		Index: c.ints(index...), Y: y, Step: c.step()})
	c.reference = func() {
		want := make([]int32, c.Tokens)
		f.Reference(tokens, drafts, index[:c.Tokens], want)
		c.wantInts(y, want)
	}
	return c
}
