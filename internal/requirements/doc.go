// Package requirements holds no code but tests: that testdata/requirements.txt names a test for every
// requirement, and those tests that show a requirement across the layers, from a checkpoint to tokens.
//
// # Invariants
//
//   - A test here uses what the layers export, as the command line does.
//   - What one package can show alone is tested there.
//
// Package requirements may import everything; nothing imports it.
package requirements
