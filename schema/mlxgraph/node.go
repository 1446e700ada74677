package mlxgraph

import (
	"reflect"
	"strings"

	flatbuffers "github.com/google/flatbuffers/go"
)

// emptyTable is a table without fields, at offset 4 of its buffer: a vtable of 4 bytes for a table of 4
// bytes, and the table, which is the distance back to the vtable.
var emptyTable = flatbuffers.Table{Bytes: []byte{4, 0, 4, 0, 4, 0, 0, 0}, Pos: 4}

// NewNode returns a new node of the object API by the name of its OpNode member: NewNode("RopeNode") is a
// *RopeNodeT. Scalars have the schema's defaults (Base is 500000), optional ones are nil, vectors are empty
// and structs and tables nil. The second result is false where OpNode has no such member.
func NewNode(name string) (any, bool) {
	op, ok := EnumValuesOpNode[name]
	if !ok || op == OpNodeNONE {
		return nil, false
	}
	return op.UnPack(emptyTable).Value, true
}

// NodeOp returns the OpNode value of a node: of a *RopeNodeT it is OpNodeRopeNode. The second result is false
// where the argument is not a pointer to a node of the object API.
func NodeOp(node any) (OpNode, bool) {
	t := reflect.TypeOf(node)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().PkgPath() != reflect.TypeFor[OpNode]().PkgPath() {
		return OpNodeNONE, false
	}
	name, isObject := strings.CutSuffix(t.Elem().Name(), "T")
	op, ok := EnumValuesOpNode[name]
	return op, ok && isObject && op != OpNodeNONE
}
