// Package pool divides loops among the threads of a CPU engine.
//
// A pool is made for loops of some ten microseconds, thousands of them for every token, on a machine that
// may be busy with other work:
//
//   - Work is claimed in small pieces, by the caller too, from one counter. A thread that the operating
//     system takes away costs the piece that it holds, and one that does not come at all costs nothing:
//     the loop closes when all pieces are claimed, and waits only for those who joined it.
//   - Threads that wait spin for a time that follows their luck, some ten microseconds at most, and then
//     sleep. A caller that waits for the last piece does the same, so that the thread that holds it gets a
//     core.
//   - Whoever joins a loop wakes up to two sleepers, so that starting many threads takes logarithmic time.
//   - A loop allocates nothing.
//
// What is computed must not depend on who computes it: every index is passed exactly once, in ranges whose
// limits are multiples of the grain.
//
// The package imports the standard library only, and nothing else of this module.
package pool
