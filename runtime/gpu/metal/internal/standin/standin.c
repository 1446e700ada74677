//go:build ignore

// A stand-in for the Objective-C runtime and Metal, as much of them as package host uses, for tests on Linux.
//
// It counts references, refuses what the system would refuse or what would go wrong there silently (unknown
// selectors, those of macOS 15 on macOS 14, dead objects, autorelease without a pool, missing bindings, buffers that are in no
// residency set, threadgroups that are too large, sequences without a fence, more command buffers than a queue
// takes), and runs kernels with the emulator of package kernels. A command buffer runs when
// somebody waits for it and no earlier, and dispatches between two barriers run last to first: a host that
// forgot a wait or a barrier gives wrong results.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uintptr_t Word;
enum { MAX_ARGUMENTS = 31, MAX_BYTES = 4096, MAX_POOL = 4096, MAX_COMMANDS = 64 };
enum { MATH_SAFE = 0, MATH_FAST = 2, FUNCTIONS_FAST = 0, FUNCTIONS_PRECISE = 1 };

typedef struct Object Object;

typedef struct {
  Object* buffer;
  Word offset;
  unsigned char bytes[MAX_BYTES];
  Word length;  // of bytes
} Argument;

typedef struct {
  Object* pipeline;
  Argument* arguments[MAX_ARGUMENTS];
  Word groups[3], threads[3];
  int barrier;
} Dispatch;

struct Object {
  const char* class;
  int references;
  int is_class;
  Object* owner;  // kept as long as the object
  char* text;
  void* memory;
  Word length;
  int owns_memory;
  void* handle;  // of a library
  // of a function and a pipeline
  Word max_threads, arguments;
  // of options
  Word language, math, functions;
  // of an encoder and a command buffer
  Dispatch* dispatches;
  int count, capacity;
  Dispatch current;
  int barrier, waits_fence, updates_fence, ended;
  Word status;
  double start, end;
  // of a queue: command buffers in order; of a residency set: allocations
  Object** members;
  int member_count, run_count;
  Object** removed;  // from a residency set, which keeps them until the next commit
  int removed_count;
  Object* residency;  // of a queue: its set; of a buffer: the set that has committed it, not kept
  int requested;      // of a residency set: since the last commit
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int live;
static int complaint_count;
static char complaint[4096];  // the first ones

// What the tests say of the system and its GPU, in the order of type Setting of the Go side.
enum { MACOS, FAMILY, LARGEST_BUFFER, NO_COPY, SIMDGROUP_WIDTH, STATIC_MEMORY, SETTINGS };
static const Word initial[SETTINGS] = {15, 1007, (Word)1 << 34, 1, 32, 0};
static Word setting[SETTINGS];

// The test's compiler: the path of a shared object for a text, or 0 with the reason in error.
static int (*compile_text)(const char* text, char* path_or_error, Word size);

static void complain(const char* format, ...) {
  va_list list;
  va_start(list, format);
  const size_t used = strlen(complaint);
  vsnprintf(complaint + used, sizeof complaint - used, format, list);
  va_end(list);
  if (strlen(complaint) + 2 < sizeof complaint) strcat(complaint, "\n");
  complaint_count++;
}

// -- what the tests ask --------------------------------------------------------------------------------------
void standin_compiler(void* f) { *(void**)&compile_text = f; }
int standin_live(void) { return live; }
const char* standin_complaints(void) { return complaint; }
void standin_reset(void) { complaint[0] = 0, complaint_count = 0, memcpy(setting, initial, sizeof setting); }
void standin_set(int which, Word value) { setting[which] = value; }

// -- objects ---------------------------------------------------------------------------------------------------
static Object* make(const char* class) {
  Object* o = calloc(1, sizeof *o);
  o->class = class;
  o->references = 1;
  pthread_mutex_lock(&lock);
  live++;
  pthread_mutex_unlock(&lock);
  return o;
}

static void drop(Object* o);

static void destroy(Object* o) {
  pthread_mutex_lock(&lock);
  live--;
  pthread_mutex_unlock(&lock);
  if (!strcmp(o->class, "MTLComputeCommandEncoder") && !o->ended) complain("an encoder was released before endEncoding");
  if (!strcmp(o->class, "MTLResidencySet") && o->member_count) complain("%d allocations were left in a residency set", o->member_count);
  if (o->owns_memory) free(o->memory);
  free(o->text);
  for (int i = 0; i < o->count; i++) {
    for (int j = 0; j < MAX_ARGUMENTS; j++) free(o->dispatches[i].arguments[j]);
  }
  for (int j = 0; j < MAX_ARGUMENTS; j++) free(o->current.arguments[j]);
  free(o->dispatches);
  for (int i = 0; i < o->member_count; i++) drop(o->members[i]);
  free(o->members);
  for (int i = 0; i < o->removed_count; i++) drop(o->removed[i]);
  free(o->removed);
  if (!strcmp(o->class, "MTLCommandQueue")) drop(o->residency);
  drop(o->owner);
  const char* class = o->class;
  memset(o, 0, sizeof *o);  // the body stays, so that a later use is seen
  o->class = class;
}

static void drop(Object* o) {
  if (!o || o->is_class) return;
  if (o->references <= 0) {
    complain("release of a dead %s", o->class);
    return;
  }
  if (--o->references == 0) destroy(o);
}

static Object* keep(Object* o) {
  if (o) o->references++;
  return o;
}

static __thread Object* pooled[MAX_POOL];
static __thread int pooled_count, pool_depth;
void* objc_autoreleasePoolPush(void) {
  pool_depth++;
  return (void*)(Word)(pooled_count + 1);
}
void objc_autoreleasePoolPop(void* token) {
  pool_depth--;
  while (pooled_count > (int)(Word)token - 1) drop(pooled[--pooled_count]);
}
static Object* autoreleased(Object* o) {
  if (!pool_depth) complain("a %s was autoreleased without a pool", o->class);
  else if (pooled_count < MAX_POOL) pooled[pooled_count++] = o;
  return o;
}

const char* sel_registerName(const char* name) {
  static const char* names[256];
  static int count;
  pthread_mutex_lock(&lock);
  int i = 0;
  while (i < count && strcmp(names[i], name)) i++;
  if (i == count) names[count++] = strdup(name);
  pthread_mutex_unlock(&lock);
  return names[i];
}

void* objc_getClass(const char* name) {
  static Object classes[] = {
      {.class = "NSString", .is_class = 1}, {.class = "MTLCompileOptions", .is_class = 1}, {.class = "MTLResidencySetDescriptor", .is_class = 1}};
  if (setting[MACOS] < 15 && !strcmp(name, "MTLResidencySetDescriptor")) return 0;
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
    if (!strcmp(classes[i].class, name)) return &classes[i];
  }
  return 0;
}

void* MTLCreateSystemDefaultDevice(void) { return make("MTLDevice"); }

static Object* string(const char* text) {
  Object* o = make("NSString");
  o->text = strdup(text);
  return o;
}

static Object* error(const char* text) {
  Object* o = make("NSError");
  o->owner = string(text);
  return autoreleased(o);
}

// grown is a list of objects with room for one more.
static Object** grown(Object** list, int count) { return realloc(list, sizeof *list * (count + 1)); }

static void add_member(Object* to, Object* o) {
  to->members = grown(to->members, to->member_count);
  to->members[to->member_count++] = keep(o);
}

// -- execution -------------------------------------------------------------------------------------------------
typedef int (*Launch)(void*, const void*, void* const*, long, const uint32_t*, uint32_t, long, long, char*, long);

// run runs a dispatch; 0, or what went wrong.
static char* run(const Dispatch* d) {
  static char text[500];
  void* arguments[MAX_ARGUMENTS];
  Object* pipeline = d->pipeline;
  if (pipeline->references <= 0) {
    complain("a dispatch runs with a dead pipeline");
    return "a dead pipeline";
  }
  for (Word i = 0; i < pipeline->arguments; i++) {
    const Argument* a = d->arguments[i];
    if (!a) {
      snprintf(text, sizeof text, "argument %d of %s is not bound", (int)i, pipeline->text);
      return text;
    }
    if (a->buffer && a->buffer->references <= 0) complain("%s runs with a dead buffer", pipeline->text);
    arguments[i] = a->buffer ? (char*)a->buffer->memory + a->offset : (void*)a->bytes;
  }
  uint32_t shape[6];
  for (int i = 0; i < 3; i++) shape[i] = (uint32_t)d->groups[i], shape[3 + i] = (uint32_t)d->threads[i];
  char name[200];
  void* library = pipeline->owner->owner->handle;
  snprintf(name, sizeof name, "%s_entry", pipeline->text);
  void* entry = dlsym(library, name);
  strcat(name, "_info");
  Launch launch;
  *(void**)&launch = dlsym(library, "emulator_launch");
  return launch(entry, dlsym(library, name), arguments, (long)pipeline->arguments, shape, 1, 32768, 0, text, sizeof text) ? text : 0;
}

static void execute(Object* commands) {
  static double clock = 1;
  commands->start = clock;
  commands->status = 4;
  for (int i = 0; i < commands->count && commands->status != 5;) {
    int next = i + 1;
    while (next < commands->count && !commands->dispatches[next].barrier) next++;
    for (int j = next - 1; j >= i; j--) {
      char* problem = run(&commands->dispatches[j]);
      if (problem) {
        commands->status = 5;
        free(commands->text);
        commands->text = strdup(problem);
        break;
      }
      clock += 0.25e-3;
    }
    i = next;
  }
  commands->end = clock;
}

// wait_for runs the queue's command buffers up to one.
static void wait_for(Object* commands) {
  Object* queue = commands->owner;
  if (commands->status < 2) complain("waitUntilCompleted before commit");
  if (!pool_depth) complain("waitUntilCompleted without a pool");
  while (commands->status < 4 && queue->run_count < queue->member_count) {
    Object* next = queue->members[queue->run_count];
    execute(next);
    queue->members[queue->run_count++] = 0;
    drop(next);
  }
}

// check_residency wants the buffers of a dispatch in the queue's residency set, where the system has such sets: what is bound
// is made resident one by one without, which costs time at each command buffer.
static void check_residency(Object* queue, const Dispatch* d) {
  for (Word i = 0; i < d->pipeline->arguments; i++) {
    const Object* buffer = d->arguments[i] ? d->arguments[i]->buffer : 0;
    if (!buffer || setting[MACOS] < 15) continue;
    if (!queue->residency || buffer->residency != queue->residency) complain("argument %d of %s is in no committed residency set of the queue", (int)i, d->pipeline->text);
    else if (!queue->residency->requested) complain("argument %d of %s is in a residency set that was committed, but not requested", (int)i, d->pipeline->text);
  }
}

static void commit(Object* commands) {
  Object* queue = commands->owner;
  for (int i = 0; i < commands->count; i++) check_residency(queue, &commands->dispatches[i]);
  if (commands->status) complain("commit of a command buffer that was committed");
  if (commands->count && !commands->ended) complain("commit before endEncoding");
  if (queue->run_count < queue->member_count && !commands->waits_fence) complain("a command buffer does not wait for the fence of those before");
  if (!commands->updates_fence) complain("a command buffer does not update the fence");
  commands->status = 2;
  add_member(queue, commands);
}

// -- messages --------------------------------------------------------------------------------------------------
static Argument* rebind(Object* encoder, Word index) {
  static Argument nowhere;
  if (index >= MAX_ARGUMENTS) {
    complain("argument %d", (int)index);
    return &nowhere;
  }
  Argument** a = &encoder->current.arguments[index];
  if (!*a) *a = malloc(sizeof **a);
  memset(*a, 0, sizeof **a);
  return *a;
}

static Word encode(Object* o, const char* name, Word a, Word b, Word c, const Word* sizes) {
  Object* commands = o->owner;
  if (o->ended) complain("%s after endEncoding", name);
  if (!strcmp(name, "setComputePipelineState:")) {
    o->current.pipeline = (Object*)a;
  } else if (!strcmp(name, "setBuffer:offset:atIndex:")) {
    Object* buffer = (Object*)a;
    if (b % 4) complain("offset %zu, want a multiple of 4", (size_t)b);
    if (b >= buffer->length) complain("offset %zu of a buffer of %zu bytes", (size_t)b, (size_t)buffer->length);
    Argument* to = rebind(o, c);
    to->buffer = buffer, to->offset = b;
  } else if (!strcmp(name, "setBytes:length:atIndex:")) {
    if (b > MAX_BYTES) complain("setBytes of %zu bytes", (size_t)b);
    Argument* to = rebind(o, c);
    to->length = b < MAX_BYTES ? b : MAX_BYTES;
    memcpy(to->bytes, (void*)a, to->length);
  } else if (!strcmp(name, "memoryBarrierWithScope:")) {
    if (a != 1) complain("memoryBarrierWithScope:%zu", (size_t)a);
    o->barrier = 1;
  } else if (!strcmp(name, "waitForFence:")) {
    if (o->count || commands->count) complain("waitForFence after a dispatch");
    commands->waits_fence = 1;
  } else if (!strcmp(name, "updateFence:")) {
    commands->updates_fence = 1;
  } else if (!strcmp(name, "dispatchThreadgroups:threadsPerThreadgroup:")) {
    if (!o->current.pipeline) {
      complain("a dispatch without a pipeline");
      return 0;
    }
    if (sizes[3] * sizes[4] * sizes[5] > o->current.pipeline->max_threads || sizes[3] * sizes[4] * sizes[5] == 0)
      complain("a threadgroup of %zu threads, %s allows %zu", (size_t)(sizes[3] * sizes[4] * sizes[5]), o->current.pipeline->text, (size_t)o->current.pipeline->max_threads);
    if (commands->count == commands->capacity) {
      commands->capacity = commands->capacity ? 2 * commands->capacity : 8;
      commands->dispatches = realloc(commands->dispatches, sizeof(Dispatch) * commands->capacity);
    }
    Dispatch* d = &commands->dispatches[commands->count++];
    *d = o->current;
    for (int i = 0; i < MAX_ARGUMENTS; i++) {
      if (!o->current.arguments[i]) continue;
      d->arguments[i] = malloc(sizeof(Argument));
      *d->arguments[i] = *o->current.arguments[i];
    }
    memcpy(d->groups, sizes, sizeof d->groups);
    memcpy(d->threads, sizes + 3, sizeof d->threads);
    d->barrier = o->barrier;
    o->barrier = 0;
  } else if (!strcmp(name, "endEncoding")) {
    o->ended = commands->ended = 1;
  } else {
    complain("-[%s %s]: unrecognized selector", o->class, name);
  }
  return 0;
}

static Word new_library(Object* source, Object* options, Object** failure) {
  if (!options || options->language != (3 << 16 | 1)) complain("language version %zx", (size_t)options->language);
  if (options->math != MATH_SAFE) complain("math mode is not safe");
  if (options->functions != FUNCTIONS_PRECISE) complain("floating-point functions are not precise");
  if (setting[MACOS] < 14) {
    *failure = error("invalid value 'metal3.1' in '-std=metal3.1'");
    return 0;
  }
  const Word size = 100000;
  char* text = malloc(size);
  void* handle = 0;
  if (!compile_text(source->text, text, size)) *failure = error(text);
  else if (!(handle = dlopen(text, RTLD_NOW | RTLD_LOCAL))) *failure = error(dlerror());
  free(text);
  if (!handle) return 0;
  Object* library = make("MTLLibrary");
  library->handle = handle;
  return (Word)library;
}

static Word new_function(Object* library, const char* name) {
  char symbol[200];
  snprintf(symbol, sizeof symbol, "%s_entry_info", name);
  const int* info = dlsym(library->handle, symbol);
  if (!info) return 0;
  Object* f = make("MTLFunction");
  f->owner = keep(library);
  f->text = strdup(name);
  f->max_threads = (Word)info[0];
  f->arguments = (Word)info[1];
  return (Word)f;
}

static Word new_buffer(void* memory, Word length, Word options) {
  if (length == 0 || length > setting[LARGEST_BUFFER]) {
    complain("a buffer of %zu bytes, the largest is %zu", (size_t)length, (size_t)setting[LARGEST_BUFFER]);
    return 0;
  }
  if (options != 1 << 8) complain("buffer options %zx, want shared and untracked", (size_t)options);
  const Word page = (Word)sysconf(_SC_PAGESIZE);
  if (memory && ((Word)memory % page || length % page)) {
    complain("no-copy memory of %zu bytes at %p is not whole pages", (size_t)length, memory);
    return 0;
  }
  if (memory && !setting[NO_COPY]) return 0;
  Object* b = make("MTLBuffer");
  b->length = length;
  b->memory = memory;
  if (!memory) {
    b->memory = aligned_alloc(page, (length + page - 1) / page * page);
    memset(b->memory, 0xff, length);
    b->owns_memory = 1;
  }
  return (Word)b;
}

static Word residency(Object* o, const char* name, Object* a) {
  if (!strcmp(name, "addAllocation:")) {
    add_member(o, a);
  } else if (!strcmp(name, "removeAllocation:")) {
    for (int i = 0; i < o->member_count; i++) {
      if (o->members[i] != a) continue;
      a->residency = 0;
      o->removed = grown(o->removed, o->removed_count);
      o->removed[o->removed_count++] = a;
      o->members[i] = o->members[--o->member_count];
      return 0;
    }
    complain("removeAllocation of what was not added");
  } else if (!strcmp(name, "commit")) {
    for (int i = 0; i < o->member_count; i++) o->members[i]->residency = o;
    while (o->removed_count) drop(o->removed[--o->removed_count]);
    o->requested = 0;
  } else if (!strcmp(name, "requestResidency")) {
    o->requested = 1;
  } else {
    complain("-[%s %s]: unrecognized selector", o->class, name);
  }
  return 0;
}

static Word device(Object* o, const char* name, Word a, Word b, Word c) {
  if (!strcmp(name, "name")) return (Word)autoreleased(string("stand-in"));
  if (!strcmp(name, "supportsFamily:")) return 0xabcdef00 | (a <= setting[FAMILY]);  // a BOOL is one byte, the rest is anything
  if (!strcmp(name, "maxBufferLength")) return setting[LARGEST_BUFFER];
  if (!strcmp(name, "recommendedMaxWorkingSetSize")) return (Word)1 << 32;
  if (!strcmp(name, "maxThreadgroupMemoryLength")) return 32768;
  if (!strcmp(name, "newCommandQueue")) {
    Object* q = make("MTLCommandQueue");
    q->owner = keep(o);
    return (Word)q;
  }
  if (!strcmp(name, "newFence")) return (Word)make("MTLFence");
  if (!strcmp(name, "newResidencySetWithDescriptor:error:")) return (Word)make("MTLResidencySet");
  if (!strcmp(name, "newLibraryWithSource:options:error:")) return new_library((Object*)a, (Object*)b, (Object**)c);
  if (!strcmp(name, "newBufferWithLength:options:")) return new_buffer(0, a, b);
  if (!strcmp(name, "newBufferWithBytesNoCopy:length:options:deallocator:")) return new_buffer((void*)a, b, c);
  if (!strcmp(name, "newComputePipelineStateWithFunction:error:")) {
    Object* f = (Object*)a;
    Object* p = make("MTLComputePipelineState");
    p->owner = keep(f);
    p->text = strdup(f->text);
    p->max_threads = f->max_threads;
    p->arguments = f->arguments;
    return (Word)p;
  }
  complain("-[%s %s]: unrecognized selector", o->class, name);
  return 0;
}

// too_new tells whether a message came with macOS 15, and the system is older.
static int too_new(const char* name) {
  static const char* const names[] = {"newResidencySetWithDescriptor:error:", "addResidencySet:", "setMathMode:", "setMathFloatingPointFunctions:"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!strcmp(names[i], name)) return setting[MACOS] < 15;
  }
  return 0;
}

static Word message(Object* o, const char* name, Word a, Word b, Word c, const Word* sizes) {
  if (o->is_class) {
    if (!strcmp(name, "new") && strcmp(o->class, "NSString")) {
      Object* made = make(o->class);
      made->math = MATH_FAST, made->functions = FUNCTIONS_FAST;  // of options
      return (Word)made;
    }
    if (!strcmp(name, "stringWithUTF8String:")) return (Word)autoreleased(string((const char*)a));
    complain("+[%s %s]: unrecognized selector", o->class, name);
    return 0;
  }
  if (o->references <= 0) {
    complain("%s was sent to a dead %s", name, o->class);
    return 0;
  }
  if (!strcmp(name, "retain")) return (Word)keep(o);
  if (!strcmp(name, "release")) {
    drop(o);
    return 0;
  }
  if (!strcmp(name, "respondsToSelector:")) return 0xabcdef00 | !too_new((const char*)a);
  if (too_new(name)) {
    complain("-[%s %s]: unrecognized selector", o->class, name);
    return 0;
  }
  if (!strcmp(o->class, "MTLDevice")) return device(o, name, a, b, c);
  if (!strcmp(o->class, "MTLComputeCommandEncoder")) return encode(o, name, a, b, c, sizes);
  if (!strcmp(o->class, "MTLResidencySet")) return residency(o, name, (Object*)a);
  if (!strcmp(o->class, "NSString") && !strcmp(name, "UTF8String")) return (Word)o->text;
  if (!strcmp(o->class, "NSError") && !strcmp(name, "localizedDescription")) return (Word)o->owner;
  if (!strcmp(o->class, "MTLCompileOptions")) {
    if (!strcmp(name, "setLanguageVersion:")) return o->language = a, 0;
    if (!strcmp(name, "setMathMode:")) return o->math = a, 0;
    if (!strcmp(name, "setMathFloatingPointFunctions:")) return o->functions = a, 0;
    if (!strcmp(name, "setFastMathEnabled:")) return o->math = a ? MATH_FAST : MATH_SAFE, o->functions = a ? FUNCTIONS_FAST : FUNCTIONS_PRECISE, 0;
  }
  if (!strcmp(o->class, "MTLLibrary") && !strcmp(name, "newFunctionWithName:")) return new_function(o, ((Object*)a)->text);
  if (!strcmp(o->class, "MTLComputePipelineState")) {
    if (!strcmp(name, "maxTotalThreadsPerThreadgroup")) return o->max_threads;
    if (!strcmp(name, "threadExecutionWidth")) return setting[SIMDGROUP_WIDTH];
    if (!strcmp(name, "staticThreadgroupMemoryLength")) return setting[STATIC_MEMORY];
  }
  if (!strcmp(o->class, "MTLBuffer") && !strcmp(name, "contents")) return (Word)o->memory;
  if (!strcmp(o->class, "MTLCommandQueue")) {
    if (!strcmp(name, "addResidencySet:")) return o->residency = keep((Object*)a), 0;
    if (!strcmp(name, "commandBufferWithUnretainedReferences")) {
      if (o->member_count - o->run_count >= MAX_COMMANDS) complain("a command buffer beside %d others: it waits for one of them", o->member_count - o->run_count);
      Object* commands = make("MTLCommandBuffer");
      commands->owner = keep(o);
      return (Word)autoreleased(commands);
    }
  }
  if (!strcmp(o->class, "MTLCommandBuffer")) {
    if (!strcmp(name, "computeCommandEncoderWithDispatchType:")) {
      if (a != 1) complain("the encoder is not concurrent");
      Object* e = make("MTLComputeCommandEncoder");
      e->owner = keep(o);
      return (Word)autoreleased(e);
    }
    if (!strcmp(name, "commit")) return commit(o), 0;
    if (!strcmp(name, "waitUntilCompleted")) return wait_for(o), 0;
    if (!strcmp(name, "status")) return o->status;
    if (!strcmp(name, "error")) return (Word)error(o->text ? o->text : "");
  }
  complain("-[%s %s]: unrecognized selector", o->class, name);
  return 0;
}

// The result's two halves are in the registers of an integer and of a double, as the caller wants either.
typedef struct {
  Word word;
  double seconds;
} Result;

Result objc_msgSend(Object* o, const char* name, Word a, Word b, Word c, Word d, Word s0, Word s1, Word s2, Word s3, Word s4, Word s5) {
  Result r = {0, 0};
  (void)d;
  if (!o) return r;
  Word sizes[6] = {0};
  if (!strcmp(name, "dispatchThreadgroups:threadsPerThreadgroup:")) {
#if defined(__x86_64__)
    const Word stack[6] = {s0, s1, s2, s3, s4, s5};  // two MTLSize on the stack
    memcpy(sizes, stack, sizeof sizes);
#else
    (void)s0, (void)s1, (void)s2, (void)s3, (void)s4, (void)s5;
    memcpy(sizes, (void*)a, 24);  // addresses of copies
    memcpy(sizes + 3, (void*)b, 24);
    a = b = 0;
#endif
  }
  if (!strcmp(o->class, "MTLCommandBuffer") && !strcmp(name, "GPUStartTime")) {
    r.seconds = o->start;
  } else if (!strcmp(o->class, "MTLCommandBuffer") && !strcmp(name, "GPUEndTime")) {
    r.seconds = o->end;
  } else {
    r.word = message(o, name, a, b, c, sizes);
  }
#if defined(__aarch64__)
  // There the struct is in x0 and x1: the double goes to d0 by hand.
  __asm__ volatile("fmov d0, %0" : : "r"(r.seconds) : "d0");
#endif
  return r;
}
