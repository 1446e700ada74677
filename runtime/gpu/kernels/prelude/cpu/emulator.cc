// The scheduler of the emulator: fibers, poisoned threadgroup memory, the checks of simd operations, barriers
// and transfers, and a few OS threads that take threadgroups in turn.
#include "emulator.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <sys/mman.h>

// -- fibers --------------------------------------------------------------------------------------------------
extern "C" void emulator_switch(void** save, void* to) __asm__("emulator_switch_fiber");
#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
emulator_switch_fiber:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
emulator_start_fiber:
  callq *%rbx
  ud2
)");
extern "C" void emulator_start() __asm__("emulator_start_fiber");
static void* new_stack(char* top, void (*run)()) {
  uintptr_t* sp = (uintptr_t*)((uintptr_t)top & ~uintptr_t(15));
  *--sp = 0;
  *--sp = 0;
  *--sp = (uintptr_t)emulator_start;  // the first switch returns there, with rsp 16-aligned + 8
  for (int i = 0; i < 6; i++) *--sp = 0;
  sp[4] = (uintptr_t)run;  // rbx
  return sp;
}
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
emulator_switch_fiber:
  sub sp, sp, #160
  stp x19, x20, [sp]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
)");
static void* new_stack(char* top, void (*run)()) {
  uintptr_t* sp = (uintptr_t*)((uintptr_t)top & ~uintptr_t(15)) - 20;
  memset(sp, 0, 160);
  sp[11] = (uintptr_t)run;  // x30
  return sp;
}
#else
#error "the emulator has no fiber switch for this processor"
#endif

namespace emulator {

const size_t stack_bytes = 128 << 10;
const size_t arena_bytes = 96 << 10;
const size_t large_bytes = 240 << 10;

typedef void (*Entry)(void* const* args);

// Piece is a port_copy that its thread has not waited for.
struct Piece {
  void* to;
  const void* from;  // null: zeros
  unsigned bytes, group;
};

struct Lane {
  void* sp;
  State state;
  int line;  // of the operation that it waits in
  const char* operation;
  std::vector<Piece> pieces = {};
  unsigned groups = 0;  // of pieces that have ended
};

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

// Transfer is a port_transfer: of its turns as many are done, one more may be expected.
struct Transfer {
  uint32_t expected, done;
  size_t bytes;  // of the turn that is expected
  std::vector<Copy> copies;
  int thread, line;  // that expect it
};

// Arrivals is a port_arrivals: how many simdgroups arrive in a round, and how many have arrived in all rounds together.
struct Arrivals {
  uint32_t simdgroups, arrived;
};

// Runner is a Group and what only the scheduler needs. It outlives launches: to map the stacks of a threadgroup takes
// longer than most kernels.
struct Runner {
  Group group;
  Entry entry;
  void* const* args;
  void* scheduler_sp;
  std::vector<Lane> lanes;
  std::vector<char*> stacks;
  std::map<const void*, size_t> places;  // of threadgroup arrays in the arena
  std::map<void*, Transfer> transfers;
  std::map<void*, Arrivals> arrivals;
  size_t used, limit, memory;  // limit is of the arena, memory of the large memory
  uint32_t random;
  bool stuck;  // only threads that wait for a transfer could go on, and it does not come
  std::string error;
  alignas(128) unsigned char arena[arena_bytes];
  alignas(128) unsigned char large[large_bytes];
};

static std::mutex idle_mutex;
static std::vector<Runner*> idle;  // runners that no launch has

static Runner* take_runner() {
  std::lock_guard<std::mutex> lock(idle_mutex);
  if (idle.empty()) return new Runner();
  Runner* r = idle.back();
  idle.pop_back();
  return r;
}

static void give_runner(Runner* r) {
  r->error.clear();
  std::lock_guard<std::mutex> lock(idle_mutex);
  idle.push_back(r);
}

static thread_local Runner* running;
// Never inlined: a fiber must not keep the address of a thread-local variable over a switch.
__attribute__((noinline)) static Runner* runner() { return running; }

static void fiber() {
  Runner* r = runner();
  r->entry(r->args);
  emulator_pause(DONE, "return", 0);
  abort();
}

static std::string where(const Runner* r, int thread) {
  char text[200];
  const Lane& lane = r->lanes[thread];
  snprintf(text, sizeof text, "thread %d in %s at line %d", thread, lane.operation, lane.line);
  return text;
}

static void shuffle(Runner* r, std::vector<int>& order) {
  for (size_t i = order.size(); i > 1; i--) {
    r->random = r->random * 1664525u + 1013904223u;
    std::swap(order[i - 1], order[(r->random >> 8) % i]);
  }
}

// run_simdgroup runs the lanes of a simdgroup until all wait at a barrier or have returned.
static bool run_simdgroup(Runner* r, int first, int lanes, std::vector<int>& order, bool shuffled) {
  for (;;) {
    if (shuffled) shuffle(r, order);
    for (int lane : order) {
      const int thread = first + lane;
      if (lane >= lanes || r->lanes[thread].state != READY) continue;
      r->group.current = thread;
      emulator_switch(&r->scheduler_sp, r->lanes[thread].sp);
      if (!r->error.empty()) return false;
    }
    int waiting = 0, at_simd = -1, elsewhere = -1;
    for (int i = first; i < first + lanes; i++) {
      if (r->lanes[i].state == AT_SIMD) {
        waiting++;
        at_simd = i;
      } else {
        elsewhere = i;
      }
    }
    if (waiting == 0) return true;
    if (waiting < lanes) {
      r->error = "simd operation in divergent code: " + where(r, at_simd) + ", " + where(r, elsewhere);
      return false;
    }
    for (int i = first; i < first + lanes; i++) {
      if (r->lanes[i].line != r->lanes[first].line || strcmp(r->lanes[i].operation, r->lanes[first].operation) != 0) {
        r->error = "different simd operations meet: " + where(r, first) + ", " + where(r, i);
        return false;
      }
      r->lanes[i].state = READY;
    }
  }
}

// check_transfers finds the turn that nobody has waited for when a threadgroup ends.
static void check_transfers(Runner* r) {
  for (const auto& [place, t] : r->transfers) {
    if (t.expected == t.done) continue;
    char text[200];
    snprintf(text, sizeof text, "a threadgroup ends with copies under way: turn %u, by thread %d in port_transfer_expect at line %d, was not waited for",
             t.done, t.thread, t.line);
    r->error = text;
  }
}

// retry_transfers has threads that wait for transfers or arrivals look again. Where nothing has happened since they last looked,
// they say what is missing. It returns false where no thread waits for either.
static bool retry_transfers(Runner* r, size_t* before) {
  size_t now = 1;
  bool any = false;
  for (const auto& [place, t] : r->transfers) now += t.expected + t.done + t.copies.size();
  for (const auto& [place, a] : r->arrivals) now += a.arrived;
  for (Lane& lane : r->lanes) {
    now += lane.state == AT_BARRIER || lane.state == DONE;
    if (lane.state != AT_TRANSFER) continue;
    lane.state = READY;
    any = true;
  }
  r->stuck = any && now == *before;
  *before = now;
  return any;
}

// run_group runs one threadgroup. schedule 0 takes lanes and simdgroups in order, 1 in reverse, others shuffled.
static void run_group(Runner* r, uint32_t schedule) {
  Group& g = r->group;
  memset(r->arena, 0xff, r->limit);  // NaN
  memset(r->large, 0xff, r->memory);
  r->used = 0;
  r->places.clear();
  r->transfers.clear();
  r->arrivals.clear();
  r->stuck = false;
  size_t before = 0;
  r->random = schedule * 2654435761u + g.at[0] * 97u + g.at[1] * 31u + 1u;
  std::vector<int> groups(g.simds), lanes(32);
  for (int i = 0; i < g.simds; i++) groups[i] = schedule == 1 ? g.simds - 1 - i : i;
  for (int i = 0; i < 32; i++) lanes[i] = schedule == 1 ? 31 - i : i;
  while ((int)r->stacks.size() < g.threads) {
    void* stack = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) {
      r->error = "no memory for the stacks of the fibers";
      return;
    }
    r->stacks.push_back((char*)stack);
  }
  r->lanes.assign(g.threads, Lane());
  memset(g.simd_operations, 0, sizeof g.simd_operations);
  for (int i = 0; i < g.threads; i++) r->lanes[i] = Lane{new_stack(r->stacks[i] + stack_bytes, fiber), READY, 0, "start"};
  for (;;) {
    if (schedule > 1) shuffle(r, groups);
    for (int s : groups) {
      if (!run_simdgroup(r, s * 32, std::min(32, g.threads - s * 32), lanes, schedule > 1)) return;
    }
    if (retry_transfers(r, &before)) continue;
    int waiting = -1, returned = -1;
    for (int i = 0; i < g.threads; i++) (r->lanes[i].state == AT_BARRIER ? waiting : returned) = i;
    if (waiting < 0) return check_transfers(r);
    if (returned >= 0) {
      r->error = "barrier not reached by all: " + where(r, waiting) + ", " + where(r, returned);
      return;
    }
    for (Lane& lane : r->lanes) {
      if (lane.line != r->lanes[0].line) {
        r->error = "different barriers meet: " + where(r, 0) + ", " + where(r, int(&lane - &r->lanes[0]));
        return;
      }
    }
    for (Lane& lane : r->lanes) lane.state = READY;
  }
}

}  // namespace emulator

using namespace emulator;

extern "C" emulator::Group* emulator_group() { return &runner()->group; }

extern "C" void emulator_pause(emulator::State state, const char* operation, int line) {
  Runner* r = runner();
  Lane& lane = r->lanes[r->group.current];
  lane.state = state;
  lane.operation = operation;
  lane.line = line;
  emulator_switch(&lane.sp, r->scheduler_sp);
}

// fail ends the kernel with an error; it does not come back.
__attribute__((format(printf, 1, 2))) static void fail(const char* format, ...) {
  Runner* r = runner();
  char text[200];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  r->error = text;
  emulator_switch(&r->lanes[r->group.current].sp, r->scheduler_sp);
  abort();
}

extern "C" void* emulator_threadgroup_memory(const void* key, unsigned long bytes) {
  Runner* r = runner();
  auto it = r->places.find(key);
  if (it == r->places.end()) {
    const size_t at = (r->used + 15) & ~size_t(15);
    if (at + bytes > r->limit) {
      fail("%zu bytes of threadgroup memory, the limit is %zu", at + bytes, r->limit);
    }
    r->used = at + bytes;
    it = r->places.emplace(key, at).first;
  }
  return r->arena + it->second;
}

extern "C" void* emulator_large_memory(unsigned long bytes) {
  Runner* r = runner();
  if (bytes > r->memory) fail("TG_MEMORY of %lu bytes, the launch gives %zu", bytes, r->memory);
  return r->large;
}

// transfer_at is a port_transfer that was made ready; operation and line are for messages.
static Transfer& transfer_at(void* place, const char* operation, int line) {
  Runner* r = runner();
  auto it = r->transfers.find(place);
  if (it == r->transfers.end()) {
    fail("thread %d in %s at line %d: no port_transfer_init was there before", r->group.current, operation, line);
  }
  return it->second;
}

extern "C" void emulator_transfer_init(void* transfer, int line) {
  Runner* r = runner();
  if (!r->transfers.emplace(transfer, Transfer{}).second) {
    fail("thread %d in port_transfer_init at line %d: it is the second for this port_transfer", r->group.current, line);
  }
}

extern "C" void emulator_transfer_expect(void* transfer, uint32_t bytes, int line) {
  const int thread = runner()->group.current;
  Transfer& t = transfer_at(transfer, "port_transfer_expect", line);
  if (t.expected != t.done) {
    fail("thread %d in port_transfer_expect at line %d: turn %u is under way, nobody has waited for it", thread, line, t.done);
  }
  if (bytes % 16 != 0 || bytes >= 1 << 20) {
    fail("thread %d in port_transfer_expect at line %d: %u bytes, want a multiple of 16 below 2^20", thread, line, bytes);
  }
  t.expected++;
  t.bytes = bytes;
  t.thread = thread;
  t.line = line;
}

extern "C" void emulator_transfer_copy(void* to, const void* from, uint32_t bytes, void* transfer, int line) {
  Runner* r = runner();
  const int thread = r->group.current;
  Transfer& t = transfer_at(transfer, "port_transfer_copy", line);
  if (t.expected == t.done) {
    fail("thread %d in port_transfer_copy at line %d: no port_transfer_expect was there before for turn %u", thread, line, t.done);
  }
  if (bytes == 0 || bytes % 16 != 0 || uintptr_t(to) % 16 != 0 || uintptr_t(from) % 16 != 0) {
    fail("thread %d in port_transfer_copy at line %d: %u bytes from %p to %p, want multiples of 16", thread, line, bytes, from, to);
  }
  const uintptr_t at = uintptr_t(to), arena = uintptr_t(r->arena), large = uintptr_t(r->large);
  if (!(at >= arena && at + bytes <= arena + r->used) && !(at >= large && at + bytes <= large + r->memory)) {
    fail("thread %d in port_transfer_copy at line %d: %u bytes to what is not threadgroup memory", thread, line, bytes);
  }
  memset(to, 0xff, bytes);
  t.copies.push_back(Copy{to, from, bytes});
}

extern "C" void emulator_transfer_wait(void* transfer, uint32_t turn, int line) {
  for (;;) {
    const int thread = runner()->group.current;
    Transfer& t = transfer_at(transfer, "port_transfer_wait", line);
    if (turn + 1 == t.done && t.expected == t.done) return;  // others have waited for it
    size_t bytes = 0;
    for (const Copy& c : t.copies) bytes += c.bytes;
    const bool expected = t.expected != t.done;
    if (turn == t.done && expected && bytes == t.bytes) {
      for (const Copy& c : t.copies) memcpy(c.to, c.from, c.bytes);
      t.copies.clear();
      t.done++;
      return;
    }
    const bool may_come = turn == t.done && (!expected || bytes < t.bytes);
    if (!may_come || runner()->stuck) {
      if (turn != t.done || !expected) {
        fail("thread %d in port_transfer_wait at line %d: for turn %u, %u turns were expected and %u are done", thread, line, turn, t.expected, t.done);
      }
      fail("thread %d in port_transfer_wait at line %d: %zu bytes are copied in turn %u, %zu were expected", thread, line, bytes, turn, t.bytes);
    }
    emulator_pause(AT_TRANSFER, "port_transfer_wait", line);
  }
}

extern "C" void emulator_arrivals_init(void* arrivals, uint32_t simdgroups, int line) {
  Runner* r = runner();
  if (simdgroups == 0 || !r->arrivals.emplace(arrivals, Arrivals{simdgroups, 0}).second) {
    fail("thread %d in port_arrivals_init at line %d: it is the second for this port_arrivals, or for no simdgroups", r->group.current, line);
  }
}

// arrivals_at returns a port_arrivals that port_arrivals_init was called for. operation and line are for messages.
static Arrivals& arrivals_at(void* place, const char* operation, int line) {
  Runner* r = runner();
  auto it = r->arrivals.find(place);
  if (it == r->arrivals.end()) {
    fail("thread %d in %s at line %d: no port_arrivals_init was there before", r->group.current, operation, line);
  }
  return it->second;
}

extern "C" void emulator_arrive(void* arrivals, int line) { arrivals_at(arrivals, "port_arrive", line).arrived++; }

extern "C" void emulator_arrivals_wait(void* arrivals, uint32_t turn, int line) {
  for (;;) {
    const int thread = runner()->group.current;
    const Arrivals& a = arrivals_at(arrivals, "port_arrivals_wait", line);
    const uint32_t rounds = a.arrived / a.simdgroups;
    if (rounds == turn + 1) return;
    if (rounds > turn + 1 || runner()->stuck) {  // a device sees whether a number of rounds is odd, and no more
      fail("thread %d in port_arrivals_wait at line %d: for turn %u, %u of %u simdgroups have arrived in turn %u", thread, line, turn,
           a.arrived % a.simdgroups, a.simdgroups, rounds);
    }
    emulator_pause(AT_TRANSFER, "port_arrivals_wait", line);
  }
}

extern "C" void emulator_copy(void* to, const void* from, bool present, unsigned bytes, int line) {
  Runner* r = runner();
  const int thread = r->group.current;
  if (uintptr_t(to) % bytes != 0 || uintptr_t(from) % bytes != 0) {
    fail("thread %d in port_copy at line %d: from %p to %p, want multiples of %u", thread, line, from, to, bytes);
  }
  const uintptr_t at = uintptr_t(to), arena = uintptr_t(r->arena), large = uintptr_t(r->large);
  if (!(at >= arena && at + bytes <= arena + r->used) && !(at >= large && at + bytes <= large + r->memory)) {
    fail("thread %d in port_copy at line %d: to what is not threadgroup memory", thread, line);
  }
  memset(to, 0xff, bytes);
  Lane& lane = r->lanes[thread];
  lane.pieces.push_back(Piece{to, present ? from : nullptr, bytes, lane.groups});
}

extern "C" void emulator_copies_end() {
  Runner* r = runner();
  r->lanes[r->group.current].groups++;
}

extern "C" void emulator_copies_wait(int groups) {
  Runner* r = runner();
  Lane& lane = r->lanes[r->group.current];
  size_t kept = 0;
  for (const Piece& p : lane.pieces) {
    if (int(lane.groups - p.group) <= groups) {
      lane.pieces[kept++] = p;
    } else if (p.from != nullptr) {
      memcpy(p.to, p.from, p.bytes);
    } else {
      memset(p.to, 0, p.bytes);
    }
  }
  lane.pieces.resize(kept);
}

// emulator_launch runs a kernel over a grid of threadgroups. entry is its <name>_entry, info its
// <name>_entry_info: the largest threadgroup and the number of arguments. shape is the grid's three numbers
// and the threadgroup's. limit is the size of threadgroup memory in bytes, memory that of TG_MEMORY, which is not
// counted there. It returns 0, or 1 and what went wrong in error.
extern "C" int emulator_launch(Entry entry, const int* info, void* const* args, long count, const uint32_t* shape,
                               uint32_t schedule, long limit, long memory, char* error, long error_bytes) {
  const uint64_t total = uint64_t(shape[0]) * shape[1] * shape[2];
  const uint64_t threads = uint64_t(shape[3]) * shape[4] * shape[5];
  std::string problem;
  if (threads == 0 || threads > 1024 || threads > uint64_t(info[0])) {
    problem = "a threadgroup of " + std::to_string(threads) + " threads, the kernel allows " + std::to_string(info[0]);
  } else if (count != info[1]) {
    problem = std::to_string(count) + " arguments, the kernel has " + std::to_string(info[1]);
  } else if (limit > long(arena_bytes)) {
    problem = "threadgroup memory is at most " + std::to_string(arena_bytes) + " bytes";
  } else if (memory > long(large_bytes)) {
    problem = "TG_MEMORY is at most " + std::to_string(large_bytes) + " bytes";
  }
  std::atomic<uint64_t> next{0};
  std::atomic<bool> failed{!problem.empty()};
  auto work = [&] {
    Runner* r = take_runner();
    Group& g = r->group;
    memcpy(g.grid, shape, sizeof g.grid);
    memcpy(g.size, shape + 3, sizeof g.size);
    g.threads = int(threads);
    g.simds = (g.threads + 31) / 32;
    r->entry = entry;
    r->args = args;
    r->limit = size_t(limit);
    r->memory = size_t(memory);
    running = r;
    for (uint64_t i; !failed && (i = next++) < total;) {
      const uint64_t j = schedule == 1 ? total - 1 - i : i;
      g.at[0] = uint32_t(j % g.grid[0]);
      g.at[1] = uint32_t(j / g.grid[0] % g.grid[1]);
      g.at[2] = uint32_t(j / g.grid[0] / g.grid[1]);
      run_group(r, schedule);
      if (!r->error.empty() && !failed.exchange(true)) problem = r->error;
    }
    give_runner(r);
  };
  uint64_t workers = std::thread::hardware_concurrency();
  if (workers > total) workers = total;
  if (workers < 1) workers = 1;
  std::vector<std::thread> pool;
  for (uint64_t i = 0; i < workers; i++) pool.emplace_back(work);
  for (std::thread& t : pool) t.join();
  if (problem.empty()) return 0;
  snprintf(error, size_t(error_bytes), "%s", problem.c_str());
  return 1;
}
