// Package execfuzz makes mutants of program files and executes them. It takes a file apart, changes its graph (slots,
// registers, dims, dtypes, kinds of nodes, arms of Ifs), and puts the file together again. What container, lifting and
// verifier accept runs on two engines: the reference engine and one that is compared with it. Neither may panic. Both
// must refuse the mutant, or both must answer. Outputs and state must be equal: integers exactly, floats up to a
// tolerance. [Verdict] lists the exceptions.
//
// # Invariants
//
//   - A mutant and its inputs follow from the files of the corpus and two numbers, the seed of the random numbers and
//     the number of the mutant. The same numbers repeat a finding.
//   - A difference is no finding where the reference engine's own answer changes as much when the floats of inputs and
//     constants change in the seventh digit.
//
// Package execfuzz imports the part of the runtime that reads files, and engines. Only tests may import it.
package execfuzz
