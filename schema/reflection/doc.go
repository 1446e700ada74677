// Package reflection is generated from FlatBuffers' own reflection.fbs, the schema of binary schemas (.bfbs),
// because the Go module ships none. Package schema reads its embedded schemas with it.
//
// It imports nothing of the project.
package reflection
