// Package mlxgraph is generated from schema/mlxgraph.fbs: the accessors, builders and object API (types with
// the suffix T) of the MLX delegate's graph. node.go adds nodes by name, for code that treats them alike.
//
// Verify a buffer (schema.Verify) before reading it: the accessors trust every offset. Write graphs with
// schema.Marshal, which refuses what Pack takes in silence: nil elements of vectors, missing required fields.
//
// UnPack does not tell an absent vector from an empty one (both are empty, not nil), nor an absent string
// from an empty one. In this schema they mean the same. Pack leaves out vectors that are nil, and strings
// that are empty unless they are required.
//
// It imports nothing of the project.
package mlxgraph
