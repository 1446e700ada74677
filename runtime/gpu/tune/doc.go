// Package tune chooses among the ways to divide the work of a kernel, by measuring them on the device, and keeps the
// choices in files.
//
// # Search
//
// A product is a kernel at a shape. Its ways are launches with the same buffers that give the same result but for the
// order of sums; the first is the default of the table in package kernels. The search climbs: all ways near the default
// are measured, then those near the best of them, until none is better or the time is over. What is best in the end is
// measured against the default once more, in turns, and wins only by a clear margin, so that noise changes nothing.
//
// A measurement is a recorded sequence of dispatches, each behind a barrier, that rotates through weights: through more
// than a GPU's caches hold, as a pass of the model does. So what it tells is time at the memory's speed, not the cache's.
//
// # Invariants
//
//   - A choice is made once. It is kept in a file whose name is the hash of what it depends on: the device and its
//     driver, the whole text of the default's kernel with its definitions (its shape, too). Whoever writes the file
//     first decides, for other processes too.
//   - Nothing here is an error for the caller: a way that does not compile or run is passed over, and where nothing can
//     be measured or kept, the default is taken, with a note.
//   - The time is bounded: what it does not suffice for has the default until the next start, which goes on.
//
// It imports packages device, keep and kernels, and must never import the planner or a host.
package tune
