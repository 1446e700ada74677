package ir

// Facts of operations: columns of the op table that say how an operation works beside what it computes. A pass or
// an engine asks them and keeps no list of names of its own. Each fact is checked against the reference kernels by
// tests of ir/eval. The zero value of a fact says that nothing is known, which is always safe.

// RowRule says which rows of the operands a row of the results is computed from. Rows are what one index of an axis
// selects, with that axis kept; [RowsOf] answers for an operation and an axis.
type RowRule uint8

const (
	// NoRows: nothing is known.
	NoRows RowRule = iota
	// Elementwise operations broadcast their operands to the shape of the result and compute each element of the
	// elements there. Rows of every axis are independent.
	Elementwise
	// LastAxis operations work along the last axis. Rows of every other axis are independent: an operand has them in
	// the axis that stands as far from the end as in the result, or is broadcast along them. [Operand.Shared]
	// ones are the same for all rows.
	LastAxis
	// BesideAxis operations work along one axis, that of the operand or attribute Axis. Rows of every other axis of
	// the first operand are independent.
	BesideAxis
	// PermutedRows: row i of an axis of a transposition is row i of the axis that it comes from.
	PermutedRows
	// RegroupedRows: the result has the elements of x in row-major order. An axis of the result keeps the rows of an
	// axis of x if it is as long and the same number of elements comes before it.
	RegroupedRows
	// LookedUpRows: the result has the axes of the first operand, indices, followed by the axes of the table that is
	// read.
	LookedUpRows
	// QueryRows: attention of queries q [B, H, S, D] over a cache that all of them share. The first query is at the int
	// operand position, row i of axis 2 at position + i. Rows at the end may not be left out, since the cache has what
	// they wrote.
	QueryRows
	// TabledRows: rows of the second last axis of the first operand, each of which stands in the tables positions and
	// sequences too, along their first axis. What else they need is the same for all of them.
	TabledRows
)

// ViewKind says how the elements of an operation's one result lie among those of its operand x. The result of a
// view may lie in the memory of x.
type ViewKind uint8

const (
	// NotView operations compute elements.
	NotView ViewKind = iota
	// CopyView is x itself.
	CopyView
	// CastView is x with each element converted to another dtype.
	CastView
	// ReshapeView has the elements of x in their row-major order and another shape.
	ReshapeView
	// SelectView has elements of x that are selected and arranged by their place, never by their value.
	SelectView
)

// StateUse says what an operation does to the content of its buffer.
type StateUse uint8

const (
	// NoState operations have no buffer.
	NoState StateUse = iota
	// ReadsState: the result is the content.
	ReadsState
	// ReplacesState: the content becomes the operand, whatever it was.
	ReplacesState
	// WritesRows: rows of an axis are overwritten where operands say, the others stay. The old content is not read.
	WritesRows
	// AdvancesState: the content is read, and replaced by one that follows from it: a recurrent state.
	AdvancesState
)

// IsElementwise reports whether an operation computes each element of its result of the operands' elements there.
func (d *OpDef) IsElementwise() bool { return d.Rows == Elementwise }

// IsView reports whether the result of an operation consists of elements of its operand x.
func (d *OpDef) IsView() bool { return d.View != NotView }

// CanFold reports whether an operation computes its results of its arguments alone, alike in every call: with
// constants for arguments its results are constants.
func (d *OpDef) CanFold() bool { return d.Effect == Pure && d.Results > 0 }

// Writes reports whether op or an operation of its regions writes a buffer.
func (op *Op) Writes() bool {
	found := false
	op.EachWrite(func(*Buffer) { found = true })
	return found
}

// EachWrite calls f for every buffer that op or an operation of its regions writes, in list order.
func (op *Op) EachWrite(f func(*Buffer)) {
	if op.Def.Effect == Writes {
		for _, b := range op.Buffers() {
			f(b)
		}
	}
	for _, r := range op.Regions {
		r.EachWrite(f)
	}
}

// EachWrite calls f for every buffer that the operations of r and of its nested regions write, in list order.
func (r *Region) EachWrite(f func(*Buffer)) {
	for _, op := range r.Ops {
		op.EachWrite(f)
	}
}
