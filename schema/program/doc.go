// Package program is generated from schema/program.fbs: the accessors, builders and object API (types with
// the suffix T) of the FlatBuffer at the head of a .pte file.
//
// Verify a buffer (schema.Verify) before reading it: the accessors trust every offset. Two things that the
// generator leaves out: Pack and Start…Vector ignore force_align, so Buffer.storage and
// BackendDelegateInlineData.data must be written with schema.CreateAlignedBytes; and Pack takes nil elements
// of vectors in silence, which schema.Marshal refuses.
//
// It imports nothing of the project.
package program
