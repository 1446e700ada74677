// The emulator's interface for a kernel that was compiled for it. The emulator runs a Metal threadgroup on an OS
// thread. Every GPU thread is a fiber, and fibers meet at threadgroup_barrier and at every simdgroup operation. It is
// made for checking in tests, not for speed.
#pragma once
#include <cstdint>

namespace emulator {

enum State : unsigned char { READY, AT_SIMD, AT_TRANSFER, AT_BARRIER, DONE };

// Group is the threadgroup that an OS thread runs. Its layout has to be the same in emulator.cc and in the kernels,
// which are compiled separately.
struct Group {
  uint32_t at[3], grid[3], size[3];
  int threads, simds;
  int current;                                       // the running thread's number
  uint32_t simd_operations[1024];                    // how many each thread has done
  alignas(16) unsigned char slot[32][2][32][16];     // [simdgroup][parity][lane]: the values that lanes exchange
};

}  // namespace emulator

extern "C" {
// emulator_group returns the threadgroup of the calling thread.
emulator::Group* emulator_group();
// emulator_pause suspends the calling fiber until the scheduler resumes it. operation and line say where it waits.
void emulator_pause(emulator::State state, const char* operation, int line);
// emulator_threadgroup_memory returns the address of a threadgroup array, the same for all threads of the group.
void* emulator_threadgroup_memory(const void* key, unsigned long bytes);
// emulator_large_memory returns the address of the kernel's only TG_MEMORY, whose size the launch gives.
void* emulator_large_memory(unsigned long bytes);
// Implements port_transfer; line is the line of the kernel. A copy is done by the first wait for its round.
void emulator_transfer_init(void* transfer, int line);
void emulator_transfer_expect(void* transfer, uint32_t bytes, int line);
void emulator_transfer_copy(void* to, const void* from, uint32_t bytes, void* transfer, int line);
void emulator_transfer_wait(void* transfer, uint32_t turn, int line);
// Implements port_arrivals.
void emulator_arrivals_init(void* arrivals, uint32_t simdgroups, int line);
void emulator_arrive(void* arrivals, int line);
void emulator_arrivals_wait(void* arrivals, uint32_t turn, int line);
// Implements port_copy and port_copy_half: copies bytes bytes, or zeros where they are not present. A copy is made when its thread waits
// for its group; until then its destination is NaN.
void emulator_copy(void* to, const void* from, bool present, unsigned bytes, int line);
void emulator_copies_end();
void emulator_copies_wait(int groups);
}

namespace emulator {

// exchange gives every lane of a simdgroup the values of all lanes.
template <class T> inline const T (&exchange(T value, const char* operation, int line))[32][16 / sizeof(T)] {
  static_assert(sizeof(T) <= 16 && 16 % sizeof(T) == 0, "a value of 1, 2, 4, 8 or 16 bytes");
  Group* g = emulator_group();
  const int thread = g->current;
  const int parity = g->simd_operations[thread]++ & 1;
  __builtin_memcpy(g->slot[thread >> 5][parity][thread & 31], &value, sizeof value);
  emulator_pause(AT_SIMD, operation, line);
  return *(const T(*)[32][16 / sizeof(T)])g->slot[thread >> 5][parity];
}

}  // namespace emulator
