package schema

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/etc-ml/etc/schema/reflection"
)

//go:embed program.bfbs
var programBinary []byte

//go:embed mlxgraph.bfbs
var mlxgraphBinary []byte

var (
	loadProgram  = sync.OnceValue(func() *Schema { return mustLoad(programBinary, false) })
	loadMLXGraph = sync.OnceValue(func() *Schema { return mustLoad(mlxgraphBinary, true) })
)

// Program returns the schema of the FlatBuffer at the head of a .pte file. A program may hold fields that the
// schema does not know: ExecuTorch lets newer exporters add some that older runtimes do without.
func Program() *Schema { return loadProgram() }

// MLXGraph returns the schema of the MLX delegate's graph. A graph with a field that the schema does not know
// is refused: an operand of a node that is overlooked is a wrong answer.
func MLXGraph() *Schema { return loadMLXGraph() }

// Schema is a FlatBuffers schema in the form that Verify walks. It is immutable.
type Schema struct {
	identifier string
	closed     bool // fields that the schema does not know are errors
	root       *object
	objects    []object
	unions     map[int32]union // by index of the enum
}

// Identifier returns the four characters at offset 4 of a buffer of this schema, or "" where it has none.
func (s *Schema) Identifier() string { return s.identifier }

// object is a table or a struct.
type object struct {
	name   string
	fields []field // of a table, by slot
	end    uint16  // first vtable offset after the known slots
	size   uint32  // of a struct, bytes
	align  uint32  // of a struct, bytes
}

// field is a field of a table.
type field struct {
	name     string
	slot     uint16 // offset of its entry in a vtable
	kind     kind
	required bool
	size     uint32 // bytes of the inline value, or of an element of a vector
	align    uint32 // alignment of the same
	target   int32  // index of the object or of the union
}

// kind says what the value of a field is.
type kind uint8

const (
	inlineValue    kind = iota // scalar or struct
	stringValue                // offset to a string
	tableValue                 // offset to a table
	unionValue                 // offset to a table of the type that the slot before names
	inlineVector               // offset to scalars or structs
	stringVector               // offset to offsets to strings
	tableVector                // offset to offsets to tables
	unsupportedOne             // nothing that these schemas use
)

// union maps the values of a union's type to tables.
type union struct {
	name    string
	members map[byte]int32
	last    byte
}

func mustLoad(binary []byte, closed bool) *Schema {
	s, err := load(binary, closed)
	if err != nil {
		panic(err) // the embedded file is not what schema/gen writes
	}
	return s
}

// load reads a binary schema (.bfbs). The file is part of the program and not verified.
func load(binary []byte, closed bool) (*Schema, error) {
	from := reflection.GetRootAsSchema(binary, 0)
	s := &Schema{
		identifier: string(from.FileIdent()),
		closed:     closed,
		objects:    make([]object, from.ObjectsLength()),
		unions:     map[int32]union{},
	}
	rootName := string(from.RootTable(nil).Name())

	structs := make([]bool, len(s.objects))
	var o reflection.Object
	for i := range s.objects {
		from.Objects(&o, i)
		structs[i] = o.IsStruct()
		s.objects[i] = object{name: shortName(o.Name()), size: uint32(o.Bytesize()), align: uint32(o.Minalign())}
		if string(o.Name()) == rootName {
			s.root = &s.objects[i]
		}
	}
	for i := range s.objects {
		if structs[i] {
			continue // a struct has no vtable; its size and alignment say all
		}
		from.Objects(&o, i)
		if err := s.loadFields(&s.objects[i], &o, structs); err != nil {
			return nil, err
		}
	}

	var e reflection.Enum
	for i := range from.EnumsLength() {
		if from.Enums(&e, i); e.IsUnion() {
			s.unions[int32(i)] = loadUnion(&e)
		}
	}
	return s, nil
}

// loadFields reads the fields of a table.
func (s *Schema) loadFields(to *object, from *reflection.Object, structs []bool) error {
	to.end = 4 // a vtable starts with its own size and the table's
	var f reflection.Field
	for i := range from.FieldsLength() {
		from.Fields(&f, i)
		field := s.loadField(&f, structs)
		if field.kind == unsupportedOne {
			return fmt.Errorf("%s.%s is of a type that the verifier does not have: %s of %s",
				to.name, field.name, f.Type(nil).BaseType(), f.Type(nil).Element())
		}
		to.fields = append(to.fields, field)
		to.end = max(to.end, field.slot+2)
	}
	slices.SortFunc(to.fields, func(a, b field) int { return int(a.slot) - int(b.slot) })
	return nil
}

func (s *Schema) loadField(f *reflection.Field, structs []bool) field {
	t := f.Type(nil)
	to := field{name: string(f.Name()), slot: f.Offset(), required: f.Required(),
		target: t.Index(), kind: unsupportedOne}
	switch base := t.BaseType(); base {
	case reflection.BaseTypeString:
		to.kind = stringValue
	case reflection.BaseTypeUnion:
		to.kind = unionValue
	case reflection.BaseTypeObj:
		if to.kind = tableValue; structs[t.Index()] {
			to.kind, to.size, to.align = inlineValue, s.objects[t.Index()].size, s.objects[t.Index()].align
		}
	case reflection.BaseTypeVector:
		switch element := t.Element(); {
		case element == reflection.BaseTypeString:
			to.kind = stringVector
		case element == reflection.BaseTypeObj && structs[t.Index()]:
			to.kind, to.size, to.align = inlineVector, s.objects[t.Index()].size, s.objects[t.Index()].align
		case element == reflection.BaseTypeObj:
			to.kind = tableVector
		case isScalar(element):
			to.kind, to.size, to.align = inlineVector, t.ElementSize(), t.ElementSize()
		}
		to.align = max(to.align, forceAlign(f))
	default:
		if isScalar(base) {
			to.kind, to.size, to.align = inlineValue, t.BaseSize(), t.BaseSize()
		}
	}
	return to
}

func isScalar(t reflection.BaseType) bool {
	return t >= reflection.BaseTypeUType && t <= reflection.BaseTypeDouble
}

// forceAlign returns the alignment that the attribute force_align gives the content of a vector, or 0.
func forceAlign(f *reflection.Field) uint32 {
	var a reflection.KeyValue
	if !f.AttributesByKey(&a, "force_align") {
		return 0
	}
	align, err := strconv.ParseUint(string(a.Value()), 10, 16)
	if err != nil {
		panic(err) // flatc checks the attribute
	}
	return uint32(align)
}

func loadUnion(e *reflection.Enum) union {
	u := union{name: shortName(e.Name()), members: map[byte]int32{}}
	var v reflection.EnumVal
	for i := range e.ValuesLength() {
		e.Values(&v, i)
		if t := v.UnionType(nil); t != nil && t.BaseType() == reflection.BaseTypeObj {
			u.members[byte(v.Value())] = t.Index()
			u.last = max(u.last, byte(v.Value()))
		}
	}
	return u
}

// shortName returns a name without its namespace.
func shortName(name []byte) string {
	return string(name[strings.LastIndexByte(string(name), '.')+1:])
}
