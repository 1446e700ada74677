// Package tune chooses among the ways to divide the work of a kernel, by measuring them on the device, and keeps the
// choices in files.
//
// # Search
//
// A product is a kernel at a shape. Its variants are launches with the same buffers that give the same result but for
// the order of sums; the first is the default of the table in package kernels. The search climbs: all variants near the
// default are measured, then those near the best of them, until none is better or the time is over. Variants may be of
// different kinds, other kernels even: each kind is climbed from its own default, unless its best is far behind, lest
// the kind whose default is faster by chance be the only one that is known. In the end the best of each kind, but for
// what is far behind, are measured against the default and each other once more, in turns, and one wins only by a clear
// margin over the default, so that noise changes nothing.
//
// A measurement is a recorded sequence that reads more weights than a GPU's caches hold, if it reads weights, as a pass
// of the model does, so that it tells of time at the memory's speed. It is one of two. A chain is the product again and
// again, each dispatch behind a barrier, on one layer's weights after the other's. In place, the product stands among
// the kernels that stand around it in a program, with the program's barriers, and the time of all of them is what
// counts: in a chain a kernel's code is in the instruction cache, its threadgroups start while the last ones of the
// same kernel end, and the division of memory on a multiprocessor stays, all of which a program does not give. What is
// best in one may not be in the other, so choices are kept for each (Key).
//
// Where the time of a kernel depends on the position of a call, as attention's does, the sequence has it at several,
// and the sum counts (Variants.Positions): the choice is for calls of all positions.
//
// In place, other products that are measured at the same start have their defaults, since that of which the best is not
// known yet cannot stand there: products are compiled together, which takes most of the time, and measured in rounds.
// What was kept before stands there as chosen.
//
// # Invariants
//
//   - A choice is made once. It is kept in a file whose name is the hash of what it depends on: the device and its
//     driver, the whole text of the default's kernel with its definitions (its shape, too), how it is measured. Whoever
//     writes the file first decides, for other processes too.
//   - Nothing here is an error for the caller: a variant that does not compile or run is passed over, a product that cannot be
//     measured has the default, and what cannot be kept is measured again at the next start, with a note.
//   - The time is bounded: what it does not suffice for has the default until the next start, which goes on.
//
// It imports packages device, keep and kernels, and must never import the planner or a host.
package tune
