#!/usr/bin/env python3
"""Writes a program in C that passes null in the place of every pointer of every function of `alluvion/raw.h`, one at a time.

    capi/tests/null_sweep.py RAW_H >PROGRAM.c

The other arguments are fine, so that null is what the function finds. A function that answers a status answers
ALV_INVALID_ARGUMENT, and nulls what it would have given, unless NULLABLE says that its text allows null there. Other functions
answer what AS_NULL says.
A new function, or a new type of an argument, that this file has no value for is an error: it is added here.
"""
import re
import sys

# What a text calls "may be null".
NULLABLE = {
    ("alv_machine_sim", "options"), ("alv_set_machine", "machine"), ("alv_sim_report", "write"), ("alv_sim_report", "count"),
    ("alv_sim_fail", "call"), ("alv_resource_from_recipe", "recipe"), ("alv_resource_from_recipe_on", "recipe"),
    ("alv_resource_over", "layers"), ("alv_resource_with_oom_handler", "drop"), ("alv_describe", "needed"),
    ("alv_set_current_resource", "previous"), ("alv_reset_current_resource", "previous"), ("alv_trim", "given_back"),
    ("alluvion_handler_init", "resource"),
    ("alv_ledger_free_raw", "block"), ("alv_ledger_free_on", "block"), ("alv_ledger_free_sync", "block"),
    ("alv_ledger_size", "bytes"), ("alv_ledger_size", "base"), ("alv_ledger_live", "blocks"), ("alv_ledger_live", "bytes"),
    ("alv_limit_of", "used"), ("alv_limit_of", "limit"), ("alv_memory_info", "available"), ("alv_memory_info", "total"),
    ("alv_stats_push", "top"), ("alv_stats_pop", "top"),
    ("alv_resource_per_device", "machine"), ("alv_resource_per_device", "recipe"), ("alv_resource_per_device", "count"),
    ("alv_share_raw", "options"), ("alv_share_on", "options"), ("alv_shared_message", "needed"),
    ("alv_open_shared_raw", "options"), ("alv_open_shared_on", "options"),
    ("alv_sleep", "tag"), ("alv_sleep", "keep_in"), ("alv_sleep_block_raw", "keep_in"), ("alv_sleep_on_disk", "tag"),
    ("alv_saver_finish", "bytes"), ("alv_saved_name", "needed"),
    ("alv_on_violation", "drop"), ("alv_on_soft_limit", "drop"), ("alv_graph_memory_give_back", "given_back"),
    ("alv_set_segment_hooks", "added"), ("alv_set_segment_hooks", "dropped"), ("alv_set_segment_hooks", "drop"),
    ("alv_sharing_of", "machine"), ("alv_sharing_sweep", "machine"), ("alv_sharing_sweep", "freed"),
}
# What a function without a status answers to null, for each of its arguments or for one.
AS_NULL = {
    "alv_machine_retain": "== NULL", "alv_resource_retain": "== NULL", "alv_stream_retain": "== NULL",
    "alv_ledger_retain": "== NULL", "alv_stream_handle": "== NULL", "alv_resource_max_align": "== 0", "alv_sim_calls": "== 0",
    "alv_resource_equal": "== false", "alv_resource_host_accessible": "== false",
    "alv_shared_retain": "== NULL", "alv_imported_retain": "== NULL", "alv_shared_is_over": "== false",
    "alv_shared_descriptor": "== -1", "alv_sleeper_retain": "== NULL", "alv_reservation_retain": "== NULL", "alv_reservation_bytes": "== 0", "alv_graph_memory_retain": "== NULL",
    "alv_graph_memory_bytes": "== 0", "alv_saver_retain": "== NULL", "alv_saved_retain": "== NULL",
    "alluvion_handler_alloc": "== ALV_INVALID_ARGUMENT", "alluvion_handler_free": "== ALV_OK",
    ("alluvion_torch_base_alloc", "block"): "== NULL", ("alluvion_torch_base_alloc", "size"): "!= NULL",
}
# Values by the function and the name of an argument, by the type and the name, or by the type alone.
VALUES = {
    "alv_ledger *": "ledger", "alv_ledger **": "&made.ledger",
    "alv_resource * stack": "paged", "alv_resource * keep_in": "hosted", "char * tag": '"a_tag"',
    "alv_graph_memory *": "graph_memory", "alv_graph_memory **": "&made.graph_memory",
    "alv_reservation *": "reservation", "alv_reservation **": "&made.reservation", "fn observer": "observe_nothing", "size_t soft": "SIZE_MAX",
    "alv_sleeper *": "sleeper", "alv_sleeper **": "&made.sleeper", "alv_sleep_figures *": "&sleeping",
    "alv_saver *": "saver", "alv_saver **": "&made.saver", "alv_saved *": "saved", "alv_saved **": "&made.saved", "char * folder": "folder",
    "size_t place": "0", ("alv_saved_open", "path"): "saved_path", ("alv_saver_create", "path"): "saved_path",
    ("alv_saved_bytes", "name"): '"a_block"', ("alv_saved_restore_raw", "name"): '"a_block"',
    "alv_machine *": "machine", "alv_resource *": "resource", "alv_stream *": "stream",
    "alv_shared *": "shared", "alv_shared **": "&made.shared", "alv_imported *": "imported", "alv_imported **": "&made.imported",
    "void ** blocks": "made.blocks", "size_t * sizes": "sizes", "size_t count": "2",
    "alv_resource ** stacks": "made.stacks", "size_t places": "2", "void * message": "message", "size_t length": "length",
    "void * buffer": "place", "int32_t descriptor": "-1", "int64_t timeout_ms": "0", "alv_message *": "&told", "alv_range *": "&range",
    "alv_sharing *": "&sharing", "alv_share_options *": "&sharing_options", "alv_open_options *": "&opening_options",
    "alv_machine **": "&made.machine", "alv_resource **": "&made.resource", "alv_stream **": "&made.stream",
    "alv_cuda_stream *": "&made.bare",
    "void **": "&made.block", "void * block": "block", "void * to": "block", "void * from": "place", "void * address": "block",
    "void * user": "place", "void * param": "NULL", "void * ctx": "resource", "void * owner": "place",
    "char * recipe": '"cuda"', "char * layers": '"stats"', "char * name": '"a_name"',
    "char * call": '"cuMemAlloc"',
    "char * path": "path", "char * buffer": "text", "size_t *": "&number", "uint64_t *": "&tally", "int32_t *": "&small",
    "alv_counts *": "&counts", "alv_pool_status *": "&figures",
    "alv_sim_options *": "&options", "alv_source *": "&source", "alv_write": "write_nothing",
    "alv_cuda_stream": "NULL", "size_t bytes": "4096", "size_t align": "0", "size_t room": "sizeof text", "size_t keep": "0",
    "size_t size": "4096", "int device": "0", "alv_device_mem_handler *": "&handler", "int32_t device": "0",
    "int32_t number": "0", ("alv_export_segment", "resource"): "exported", ("alv_export_segment", "address"): "segment", "int32_t to": "0", "int32_t code": "2", "uint64_t nth": "1000000", "uint8_t value": "1",
    "uint32_t header": "ALV_VERSION", "uint32_t flags": "0", "alv_status status": "0",
    "fn added": "hear_nothing", "fn dropped": "hear_nothing", "fn see": "see_segment",
    "fn ask": "ask_nobody", "fn drop": "drop_nothing", "fn each": "each_block",
    ("alv_violations", "each"): "each_violation", ("alv_on_violation", "each"): "each_violation",
    ("alv_violations", "resource"): "guarded", ("alv_on_violation", "resource"): "guarded",
    ("alv_sleep_block_raw", "block"): "paged_block", ("alv_sleep_block_raw", "stack"): "paged_too",
    ("alv_sleep_block_on_disk_raw", "block"): "paged_block", ("alv_sleep_block_on_disk_raw", "stack"): "paged_too",
    ("alv_sleeper_read_kept", "sleeper"): "kept", ("alv_sleeper_read_kept", "from"): "kept_block", "void * into": "place",
}
# Any value is one, null too.
OPAQUE = {"user", "owner", "param", "ctx"}

PROGRAM = r"""/* Written by capi/tests/null_sweep.py. */
#include "expect.h"

static int write_nothing(void *user, const char *bytes, size_t n) { (void)user; (void)bytes; (void)n; return 0; }
static int32_t ask_nobody(void *user, const alv_oom_report *report) { (void)user; (void)report; return 0; }
static alv_status hear_nothing(void *user, const alv_segment *segment) { (void)user; (void)segment; return ALV_OK; }
static int see_segment(void *user, const alv_segment *segment) { (void)user; (void)segment; return 0; }
static const void *segment;
static int note_segment(void *user, const alv_segment *found) { (void)user; segment = found->address; return 1; }
static void drop_nothing(void *user) { (void)user; }
static int each_block(void *user, const alv_block *block) { (void)user; (void)block; return 0; }
static int each_violation(void *user, const alv_violation *violation) { (void)user; (void)violation; return 0; }
static int observe_nothing(void *user, const alv_crossing *crossing) { (void)user; (void)crossing; return 0; }
static alv_status give_nothing(void *user, size_t bytes, size_t align, alv_cuda_stream stream, void **out) {
    (void)user; (void)bytes; (void)align; (void)stream;
    *out = NULL;
    return ALV_OUT_OF_MEMORY;
}
static void take_nothing(void *user, void *block, size_t bytes, size_t align, alv_cuda_stream stream) {
    (void)user; (void)block; (void)bytes; (void)align; (void)stream;
}

static struct {
    alv_machine *machine;
    alv_resource *resource;
    alv_stream *stream;
    alv_ledger *ledger;
    alv_shared *shared;
    alv_imported *imported;
    alv_sleeper *sleeper;
    alv_saver *saver;
    alv_saved *saved;
    alv_reservation *reservation;
    alv_graph_memory *graph_memory;
    alv_resource *stacks[2];
    alv_cuda_stream bare;
    void *block, *blocks[2];
} made;
static alv_machine *machine;
static alv_resource *resource;
static alv_stream *stream;
static alv_ledger *ledger;
/* A block that is shared by a process and opened by another: by the one whose machine is not chosen. */
static alv_shared *shared;
static alv_imported *imported;
/* A stack over pages, memory to keep contents in, and what a tag of it has put to sleep. */
static alv_resource *paged, *hosted;
/* A block that sleeps by itself: others put all of the first stack to sleep. */
static void *paged_block;
/* One that sleeps all the time, with its contents in memory of the host. */
static void *kept_block;
static alv_sleeper *kept;
static alv_resource *paged_too;
static alv_resource *guarded, *exported;
static alv_reservation *reservation;
static alv_graph_memory *graph_memory;
static alv_sleeper *sleeper;
static alv_saver *saver;
static alv_saved *saved;
static char saved_path[4200], folder[4200];
static alv_machine *exporter;
static unsigned char message[ALV_MESSAGE_BYTES];
static size_t length;
static void *block, *entered;
static char place[4096], text[64];
static const char *path;
static size_t number;
static const size_t sizes[2] = {4096, 4096};
static uint64_t tally;
static int32_t small;

/* Before each call. What a failed call would have given is null, and the last failure has a report of its own. */
static void begin(void) {
    EXPECT_STATUS(alv_allocate(resource, (size_t)512 << 20, 0, NULL, &made.block), ALV_OUT_OF_MEMORY);
    made.machine = (alv_machine *)(void *)place;
    made.resource = (alv_resource *)(void *)place;
    made.stream = (alv_stream *)(void *)place;
    made.ledger = (alv_ledger *)(void *)place;
    made.shared = (alv_shared *)(void *)place;
    made.imported = (alv_imported *)(void *)place;
    made.sleeper = (alv_sleeper *)(void *)place;
    made.saver = (alv_saver *)(void *)place;
    made.saved = (alv_saved *)(void *)place;
    made.reservation = (alv_reservation *)(void *)place;
    made.graph_memory = (alv_graph_memory *)(void *)place;
    made.stacks[0] = made.stacks[1] = (alv_resource *)(void *)place;
    made.bare = (alv_cuda_stream)(void *)place;
    made.block = made.blocks[0] = made.blocks[1] = place;
}

static int is_null_or_untouched(const void *given) { return given == NULL || given == place; }

static void nothing_was_given(void) {
    EXPECT(is_null_or_untouched(made.machine) && is_null_or_untouched(made.resource) && is_null_or_untouched(made.stream) &&
           is_null_or_untouched(made.ledger) && is_null_or_untouched(made.bare) && is_null_or_untouched(made.block) &&
           is_null_or_untouched(made.shared) && is_null_or_untouched(made.imported) &&
           is_null_or_untouched(made.reservation) && is_null_or_untouched(made.graph_memory) && is_null_or_untouched(made.blocks[0]) && is_null_or_untouched(made.blocks[1]) &&
           is_null_or_untouched(made.sleeper) && is_null_or_untouched(made.saver) && is_null_or_untouched(made.saved) &&
           is_null_or_untouched(made.stacks[0]) && is_null_or_untouched(made.stacks[1]));
}

/* Lets go of what a call that allows null has given. */
static void end(void) {
    if (!is_null_or_untouched(made.machine)) alv_machine_release(made.machine);
    if (!is_null_or_untouched(made.resource)) alv_resource_release(made.resource);
    if (!is_null_or_untouched(made.stream)) alv_stream_release(made.stream);
    if (!is_null_or_untouched(made.ledger)) alv_ledger_release(made.ledger);
    if (!is_null_or_untouched(made.shared)) {
        OK(alv_shared_end(made.shared, 0));
        alv_shared_release(made.shared);
    }
    if (!is_null_or_untouched(made.imported)) alv_imported_release(made.imported);
    if (!is_null_or_untouched(made.sleeper)) alv_sleeper_release(made.sleeper);
    if (!is_null_or_untouched(made.saver)) alv_saver_release(made.saver);
    if (!is_null_or_untouched(made.saved)) alv_saved_release(made.saved);
    if (!is_null_or_untouched(made.reservation)) alv_reservation_release(made.reservation);
    for (int at = 0; at < 2; at++) {
        if (!is_null_or_untouched(made.stacks[at])) alv_resource_release(made.stacks[at]);
    }
    OK(alv_set_machine(machine));
    OK(alv_sim_clear_faults(machine));
}

int main(int count, char **arguments) {
    EXPECT(count == 2);
    path = arguments[1];
    machine = simulated();
    resource = stack("stats | tracking | limiting(1GiB) | pool(maximum=64MiB) | cuda");
    OK(alv_stream_create(0, &stream));
    OK(alv_allocate(resource, 4096, 0, NULL, &block));
    OK(alv_ledger_over(resource, &ledger));
    OK(alv_ledger_allocate(ledger, 4096, 0, NULL, &entered));
    OK(alv_sim_process(machine, &exporter));
    alv_resource *of_exporter = NULL;
    void *lent = NULL;
    OK(alv_resource_from_recipe_on(exporter, "cuda", 0, &of_exporter));
    OK(alv_allocate(of_exporter, 4096, 0, NULL, &lent));
    OK(alv_share(of_exporter, lent, 4096, 0, NULL, NULL, &shared));
    OK(alv_shared_message(shared, message, sizeof message, &length));
    OK(alv_open_shared(0, message, length, -1, NULL, NULL, &imported));
    paged = stack("tracking | pool | mapped");
    hosted = stack("pool | pinned");
    paged_too = stack("pool | mapped");
    OK(alv_allocate(paged_too, 4096, 0, NULL, &paged_block));
    OK(alv_allocate(paged_too, 4096, 0, NULL, &kept_block));
    OK(alv_sleep_block(paged_too, kept_block, NULL, hosted, &kept));
    OK(alv_sleeper_read_kept(kept, kept_block, place, sizeof place));
    guarded = stack("guard | cuda");
    exported = stack("pool(registered=8MiB, initial=8MiB) | mapped(handles=fd)");
    OK(alv_segments(exported, note_segment, NULL));
    OK(alv_reserve(resource, 4096, &reservation));
    OK(alv_sim_begin_capture(machine, 0, alv_stream_handle(stream)));
    OK(alv_capture(resource, alv_stream_handle(stream), &graph_memory));
    OK(alv_sim_end_capture(machine, 0, alv_stream_handle(stream)));
    OK(alv_graph_memory_end(graph_memory));
    OK(alv_sleep(paged, "a_tag", NULL, &sleeper));
    EXPECT(snprintf(saved_path, sizeof saved_path, "%s.saved", path) > 0 && snprintf(folder, sizeof folder, "%s", path) > 0);
    EXPECT(strrchr(folder, '/') != NULL);
    *strrchr(folder, '/') = 0;
    alv_saver *whole = NULL;
    OK(alv_saver_create(saved_path, &whole));
    OK(alv_saver_save(whole, resource, "a_block", block, 4096, NULL));
    OK(alv_saver_finish(whole, NULL));
    alv_saver_release(whole);
    OK(alv_saved_open(saved_path, &saved));
    OK(alv_saver_create(saved_path, &saver));
    alv_sleep_figures sleeping = ALV_INIT(alv_sleep_figures);
    alv_message told = ALV_INIT(alv_message);
    alv_range range = ALV_INIT(alv_range);
    alv_sharing sharing = ALV_INIT(alv_sharing);
    alv_share_options sharing_options = ALV_INIT(alv_share_options);
    alv_open_options opening_options = ALV_INIT(alv_open_options);
    alv_counts counts = ALV_INIT(alv_counts);
    alv_pool_status figures = ALV_INIT(alv_pool_status);
    alv_sim_options options = ALV_INIT(alv_sim_options);
    alv_device_mem_handler handler;
    alv_source source = ALV_INIT(alv_source);
    source.allocate = give_nothing;
    source.deallocate = take_nothing;
    /* A scope of the statistics for the call that ends one. */
    OK(alv_stats_push(resource, NULL));

@CALLS@
    /* Nothing was freed, and nothing is left. */
    OK(alv_sharing_of(NULL, 0, &sharing));
    EXPECT(sharing.imports == 1 && sharing.imported_bytes == 4096 && sharing.parked == 0);
    EXPECT_STATUS(alv_shared_end(shared, 0), ALV_IN_USE);
    alv_imported_release(imported);
    OK(alv_shared_end(shared, 0));
    alv_shared_release(shared);
    alv_deallocate(of_exporter, lent, 4096, 0, NULL);
    alv_resource_release(of_exporter);
    alv_machine_release(exporter);
    OK(alv_reset_current_resource(0, NULL));
    OK(alv_status_of(resource, &figures));
    EXPECT(figures.live_blocks == 2);
    OK(alv_ledger_free(ledger, entered, NULL));
    alv_ledger_release(ledger);
    alv_deallocate(resource, block, 4096, 0, NULL);
    alv_stream_release(stream);
    alv_sleeper_release(sleeper);
    alv_saver_release(saver);
    alv_saved_release(saved);
    EXPECT(remove(saved_path) == 0);
    alv_reservation_release(reservation);
    alv_graph_memory_release(graph_memory);
    alv_deallocate(paged_too, paged_block, 4096, 0, NULL);
    alv_deallocate(paged_too, kept_block, 4096, 0, NULL);
    alv_sleeper_release(kept);
    alv_resource_release(paged_too);
    alv_resource_release(paged);
    alv_resource_release(guarded);
    alv_resource_release(exported);
    alv_resource_release(hosted);
    alv_resource_release(resource);
    clean(machine);
    puts("nulls: @COUNT@ arguments of @FUNCTIONS@ functions: ok");
    return 0;
}
"""


def functions(header):
    """The name, the type and the arguments (type, name) of each function."""
    text = re.sub(r"//[^\n]*|^ALV_MUST_USE\s", "", header, flags=re.M)
    for answer, name, arguments in re.findall(
        r"^((?:const )?(?:struct )?\w+ \*?)((?:alv|alluvion)_\w+)\((.*?)\);", text, re.M | re.S
    ):
        yield name, answer.strip(), list(split(arguments))


def split(arguments):
    depth, part = 0, ""
    for letter in arguments + ",":
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            part = " ".join(part.split()).replace("*const *", "**")
            function = re.match(r".*\(\*(\w+)\)\(", part)
            if function:
                yield "fn", function[1]
            elif part != "void":
                kind, stars, name = re.fullmatch(r"(?:const )?(?:struct )?(\w+) ?(\**)(\w+)", part).groups()
                yield f"{kind} {stars}".strip(), name
            part = ""
        else:
            part += letter


def value(function, kind, name):
    if name == "block" and ("ledger" in function or "record" in function):
        return "entered"
    if name == "room" and function == "alv_shared_message":
        return "sizeof place"
    for key in ((function, name), f"{kind} {name}", kind):
        if key in VALUES:
            return VALUES[key]
    sys.exit(f"{function}: no value for an argument `{kind} {name}`: add one to {__file__}")


def is_pointer(kind, name):
    return (kind.endswith("*") or kind in ("fn", "alv_write")) and name not in OPAQUE


calls, count, swept, unused = [], 0, set(), set(NULLABLE)
for function, answer, arguments in functions(open(sys.argv[1]).read()):
    for at, (kind, name) in enumerate(arguments):
        if not is_pointer(kind, name):
            continue
        given = ", ".join("NULL" if at == other else value(function, *argument) for other, argument in enumerate(arguments))
        call = f"{function}({given})"
        calls.append("    begin();")
        if answer == "alv_status":
            allowed = (function, name) in NULLABLE
            unused.discard((function, name))
            calls.append(f"    EXPECT_STATUS({call}, {'ALV_OK' if allowed else 'ALV_INVALID_ARGUMENT'});")
            if not allowed:
                calls.append("    nothing_was_given();")
        elif answer == "void":
            calls.append(f"    {call};")
        elif (as_null := AS_NULL.get((function, name), AS_NULL.get(function))) is not None:
            calls.append(f"    EXPECT({call} {as_null});")
        else:
            sys.exit(f"{function}: what does it answer to null? add it to AS_NULL of {__file__}")
        if (function, name) == ("alv_stats_pop", "top"):
            calls.append("    OK(alv_stats_push(resource, NULL));")
        calls.append("    end();")
        count += 1
        swept.add(function)
if unused or count < 80:
    sys.exit(f"{count} arguments were found; not among them: {sorted(unused)}")
print(PROGRAM.replace("@CALLS@", "\n".join(calls)).replace("@COUNT@", str(count)).replace("@FUNCTIONS@", str(len(swept))), end="")
