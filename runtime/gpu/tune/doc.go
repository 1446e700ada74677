// Package tune chooses among the variants of a kernel by measuring them on the device, and stores the choices in files.
//
// # Search
//
// A product is a kernel at a shape. Its variants are launches with the same buffers that give the same result except
// for the order of sums. The first one is the default of the table in package kernels. The search is hill climbing: it
// measures all variants near the default, then those near the best of them, until none is better or the time is over.
// Variants may be of different kinds, even different kernels. Each kind is climbed from its own default, unless its
// best variant is far behind. Otherwise only the kind with the fastest default would be explored. At the end, the best
// of each kind (except for those far behind) and the default are measured again in turns. A variant has to beat the
// default by a clear margin, so that noise changes nothing.
//
// # Measurements
//
// A measurement is a recorded sequence of kernels. If it reads weights, it reads more than a GPU's caches hold, as a
// pass of the model does; so its time is that of the memory. There are two forms.
//
//   - Cold cache: a chain of dispatches of the product alone, each after a barrier, on the weights of one layer after
//     the other.
//   - In place: the product among the kernels around it in a program, with the program's barriers. The time of all of
//     them counts.
//
// The two forms can favour different variants. In a chain, a kernel's code stays in the instruction cache, its
// threadgroups start while the last ones of the same kernel end, and a multiprocessor keeps its division of on-chip
// memory. A program has none of that. So choices are stored for each form (Key).
//
// The time of some kernels, such as attention, depends on the position of a call. Their sequence has several positions,
// and the sum of their times counts (Variants.Positions), because the choice is for calls at all positions.
//
// In place, products that are measured in the same run use their defaults while others are measured: their best
// variants are not known yet. They are measured in rounds, because compiling takes most of the time and is done for all
// together. Products with a stored choice use it.
//
// # Invariants
//
//   - A choice is stored in a file whose name is the hash of what it depends on: the device and its driver, the whole
//     source of the default kernel with its definitions (and so its shape), and the form of the measurement. The
//     process that writes the file first decides for others too.
//   - A stored choice is final if its search ended by itself, or if searches of this product ran out of time at three
//     starts of the program. Before that, the next start of the program searches again, beginning with the stored
//     choice, after it has searched for the products that have none.
//   - Nothing here is an error for the caller. A variant that does not compile or run is left out. A product that
//     cannot be measured gets the default. A choice that cannot be stored is measured again at the next start, with a
//     note.
//   - The time is bounded. Products for which it does not suffice get the default; the next start continues.
//
// Package tune imports packages artifact, device and kernels, and must never import the planner or a host.
package tune
