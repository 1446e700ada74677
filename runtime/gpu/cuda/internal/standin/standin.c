//go:build ignore

// A stand-in for libcuda and libnvrtc, as much of them as package cuda uses, for tests without a GPU.
//
// It counts what is made, refuses calls without a current context and handles that are not there, and runs kernels
// with the emulator of package kernels. Work on a stream is done when somebody waits for it and no earlier,
// copies from pinned memory included, and the nodes of a graph run in an unlikely order that their edges allow: a
// host that forgot a wait or an edge, or that uses pinned memory again too soon, gives wrong results.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef int Status;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, LAUNCH_FAILED = 719 };
enum { MAX_PARAMETERS = 32, MAX_CONSTANT = 4096 };

typedef struct {
  char* path;
  void* handle;
} Module;

typedef int (*Launch)(void*, const void*, void* const*, long, const uint32_t*, uint32_t, long, long, char*, long);

typedef struct {
  void* entry;
  void* info;
  const uint32_t* constant;  // the number of the argument that is a struct, or -1, and its size
  Launch launch;
  int dynamic, carveout;  // the dynamic shared memory that it may have, what is preferred of it in percent
} Function;

typedef enum { KERNEL, EMPTY, RECORD, SET, COPY, GRAPH } Kind;

typedef struct Node Node;
typedef struct Graph Graph;

typedef struct {
  struct Stream* stream;  // where it was recorded
  int waits;              // how many operations of the stream are before it
  double time;
} Event;

struct Node {
  Kind kind;
  Graph* graph;
  Node** after;
  int after_count;
  int done;
  // of a kernel
  Function* function;
  uint32_t shape[6], dynamic;
  uint64_t buffers[MAX_PARAMETERS];
  unsigned char constant[MAX_CONSTANT];
  // of the others
  Event* event;
  void *to, *from;
  size_t size;
  int value;
};

struct Graph {
  Node** nodes;
  int count, references;
};

typedef struct Stream {
  Node** operations;
  int count, done;
} Stream;

static _Atomic int live, complaints, programmatic;
static char complaint[4096];
static __thread void* current;
static char context;
static int failed;
static _Atomic int pinned = -1;  // allocations of pinned memory that succeed; -1: all do
static double now_ms;

static void complain(const char* format, ...) {
  va_list list;
  va_start(list, format);
  const size_t used = strlen(complaint);
  vsnprintf(complaint + used, sizeof complaint - used, format, list);
  va_end(list);
  if (strlen(complaint) + 2 < sizeof complaint) strcat(complaint, "\n");
  complaints++;
}

// -- what the tests ask --------------------------------------------------------------------------------------
static int (*compile_text)(const char* text, char* path_or_error, size_t size);
void standin_compiler(void* f) { *(void**)&compile_text = f; }
int standin_live(void) { return live; }
int standin_programmatic(void) { return programmatic; }
const char* standin_complaints(void) { return complaint; }
void standin_pinned(int count) { pinned = count; }
void standin_reset(void) { complaint[0] = 0, complaints = 0, failed = 0, programmatic = 0, live = 0, pinned = -1; }

// Threads of the host take turns: a call that needs the context has the stand-in to itself until it returns.
static pthread_mutex_t turn = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int take_turn(void) { return pthread_mutex_lock(&turn); }
static void end_turn(const int* taken) { (void)taken, pthread_mutex_unlock(&turn); }

#define NEEDS_CONTEXT                                                         \
  __attribute__((cleanup(end_turn), unused)) const int its_turn = take_turn(); \
  if (!current) {                                                             \
    return INVALID_CONTEXT;                                                   \
  }                                                                           \
  if (failed) return failed

// -- devices and contexts --------------------------------------------------------------------------------------
Status cuInit(unsigned flags) { return flags ? INVALID_VALUE : OK; }
Status cuDriverGetVersion(int* v) { return *v = 12080, OK; }
Status cuDeviceGetCount(int* n) { return *n = 1, OK; }
Status cuDeviceGet(int* d, int i) { return i ? INVALID_VALUE : (*d = 0, OK); }
Status cuDeviceGetName(char* name, int size, int d) { return (void)d, snprintf(name, (size_t)size, "stand-in"), OK; }
Status cuDeviceGetAttribute(int* value, int attribute, int d) {
  (void)d;
  switch (attribute) {
    case 1: *value = 1024; return OK;
    case 8: *value = 49152; return OK;
    case 16: *value = 4; return OK;
    case 75: *value = 9; return OK;
    case 76: *value = 0; return OK;
    case 97: *value = 232448; return OK;
  }
  return INVALID_VALUE;
}
Status cuGetErrorName(int status, const char** s) {
  *s = status == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" : status == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : status == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
  return OK;
}
Status cuGetErrorString(int status, const char** s) { return *s = status == LAUNCH_FAILED ? "unspecified launch failure" : "of the stand-in", OK; }
Status cuDevicePrimaryCtxRetain(void** c, int d) { return (void)d, live++, *c = &context, OK; }
Status cuDevicePrimaryCtxRelease_v2(int d) { return (void)d, live--, OK; }
Status cuCtxSetCurrent(void* c) { return current = c, OK; }
Status cuMemGetInfo_v2(size_t* available, size_t* total) { return *available = (size_t)4 << 30, *total = (size_t)4 << 30, OK; }

// -- memory: every allocation ends at a page that cannot be touched -------------------------------------------------
static Status allocate(void** p, size_t size, int fill) {
  NEEDS_CONTEXT;
  const size_t page = 4096, padded = (size + 15) / 16 * 16, whole = (padded + page - 1) / page * page;
  if (size == 0) return INVALID_VALUE;
  if (size > (size_t)4 << 30) return OUT_OF_MEMORY;
  char* all = mmap(0, whole + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return OUT_OF_MEMORY;
  *(size_t*)all = whole + 2 * page;  // the first page is ours
  mprotect(all + page + whole, page, PROT_NONE);
  char* at = all + page + whole - padded;
  if (size < (size_t)1 << 20) memset(at, fill, size);
  *p = at;
  live++;
  return OK;
}
static Status deallocate(void* p) {
  NEEDS_CONTEXT;
  char* all = (char*)((uintptr_t)p & ~(uintptr_t)4095) - 4096;
  munmap(all, *(size_t*)all);
  live--;
  return OK;
}
Status cuMemAlloc_v2(void** p, size_t size) { return allocate(p, size, 0xff); }
Status cuMemHostAlloc(void** p, size_t size, unsigned flags) {
  (void)flags;
  NEEDS_CONTEXT;
  if (pinned == 0) return OUT_OF_MEMORY;
  if (pinned > 0) pinned--;
  return allocate(p, size, 0xff);
}
static Status drain(Stream* s, int until);
static Stream* streams[64];
Status cuMemFree_v2(void* p) {
  NEEDS_CONTEXT;
  for (int i = 0; i < 64; i++) {  // the driver waits too
    if (streams[i]) drain(streams[i], streams[i]->count);
  }
  return deallocate(p);
}
Status cuMemFreeHost(void* p) { return cuMemFree_v2(p); }

// -- streams -----------------------------------------------------------------------------------------------------
Status cuStreamCreate(Stream** s, unsigned flags) {
  NEEDS_CONTEXT;
  (void)flags;
  *s = calloc(1, sizeof **s);
  int at = 0;
  while (streams[at]) at++;
  streams[at] = *s;
  live++;
  return OK;
}

static Node* enqueue(Stream* s, Kind kind) {
  s->operations = realloc(s->operations, sizeof(Node*) * (size_t)(s->count + 1));
  Node* n = calloc(1, sizeof *n);
  n->kind = kind;
  return s->operations[s->count++] = n;
}

static Status run_kernel(Node* n) {
  static char text[500];
  void* arguments[MAX_PARAMETERS];
  const int count = ((const int*)n->function->info)[1];
  for (int i = 0; i < count; i++) arguments[i] = (uint32_t)i == n->function->constant[0] ? (void*)n->constant : (void*)n->buffers[i];
  if (n->function->launch(n->function->entry, n->function->info, arguments, count, n->shape, 1, 49152, n->dynamic, text, sizeof text)) {
    complain("%s", text);
    return LAUNCH_FAILED;
  }
  return OK;
}

// run_graph runs, of the nodes that may run, the one that was added last, and every third time the first.
static Status run_graph(Graph* g) {
  for (int i = 0; i < g->count; i++) g->nodes[i]->done = 0;
  for (int left = g->count; left > 0; left--) {
    Node* next = 0;
    const int from_front = (g->count - left) % 3 == 2;
    for (int i = 0; i < g->count && !next; i++) {
      Node* n = g->nodes[from_front ? i : g->count - 1 - i];
      int ready = !n->done;
      for (int j = 0; j < n->after_count; j++) ready = ready && n->after[j]->done;
      if (ready) next = n;
    }
    if (!next) {
      complain("a graph with a cycle");
      return INVALID_VALUE;
    }
    next->done = 1;
    if (next->kind == KERNEL) {
      const Status status = run_kernel(next);
      if (status) return status;
    }
    now_ms += 0.001;
    if (next->kind == RECORD) next->event->time = now_ms;
  }
  return OK;
}

static void release_graph(Graph* g) {
  if (--g->references) return;
  for (int i = 0; i < g->count; i++) free(g->nodes[i]->after), free(g->nodes[i]);
  free(g->nodes);
  free(g);
}

static Status drain(Stream* s, int until) {
  for (; s->done < until; s->done++) {
    Node* n = s->operations[s->done];
    if (!failed) {
      if (n->kind == SET) memset(n->to, n->value, n->size);
      if (n->kind == COPY) memcpy(n->to, n->from, n->size);
      if (n->kind == GRAPH) failed = run_graph(n->graph);
    }
    if (n->kind == GRAPH) release_graph(n->graph);
    free(n);
  }
  return failed;
}
Status cuStreamSynchronize(Stream* s) {
  NEEDS_CONTEXT;
  return drain(s, s->count);
}
Status cuStreamDestroy_v2(Stream* s) {
  NEEDS_CONTEXT;
  drain(s, s->count);
  for (int i = 0; i < 64; i++) {
    if (streams[i] == s) streams[i] = 0;
  }
  free(s->operations);
  free(s);
  live--;
  return OK;
}
Status cuStreamBeginCapture_v2(Stream* s, int mode) { return (void)s, (void)mode, INVALID_VALUE; }
Status cuStreamEndCapture(Stream* s, Graph** g) { return (void)s, (void)g, INVALID_VALUE; }

Status cuMemsetD8Async(void* p, unsigned char value, size_t size, Stream* s) {
  NEEDS_CONTEXT;
  Node* n = enqueue(s, SET);
  n->to = p, n->value = value, n->size = size;
  return OK;
}
static Status copy(void* to, void* from, size_t size, Stream* s) {
  NEEDS_CONTEXT;
  Node* n = enqueue(s, COPY);
  n->to = to, n->from = from, n->size = size;
  return OK;
}
Status cuMemcpyHtoDAsync_v2(void* to, void* from, size_t size, Stream* s) { return copy(to, from, size, s); }
Status cuMemcpyDtoHAsync_v2(void* to, void* from, size_t size, Stream* s) { return copy(to, from, size, s); }

// -- events ------------------------------------------------------------------------------------------------------
Status cuEventCreate(Event** e, unsigned flags) {
  NEEDS_CONTEXT;
  (void)flags;
  live++;
  return *e = calloc(1, sizeof **e), OK;
}
Status cuEventDestroy_v2(Event* e) {
  NEEDS_CONTEXT;
  live--;
  free(e);
  return OK;
}
Status cuEventRecord(Event* e, Stream* s) {
  NEEDS_CONTEXT;
  return e->stream = s, e->waits = s->count, OK;
}
Status cuEventSynchronize(Event* e) {
  NEEDS_CONTEXT;
  return e->stream ? drain(e->stream, e->waits) : OK;
}
Status cuEventQuery(Event* e) { return cuEventSynchronize(e); }
Status cuEventElapsedTime(float* ms, Event* start, Event* end) { return *ms = (float)(end->time - start->time), OK; }

// -- modules: the code is the path of a shared object -----------------------------------------------------------------
Status cuModuleLoadData(Module** m, const char* code) {
  NEEDS_CONTEXT;
  void* handle = dlopen(code, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return INVALID_VALUE;
  *m = calloc(1, sizeof **m);
  (*m)->handle = handle;
  live++;
  return OK;
}
Status cuModuleUnload(Module* m) {
  NEEDS_CONTEXT;
  free(m);
  live--;
  return OK;
}
Status cuModuleGetFunction(Function** f, Module* m, const char* name) {
  NEEDS_CONTEXT;
  char symbol[200];
  void* entry = dlsym(m->handle, name);
  snprintf(symbol, sizeof symbol, "%s_info", name);
  void* info = dlsym(m->handle, symbol);
  snprintf(symbol, sizeof symbol, "%s_constant", name);
  const uint32_t* constant = dlsym(m->handle, symbol);
  if (!entry || !info || !constant) return NOT_FOUND;
  static Function functions[1000];  // they are the module's
  static _Atomic int count;
  Function* new = &functions[count++ % 1000];
  new->entry = entry, new->info = info, new->constant = constant, new->dynamic = 0, new->carveout = 0;
  *(void**)&new->launch = dlsym(m->handle, "emulator_launch");
  return *f = new, OK;
}
Status cuFuncGetAttribute(int* value, int attribute, Function* f) {
  NEEDS_CONTEXT;
  return attribute ? INVALID_VALUE : (*value = ((const int*)f->info)[0], OK);
}
Status cuFuncSetAttribute(Function* f, int attribute, int value) {
  NEEDS_CONTEXT;
  if (attribute == 8 && value >= 0 && value <= 232448) return f->dynamic = value, OK;
  if (attribute == 9 && value >= 0 && value <= 100) return f->carveout = value, OK;
  return INVALID_VALUE;
}

// -- graphs --------------------------------------------------------------------------------------------------------
typedef struct {
  Function* function;
  uint32_t shape[6], dynamic;
  void** parameters;
  void** extra;
} KernelParameters;

typedef struct {
  uint8_t from_port, to_port, type, reserved[5];
} Edge;

Status cuGraphCreate(Graph** g, unsigned flags) {
  NEEDS_CONTEXT;
  (void)flags;
  *g = calloc(1, sizeof **g);
  (*g)->references = 1;
  live++;
  return OK;
}
Status cuGraphDestroy(Graph* g) {
  NEEDS_CONTEXT;
  live--;
  return release_graph(g), OK;
}
static Status add(Node** n, Graph* g, Node** after, size_t count, Kind kind) {
  NEEDS_CONTEXT;
  Node* new = calloc(1, sizeof *new);
  new->kind = kind;
  new->graph = g;
  new->after = malloc(sizeof(Node*) * (count + 1));
  for (size_t i = 0; i < count; i++) {
    if (after[i]->graph != g) complain("a node of another graph");
    new->after[new->after_count++] = after[i];
  }
  g->nodes = realloc(g->nodes, sizeof(Node*) * (size_t)(g->count + 1));
  g->nodes[g->count++] = new;
  return *n = new, OK;
}
Status cuGraphAddKernelNode(Node** n, Graph* g, Node** after, size_t count, const KernelParameters* p) {
  const Status status = add(n, g, after, count, KERNEL);
  if (status) return status;
  (*n)->function = p->function;
  memcpy((*n)->shape, p->shape, sizeof p->shape);
  (*n)->dynamic = p->dynamic;
  if (p->dynamic > (uint32_t)p->function->dynamic) complain("%u bytes of dynamic shared memory, the function may have %d", p->dynamic, p->function->dynamic);
  if (p->dynamic && p->function->carveout != 100) complain("dynamic shared memory, and the cache is not carved out for it");
  if (p->extra) complain("parameters of a kernel node that should be 0");
  const int parameters = ((const int*)p->function->info)[1];
  for (int i = 0; i < parameters; i++) {
    if ((uint32_t)i == p->function->constant[0]) memcpy((*n)->constant, p->parameters[i], p->function->constant[1]);
    else memcpy(&(*n)->buffers[i], p->parameters[i], 8);
  }
  return OK;
}
Status cuGraphAddEmptyNode(Node** n, Graph* g, Node** after, size_t count) { return add(n, g, after, count, EMPTY); }
Status cuGraphAddChildGraphNode(Node** n, Graph* g, Node** after, size_t count, Graph* child) { return (void)child, add(n, g, after, count, EMPTY); }
Status cuGraphAddEventRecordNode(Node** n, Graph* g, Node** after, size_t count, Event* e) {
  const Status status = add(n, g, after, count, RECORD);
  if (!status) (*n)->event = e;
  return status;
}
Status cuGraphAddDependencies_v2(Graph* g, Node** from, Node** to, const Edge* edges, size_t count) {
  NEEDS_CONTEXT;
  for (size_t i = 0; i < count; i++) {
    if (from[i]->graph != g || to[i]->graph != g) complain("an edge between graphs");
    if (edges[i].type == 1) {
      programmatic++;
      if (from[i]->kind != KERNEL || to[i]->kind != KERNEL || edges[i].from_port != 1) complain("a programmatic edge of what is no kernel");
    }
    to[i]->after = realloc(to[i]->after, sizeof(Node*) * (size_t)(to[i]->after_count + 1));
    to[i]->after[to[i]->after_count++] = from[i];
  }
  return OK;
}
Status cuGraphInstantiateWithFlags(Graph** executable, Graph* g, uint64_t flags) {
  NEEDS_CONTEXT;
  (void)flags;
  g->references++;
  live++;
  return *executable = g, OK;
}
Status cuGraphExecDestroy(Graph* g) {
  NEEDS_CONTEXT;
  live--;
  return release_graph(g), OK;
}
Status cuGraphUpload(Graph* g, Stream* s) {
  NEEDS_CONTEXT;
  return (void)g, (void)s, OK;
}
Status cuGraphLaunch(Graph* g, Stream* s) {
  NEEDS_CONTEXT;
  g->references++;
  enqueue(s, GRAPH)->graph = g;
  return OK;
}

// -- NVRTC: the code of a program is the path of a shared object ---------------------------------------------------------
typedef struct {
  char *text, *code, *log;
} Program;

Status nvrtcVersion(int* major, int* minor) { return *major = 12, *minor = 8, OK; }
Status nvrtcGetNumSupportedArchs(int* n) { return *n = 2, OK; }
Status nvrtcGetSupportedArchs(int* a) { return a[0] = 80, a[1] = 90, OK; }
const char* nvrtcGetErrorString(int status) { return status ? "error" : "success"; }
Status nvrtcCreateProgram(Program** p, const char* text, const char* name, int headers, void* a, void* b) {
  if (headers || a || b || !name) return INVALID_VALUE;
  *p = calloc(1, sizeof **p);
  (*p)->text = strdup(text);
  return OK;
}
Status nvrtcDestroyProgram(Program** p) {
  free((*p)->text), free((*p)->code), free((*p)->log), free(*p);
  return *p = 0, OK;
}
Status nvrtcCompileProgram(Program* p, int count, const char* const* options) {
  if (count < 1 || strcmp(options[0], "--gpu-architecture=sm_90a")) complain("the options of NVRTC");
  const size_t size = 100000;
  p->code = calloc(1, size);
  p->log = strdup("");
  if (compile_text(p->text, p->code, size)) return OK;
  free(p->log);
  p->log = p->code;
  p->code = 0;
  return 6;
}
static Status give(const char* s, size_t* size, char* to) {
  if (!s) return INVALID_VALUE;
  if (size) *size = strlen(s) + 1;
  if (to) strcpy(to, s);
  return OK;
}
Status nvrtcGetProgramLogSize(Program* p, size_t* size) { return give(p->log, size, 0); }
Status nvrtcGetProgramLog(Program* p, char* to) { return give(p->log, 0, to); }
Status nvrtcGetCUBINSize(Program* p, size_t* size) { return give(p->code, size, 0); }
Status nvrtcGetCUBIN(Program* p, char* to) { return give(p->code, 0, to); }
Status nvrtcGetPTXSize(Program* p, size_t* size) { return give(p->code, size, 0); }
Status nvrtcGetPTX(Program* p, char* to) { return give(p->code, 0, to); }
