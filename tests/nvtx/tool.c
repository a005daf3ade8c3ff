// A tool as NVIDIA's are: a library that NVTX_INJECTION64_PATH names. It writes down what it is told, one line a word, behind what is
// in the file TOOL_LOG. Written from the public headers of NVTX 3 (nvToolsExt.h, nvToolsExtMem.h, nvToolsExtMemCudaRt.h, nvtxTypes.h, nvtxExtTypes.h), apart
// from the library under test, so that two readings of them have to agree.
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { uint16_t version, size; uint32_t category; int32_t colorType; uint32_t color; int32_t payloadType, reserved0;
                 union { uint64_t ull; double d; } payload; int32_t messageType; union { const char *ascii; } message; } event_t;
typedef struct { size_t size; void const *ptr; } range_t;
typedef struct { uint16_t compat, size; uint32_t reserved0, usage, type; size_t descSize; void const *desc; uint32_t category,
                 messageType; const char *message; } heap_t;
typedef struct { uint16_t compat, size; uint32_t type; void *heap; size_t count, elementSize; void const *elements; void **out; } register_t_;
typedef struct { uint16_t compat, size; uint32_t type; size_t count, elementSize; void const *elements; } resize_t;
typedef struct { uint16_t compat, size; uint32_t refType; size_t count, elementSize; void *const *elements; } unregister_t;
typedef struct { uint32_t refType, nameType; void const *region; const char *name; uint32_t category, reserved0; } name_t;
typedef struct { uint16_t compat, size; uint32_t reserved0; size_t count, elementSize; name_t const *elements; size_t reserved1; } names_t;
typedef struct { size_t segmentId, slotCount; intptr_t *slots; } segment_t;
typedef struct { uint16_t version, size, module, compat; size_t segments; segment_t *first; void *getExport; void const *info; } module_t;
typedef struct { size_t size; int (*getModule)(int module, void (****table)(void), unsigned *size); } callbacks_t;
typedef struct { size_t size; uint32_t version, reserved0; void (*setVersion)(uint32_t); } versions_t;

static int is(const char *what) {
  const char *tool = getenv("TOOL");
  return tool && strstr(tool, what);
}

static void say(const char *format, ...) {
  static int file = -1;
  if (file < 0) file = open(getenv("TOOL_LOG"), O_WRONLY | O_APPEND | O_CREAT, 0600);
  char line[512];
  va_list more;
  va_start(more, format);
  int length = vsnprintf(line, sizeof line - 1, format, more);
  va_end(more);
  if (length > (int)sizeof line - 2) length = sizeof line - 2;
  line[length] = '\n';
  // One call a line, at the end of the file: the program under test writes its own lines there.
  if (write(file, line, length + 1) != length + 1) abort();
}

static void require(int holds, const char *what) {
  if (!holds) say("WRONG %s", what);
}

// Calls the program under test, from within the tool, if it has asked for that.
static void call_back(void) {
  const char *address = getenv("TOOL_CALLS");
  if (address) ((void (*)(void))(uintptr_t)strtoull(address, 0, 16))();
}

// The same on a thread of the tool's own, which it waits for.
static void *call_back_there(void *nothing) { call_back(); return nothing; }
static void call_back_elsewhere(void) {
  pthread_t thread;
  if (pthread_create(&thread, 0, call_back_there, 0) || pthread_join(thread, 0)) abort();
}

static void *domain_create(const char *name) { say("domain %s", name); return (void *)0x77; }
static void check_event(void *domain, event_t const *event) {
  require(domain == (void *)0x77, "domain of an event");
  require(event->version == 3 && event->size == sizeof *event && event->messageType == 1, "event");
  require(event->payloadType == 0 || event->payloadType == 1, "payload");
}
static void domain_mark(void *domain, event_t const *event) {
  check_event(domain, event);
  say("mark %llu %s", (unsigned long long)event->payload.ull, event->message.ascii);
  call_back();
}
static int domain_push(void *domain, event_t const *event) {
  check_event(domain, event);
  say("push %llu %s", (unsigned long long)event->payload.ull, event->message.ascii);
  call_back();
  return 0;
}
static int domain_pop(void *domain) { require(domain == (void *)0x77, "domain of a pop"); say("pop"); return 0; }

static void *of_memory(void) { return is("memory_only") ? 0 : (void *)0x77; }
static void *heap_register(void *domain, heap_t const *heap) {
  range_t const *range = heap->desc;
  require(domain == of_memory(), "domain of a heap");
  require(heap->compat == 0x0102 && heap->size == sizeof *heap && heap->usage == 1 && heap->type == 1, "heap");
  require(heap->descSize == sizeof *range && heap->messageType == 1, "range of a heap");
  say("heap %lx %zu %s", (uintptr_t)range->ptr, range->size, heap->message);
  call_back();
  return is("no_heaps") ? 0 : (void *)((uintptr_t)range->ptr ^ 0x5a5a);
}
static void heap_unregister(void *domain, void *heap) {
  require(domain == of_memory(), "domain of an end of a heap");
  say("unheap %lx", (uintptr_t)heap ^ 0x5a5a);
}
static void regions_register(void *domain, register_t_ const *batch) {
  require(domain == of_memory(), "domain of regions");
  require(batch->compat == 0x0102 && batch->size == sizeof *batch && batch->type == 1 && !batch->out, "regions");
  require(batch->elementSize == sizeof(range_t) && batch->count > 0, "elements of regions");
  for (size_t at = 0; at < batch->count; at++) {
    range_t const *range = (range_t const *)batch->elements + at;
    say("region %lx %zu %lx", (uintptr_t)range->ptr, range->size, (uintptr_t)batch->heap ^ 0x5a5a);
  }
  call_back();
}
static void regions_resize(void *domain, resize_t const *batch) {
  require(domain == of_memory(), "domain of a resize");
  require(batch->compat == 0x0102 && batch->size == sizeof *batch && batch->type == 1 && batch->count > 0, "resize");
  require(batch->elementSize == sizeof(range_t), "elements of a resize");
  for (size_t at = 0; at < batch->count; at++) {
    range_t const *range = (range_t const *)batch->elements + at;
    say("resize %lx %zu", (uintptr_t)range->ptr, range->size);
  }
}
static void mark_initialized(void *domain, void *stream, uint8_t isPerThread, resize_t const *batch) {
  require(domain == of_memory(), "domain of a mark of writes");
  require(batch->compat == 0x0102 && batch->size == sizeof *batch && batch->type == 1 && batch->count > 0, "mark of writes");
  require(batch->elementSize == sizeof(range_t) && stream && !isPerThread, "elements of a mark of writes");
  for (size_t at = 0; at < batch->count; at++) {
    range_t const *range = (range_t const *)batch->elements + at;
    say("written %lx %zu", (uintptr_t)range->ptr, range->size);
  }
  call_back();
}
static void regions_unregister(void *domain, unregister_t const *batch) {
  require(domain == of_memory(), "domain of an end of regions");
  require(batch->compat == 0x0102 && batch->size == sizeof *batch && batch->refType == 1 && batch->count > 0, "end of regions");
  require(batch->elementSize == sizeof(void *), "elements of an end of regions");
  for (size_t at = 0; at < batch->count; at++) say("unregion %lx", (uintptr_t)batch->elements[at]);
  call_back();
}
static void regions_name(void *domain, names_t const *batch) {
  require(domain == of_memory(), "domain of names");
  require(batch->compat == 0x0102 && batch->size == sizeof *batch && batch->count > 0, "names");
  require(batch->elementSize == sizeof(name_t), "elements of names");
  for (size_t at = 0; at < batch->count; at++) {
    name_t const *name = batch->elements + at;
    require(name->refType == 1 && name->nameType == 1, "a name");
    say("name %lx %s", (uintptr_t)name->region, name->name);
  }
}

// When it is unloaded, or the process ends.
__attribute__((destructor)) static void end(void) {
  if (is("says when it ends")) say("ended");
}

int InitializeInjectionNvtx2(const void *(*getExportTable)(uint32_t)) {
  if (is("memory_only")) return 0;
  versions_t const *versions = getExportTable(3);
  require(versions && versions->size == sizeof *versions && versions->version == 3, "versions");
  versions->setVersion(3);
  require(!getExportTable(2) && !getExportTable(99), "other tables");
  callbacks_t const *callbacks = getExportTable(1);
  require(callbacks && callbacks->size == sizeof *callbacks, "callbacks");
  const unsigned sizes[] = {0, 16, 9, 15, 7, 16, 7};
  void (***table)(void) = 0;
  for (int module = 1; module <= 6; module++) {
    unsigned size = 0;
    require(callbacks->getModule(module, &table, &size) == 1 && size == sizes[module], "size of a module");
    require(!table[0] && !table[size], "ends of a table");
    for (unsigned at = 1; at < size; at++) require(table[at] != 0, "a slot");
  }
  require(callbacks->getModule(7, &table, 0) == 0, "no such module");
  callbacks->getModule(5, &table, 0);
  *table[1] = (void (*)(void))domain_mark;
  *table[4] = (void (*)(void))domain_push;
  *table[5] = (void (*)(void))domain_pop;
  *table[12] = (void (*)(void))domain_create;
  if (is("waits for a thread")) call_back_elsewhere(); else call_back();
  // Both processes go on from here.
  if (is("forks")) fork();
  say("began");
  return is("refuses") ? 0 : 1;
}

int InitializeInjectionNvtxExtension(module_t *module) {
  if (is("ranges_only")) return 0;
  require(module->version == 3 && module->size == sizeof *module && module->module == 1 && module->compat == 0x0102, "module");
  require(module->segments == 1 && module->first->segmentId == 1 && module->first->slotCount == 63, "segment");
  intptr_t *slots = module->first->slots;
  for (int at = 0; at < 63; at++) slots[at] = 1;
  slots[0] = (intptr_t)heap_register;
  // It has begun, and wants less than is told here.
  if (is("heaps_only")) return 1;
  slots[1] = (intptr_t)heap_unregister;
  slots[3] = (intptr_t)regions_register;
  slots[4] = (intptr_t)regions_resize;
  slots[5] = (intptr_t)regions_unregister;
  if (!is("nameless")) slots[6] = (intptr_t)regions_name;
  if (!is("markless")) slots[16] = (intptr_t)mark_initialized;
  say("began memory");
  return is("refuses") ? 0 : 1;
}
