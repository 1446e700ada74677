// Package ir is the intermediate representation of etc: the graph that the compiler builds from a
// checkpoint and that the runtime lifts from a .pte.
//
// A [Module] holds a program: constants with lazily produced bytes ([Data]), mutable buffers, an
// optional init function, and its methods, which are called entries: one or several, each a [Func]. A
// function is a flat list of operations ([Op]) in execution order; If and Scan carry their bodies as
// regions. Values are in SSA form and typed ([Type]): a tensor of a [DType] with symbolic dims ([Expr]),
// an int (a 32-bit register that carries its symbolic expression) or a group-quantized weight.
//
// One table ([Ops]) describes each operation: operands, attribute struct, type rule and, where it is
// an MLX delegate node, the node that it is written as. Printer, parser, verifier, code generation
// and lifting are all driven by that table. Its columns also say what passes and engines must know of
// an operation: its effect, what it does to state ([StateUse]), which rows of its operands a row of its
// results needs ([RowRule], [RowsOf]), how a view lies in its operand ([ViewKind]). No other package
// keeps a list of operations for such a fact.
//
// # Invariants
//
//   - Every value is defined before it is used, in the same region or one that encloses it.
//   - Every value's type is what the type rule of its operation derives; [Verify] derives it again.
//   - Buffers are symbols, not values. The accesses of a buffer happen in list order. The value of a
//     load is not used after a later write of the same buffer: copy it first (id_copy).
//   - The text form ([Print], [Parse]) is canonical: two modules are the same if and only if their texts are.
//
// Package ir imports nothing else of etc, and never will.
package ir
