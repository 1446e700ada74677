package schema

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// Limits of Verify. Depth and number of tables are the limits of FlatBuffers' C++ verifier, and so of ExecuTorch. A
// buffer may refer to one table or vector from many places, so that reading all of it can take far longer than its size
// suggests. The other limits bound that to a multiple of the size.
const (
	maxSize   = math.MaxInt32
	maxDepth  = 64
	maxTables = 1_000_000

	// A table and the offset to it take 8 bytes, so without sharing there are at most size/8 of them.
	sizePerTable = 4
	freeTables   = 4096

	// Bytes of all vectors and strings, counted once per way to reach them.
	reachPerByte = 8
	freeReach    = 16 << 20
)

// Error is the first thing that Verify finds wrong with a buffer.
type Error struct {
	Path    string // from the root table to the place, e.g. execution_plan[0].values[3].val
	Table   string // type of the table at the place
	Field   string // its field, or "" where the table itself is wrong
	Offset  int64  // of the offending bytes, from the start of the buffer
	Problem string // what was expected and what was found
}

func (e *Error) Error() string {
	place := e.Path
	if place == "" {
		place = "root"
	}
	what := e.Table
	if e.Field != "" {
		what += "." + e.Field
	}
	return fmt.Sprintf("%s (%s) at offset %d: %s", place, what, e.Offset, e.Problem)
}

// Verify reports whether buf is a well-formed FlatBuffer of the schema's root type: every offset stays within
// the buffer and is aligned, as force_align demands too, strings end in NUL, required fields are there,
// unions are of a known type, and the whole is small enough to be walked. identifier is compared with bytes 4
// to 8; an empty one is not. The error is an *Error.
//
// The generated accessors and UnPack do not panic on a buffer that Verify accepts. Verify itself needs no
// memory to speak of and does not panic, whatever the bytes.
func Verify(schema *Schema, buf []byte, identifier string) error {
	v := verifier{
		schema: schema,
		buf:    buf,
		size:   int64(len(buf)),
		tables: min(maxTables, freeTables+len(buf)/sizePerTable),
		reach:  freeReach + reachPerByte*int64(len(buf)),
	}
	v.path = v.steps[:0]
	v.at = schema.root
	switch {
	case v.size > maxSize:
		return v.fail(nil, 0, "%d bytes, the format ends at %d", v.size, maxSize)
	case v.size < 4+int64(len(identifier)):
		return v.fail(nil, 0, "%d bytes are too few for a root offset and identifier", v.size)
	case identifier != "" && string(buf[4:4+len(identifier)]) != identifier:
		return v.fail(nil, 4, "file identifier %q, expected %q", buf[4:4+len(identifier)], identifier)
	}
	root, err := v.follow(nil, 0)
	if err != nil {
		return err
	}
	return v.table(root, schema.root)
}

// verifier is the state of one Verify. Offsets are int64, so that sums of a few 32-bit ones cannot overflow.
type verifier struct {
	schema *Schema
	buf    []byte
	size   int64
	tables int   // left to visit
	reach  int64 // bytes left to reach
	at     *object
	path   []step
	steps  [maxDepth]step
}

// step is a way from a table to another: a field and, for a vector, the index in it.
type step struct {
	table *object
	field *field
	index int // -1 for a single table
}

func (v *verifier) fail(f *field, offset int64, format string, args ...any) error {
	var path strings.Builder
	for _, s := range v.path {
		path.WriteString(s.field.name)
		if s.index >= 0 {
			fmt.Fprintf(&path, "[%d]", s.index)
		}
		path.WriteByte('.')
	}
	e := &Error{Path: strings.TrimSuffix(path.String(), "."), Table: v.at.name, Offset: offset,
		Problem: fmt.Sprintf(format, args...)}
	if f != nil {
		e.Field = f.name
	}
	return e
}

func (v *verifier) u16(at int64) uint16 { return binary.LittleEndian.Uint16(v.buf[at:]) }
func (v *verifier) u32(at int64) uint32 { return binary.LittleEndian.Uint32(v.buf[at:]) }

// span checks that n bytes at an aligned offset are in the buffer. align is a power of two.
func (v *verifier) span(f *field, at, n, align int64, what string) error {
	if at < 0 || at > v.size || n > v.size-at {
		return v.fail(f, at, "%s of %d bytes ends beyond the buffer's %d", what, n, v.size)
	}
	if at&(align-1) != 0 {
		return v.fail(f, at, "%s is not aligned to %d bytes", what, align)
	}
	return nil
}

// follow returns what the 32-bit offset at an offset points to. Offsets only go forward, so there are no cycles.
func (v *verifier) follow(f *field, at int64) (int64, error) {
	if err := v.span(f, at, 4, 4, "offset"); err != nil {
		return 0, err
	}
	distance := v.u32(at)
	if distance == 0 || distance > math.MaxInt32 {
		return 0, v.fail(f, at, "offset of %d bytes", distance)
	}
	return at + int64(distance), nil
}

// spend counts n bytes that a reader would read. It returns an error when they are far more than the buffer has, since
// tables and vectors that are shared many times would make reading slow.
func (v *verifier) spend(f *field, at, n int64) error {
	if v.reach -= n; v.reach < 0 {
		return v.fail(f, at, "vectors are shared so often that reading them all takes more than %d bytes",
			freeReach+reachPerByte*v.size)
	}
	return nil
}

// descend checks a table that a field f of the current table points to.
func (v *verifier) descend(f *field, index int, at int64, o *object) error {
	if len(v.path) == maxDepth {
		return v.fail(f, at, "tables nest more than %d deep", maxDepth)
	}
	v.path = append(v.path, step{v.at, f, index})
	v.at = o
	err := v.table(at, o)
	last := len(v.path) - 1
	v.at = v.path[last].table
	v.path = v.path[:last]
	return err
}

// table checks the table at an offset, and everything that it points to.
func (v *verifier) table(at int64, o *object) error {
	if v.tables--; v.tables < 0 {
		return v.fail(nil, at, "more than %d tables", min(maxTables, freeTables+len(v.buf)/sizePerTable))
	}
	if err := v.span(nil, at, 4, 4, "table"); err != nil {
		return err
	}
	t := tableView{at: at, vtable: at - int64(int32(v.u32(at)))}
	if err := v.span(nil, t.vtable, 4, 2, "vtable"); err != nil {
		return err
	}
	t.slots = v.u16(t.vtable)
	if t.slots < 4 || t.slots%2 != 0 {
		return v.fail(nil, t.vtable, "vtable of %d bytes", t.slots)
	}
	if err := v.span(nil, t.vtable, int64(t.slots), 2, "vtable"); err != nil {
		return err
	}
	if v.schema.closed {
		for slot := o.end; slot < t.slots; slot += 2 {
			if v.u16(t.vtable+int64(slot)) != 0 {
				return v.fail(nil, at, "field number %d is not in this version of the schema: the file needs a "+
					"newer program",
					(slot-4)/2)
			}
		}
	}
	for i := range o.fields {
		if err := v.field(t, &o.fields[i]); err != nil {
			return err
		}
	}
	return nil
}

// tableView is a table whose vtable is known to be within the buffer. The size of the table, the vtable's
// second entry, is of no use: Go's builder lets tables of different sizes share a vtable.
type tableView struct {
	at     int64  // the table
	vtable int64  // its vtable
	slots  uint16 // bytes of the vtable
}

// inline returns where the inline value behind a slot of the vtable is, or 0 where the field is absent.
func (v *verifier) inline(t tableView, slot uint16) int64 {
	if slot >= t.slots {
		return 0
	}
	distance := v.u16(t.vtable + int64(slot))
	if distance == 0 {
		return 0
	}
	return t.at + int64(distance)
}

// field checks one field of a table.
func (v *verifier) field(t tableView, f *field) error {
	at := v.inline(t, f.slot)
	if f.kind == unionValue {
		return v.union(t, f, at)
	}
	if at == 0 {
		if f.required {
			return v.fail(f, t.at, "required field is missing")
		}
		return nil
	}
	size, align := int64(4), int64(4)
	if f.kind == inlineValue {
		size, align = int64(f.size), int64(f.align)
	}
	if err := v.span(f, at, size, align, "value"); err != nil || f.kind == inlineValue {
		return err
	}
	to, err := v.follow(f, at)
	if err != nil {
		return err
	}
	switch f.kind {
	case stringValue:
		return v.string(f, to)
	case tableValue:
		return v.descend(f, -1, to, &v.schema.objects[f.target])
	case inlineVector:
		_, err := v.vector(f, to, int64(f.size), int64(f.align))
		return err
	}
	n, err := v.vector(f, to, 4, 4)
	if err != nil {
		return err
	}
	for i := range n {
		element, err := v.follow(f, to+4+4*i)
		if err != nil {
			return err
		}
		if f.kind == stringVector {
			err = v.string(f, element)
		} else {
			err = v.descend(f, int(i), element, &v.schema.objects[f.target])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// union checks a union: its type is the field in the slot before.
func (v *verifier) union(t tableView, f *field, at int64) error {
	var tag byte
	tagAt := v.inline(t, f.slot-2)
	if tagAt != 0 {
		if err := v.span(f, tagAt, 1, 1, "type of the union"); err != nil {
			return err
		}
		tag = v.buf[tagAt]
	}
	u := v.schema.unions[f.target]
	switch target, known := u.members[tag]; {
	case at == 0 && tag == 0:
		if f.required {
			return v.fail(f, t.at, "required field is missing")
		}
		return nil
	case tag == 0:
		return v.fail(f, at, "%s has a value but no type", u.name)
	case !known:
		return v.fail(f, tagAt, "%s number %d is unknown: this version knows 1 to %d", u.name, tag, u.last)
	case at == 0:
		return v.fail(f, tagAt, "%s is of type %s but has no value", u.name, v.schema.objects[target].name)
	default:
		to, err := v.follow(f, at)
		if err != nil {
			return err
		}
		return v.descend(f, -1, to, &v.schema.objects[target])
	}
}

// vector checks the vector at an offset and returns its length.
func (v *verifier) vector(f *field, at, size, align int64) (int64, error) {
	if err := v.span(f, at, 4, 4, "vector"); err != nil {
		return 0, err
	}
	n := int64(v.u32(at))
	if n*size > v.size-at-4 {
		return 0, v.fail(f, at, "vector of %d elements of %d bytes ends beyond the buffer's %d", n, size, v.size)
	}
	if n > 0 && (at+4)&(align-1) != 0 {
		return 0, v.fail(f, at+4, "content of the vector is not aligned to %d bytes", align)
	}
	return n, v.spend(f, at, n*size)
}

// string checks the string at an offset.
func (v *verifier) string(f *field, at int64) error {
	n, err := v.vector(f, at, 1, 1)
	if err != nil {
		return err
	}
	end := at + 4 + n
	if err := v.span(f, end, 1, 1, "string"); err != nil {
		return err
	}
	if v.buf[end] != 0 {
		return v.fail(f, end, "string does not end in NUL")
	}
	return nil
}
