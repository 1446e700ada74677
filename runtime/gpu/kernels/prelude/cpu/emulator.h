// What a kernel that was compiled for the emulator sees of it. The emulator runs one Metal threadgroup at
// a time on an OS thread; every GPU thread is a fiber, and fibers meet at threadgroup_barrier and at every
// simd operation. It is for tests: it checks, it does not hurry.
#pragma once
#include <cstdint>

namespace emulator {

enum State : unsigned char { READY, AT_SIMD, AT_TRANSFER, AT_BARRIER, DONE };

// Group is the threadgroup that an OS thread is running. Its layout is shared by emulator.cc and by the
// kernels, which are compiled apart from it.
struct Group {
  uint32_t at[3], grid[3], size[3];
  int threads, simds;
  int current;                                       // the running thread's number
  uint32_t simd_operations[1024];                    // how many each thread has made
  alignas(16) unsigned char slot[32][2][32][16];     // [simdgroup][parity][lane]: what lanes exchange
};

}  // namespace emulator

extern "C" {
// emulator_group is the threadgroup of the calling thread.
emulator::Group* emulator_group();
// emulator_pause leaves the calling fiber until the scheduler takes it up again; operation and line say
// where it waits.
void emulator_pause(emulator::State state, const char* operation, int line);
// emulator_threadgroup_memory is the place of a threadgroup array, the same for all threads of the group.
void* emulator_threadgroup_memory(const void* key, unsigned long bytes);
// emulator_large_memory is the place of TG_MEMORY, which there is once: the launch gives it.
void* emulator_large_memory(unsigned long bytes);
// What port_transfer does, called at a line of the kernel. A copy is made by the first wait for its turn.
void emulator_transfer_init(void* transfer, int line);
void emulator_transfer_expect(void* transfer, uint32_t bytes, int line);
void emulator_transfer_copy(void* to, const void* from, uint32_t bytes, void* transfer, int line);
void emulator_transfer_wait(void* transfer, uint32_t turn, int line);
}

namespace emulator {

// exchange gives all lanes of a simdgroup the values of all others.
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
