/*
 * Memory that processes share: its message and its descriptor go over a Unix socket, the other side reads and writes, and either side
 * is killed. The two are simulated processes, each with a thread; with ON_A_GPU they are processes of the system on a GPU.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "other_process.h"
#ifdef ON_A_GPU
#include "torch_handles.h"
#endif

/* The other side: opens, reads, writes, and gives it up when it may; or is killed while it has the memory. */
static void import(alv_machine *machine, int device, int socket) {
    const side here = begin_side(machine, device, "cuda", socket);
    unsigned char bytes[ALV_MESSAGE_BYTES];
    int descriptor = -1;
    const size_t length = receive_message(socket, bytes, &descriptor);
    alv_open_options options = ALV_INIT(alv_open_options);
    options.flags = ALV_OPEN_WRITABLE | (device == 0 ? 0 : ALV_OPEN_PEER);
    alv_imported *imported = NULL;
    OK(alv_open_shared_on(here.stream, bytes, length, descriptor, &options, &imported));
    if (descriptor >= 0) EXPECT(close(descriptor) == 0);
    alv_range range = ALV_INIT(alv_range);
    OK(alv_imported_range(imported, &range));
    EXPECT(range.bytes == BYTES && range.visible_bytes >= BYTES && range.flags == ALV_OPEN_WRITABLE && range.device == device);
    require_words(&here, range.data, 3, 0);
    OK(alv_fill_raw(here.memory, (char *)range.data + BYTES / 2, 0xA5, BYTES / 2, alv_stream_handle(here.stream)));
    OK(alv_stream_synchronize(here.stream));
    tell(socket, 'W');
    if (wait_for_step(socket) == 'G') {
        alv_imported_release(imported);
        tell(socket, 'D');
    } else {
        /* Killed. What the kernel does for a process is done by hand for a simulated one. */
        alv_imported_release(imported);
    }
    end_side(&here);
}

/* The other side: shares, and is killed. */
static void export(alv_machine *machine, int device, int socket) {
    const side here = begin_side(machine, device, "pool | cuda", socket);
    uint32_t *words = malloc(BYTES);
    EXPECT(words != NULL);
    word_pattern(words, 5);
    void *block = NULL;
    alv_shared *shared = NULL;
    OK(alv_allocate_on(here.memory, BYTES, 0, here.stream, &block));
    copy(&here, block, words, BYTES);
    free(words);
    OK(alv_share_on(here.memory, block, BYTES, 0, NULL, here.stream, &shared));
    send_message(socket, shared);
    EXPECT(wait_for_step(socket) != 'G');
    alv_shared_release(shared);
    alv_deallocate_on(here.memory, block, BYTES, 0, here.stream);
    end_side(&here);
}

static void *filled(const side *here, uint32_t seed) {
    uint32_t *words = malloc(BYTES);
    EXPECT(words != NULL);
    word_pattern(words, seed);
    void *block = NULL;
    OK(alv_allocate_on(here->memory, BYTES, 0, here->stream, &block));
    copy(here, block, words, BYTES);
    free(words);
    return block;
}

static alv_shared *shared_by(const side *here, void *block) {
    alv_share_options options = ALV_INIT(alv_share_options);
    options.flags = ALV_SHARE_WRITABLE;
    alv_shared *shared = NULL;
    OK(alv_share_on(here->memory, block, BYTES, 0, &options, here->stream, &shared));
    return shared;
}

static size_t importers(const alv_shared *shared) {
    size_t count = 7;
    OK(alv_shared_importers(shared, &count));
    return count;
}

/* The other side, on a device of its own, reads and writes, then gives it up. */
static void another_reads_and_writes(alv_machine *machine, int device, const char *recipe) {
    const side here = begin_side(machine, 0, recipe, -1);
    void *block = filled(&here, 3);
    alv_shared *shared = shared_by(&here, block);
    process other;
    start_on(&other, machine, device, "import");
    send_message(other.socket, shared);
    EXPECT(wait_for_step(other.socket) == 'W');
    EXPECT(importers(shared) == 1);
    EXPECT_STATUS(alv_shared_end(shared, 0), ALV_IN_USE);
    tell(other.socket, 'G');
    OK(alv_shared_end(shared, -1));
    EXPECT(alv_shared_is_over(shared) && alv_shared_descriptor(shared) == -1 && importers(shared) == 0);
    require_words(&here, block, 3, 1);
    EXPECT(wait_for_step(other.socket) == 'D');
    join(&other);
    alv_shared_release(shared);
    alv_deallocate_on(here.memory, block, BYTES, 0, here.stream);
    end_side(&here);
}

/* The other side is killed while it has the memory: the end returns. */
static void an_importer_is_killed(alv_machine *machine, const char *recipe) {
    const side here = begin_side(machine, 0, recipe, -1);
    void *block = filled(&here, 3);
    alv_shared *shared = shared_by(&here, block);
    process other;
    start(&other, machine, "import");
    send_message(other.socket, shared);
    EXPECT(wait_for_step(other.socket) == 'W');
    EXPECT_STATUS(alv_shared_end(shared, 1), ALV_IN_USE);
    kill_and_join(&other);
    OK(alv_shared_end(shared, -1));
    require_words(&here, block, 3, 1);
    alv_shared_release(shared);
    alv_deallocate_on(here.memory, block, BYTES, 0, here.stream);
    end_side(&here);
}

/* The side that shares is killed: what is open stays, and nothing else is opened. */
static void an_exporter_is_killed(alv_machine *machine) {
    const side here = begin_side(machine, 0, "cuda", -1);
    process other;
    start(&other, machine, "export");
    unsigned char bytes[ALV_MESSAGE_BYTES];
    int descriptor = -1;
    const size_t length = receive_message(other.socket, bytes, &descriptor);
    alv_imported *imported = NULL, *late = NULL;
    OK(alv_open_shared_on(here.stream, bytes, length, descriptor, NULL, &imported));
    alv_range range = ALV_INIT(alv_range);
    OK(alv_imported_range(imported, &range));
    EXPECT(range.flags == 0);
    require_words(&here, range.data, 5, 0);
    kill_and_join(&other);
    require_words(&here, range.data, 5, 0);
    alv_imported_release(imported);
    EXPECT_STATUS(alv_open_shared_on(here.stream, bytes, length, descriptor, NULL, &late), ALV_STALE);
    EXPECT(late == NULL);
    end_side(&here);
}

/* The block is the library's while the other side has it. */
static void a_block_is_parked(alv_machine *machine) {
    const side here = begin_side(machine, 0, "stats | pool | cuda", -1);
    alv_shared *shared = shared_by(&here, filled(&here, 3));
    process other;
    start(&other, machine, "import");
    send_message(other.socket, shared);
    EXPECT(wait_for_step(other.socket) == 'W');
    OK(alv_shared_park_on(shared, here.stream));
    alv_shared_release(shared);
    alv_sharing sharing = ALV_INIT(alv_sharing);
    OK(alv_sharing_of(machine, 0, &sharing));
    EXPECT(sharing.parked == 1 && sharing.parked_bytes == BYTES && sharing.imports == 0);
    size_t freed = 7;
    OK(alv_sharing_sweep(machine, 0, &freed));
    EXPECT(freed == 0);
    tell(other.socket, 'G');
    EXPECT(wait_for_step(other.socket) == 'D');
    join(&other);
    OK(alv_sharing_sweep(machine, 0, &freed));
    EXPECT(freed == 1);
    alv_counts counts = ALV_INIT(alv_counts);
    OK(alv_stats(here.memory, &counts));
    EXPECT(counts.allocations.value == 0 && counts.allocations.total == 1);
    end_side(&here);
}

/* A child of a fork has no part in what its parent shares, and frees nothing. */
static void a_fork_has_no_part(alv_machine *machine) {
    const side here = begin_side(machine, 0, "pool | cuda", -1);
    void *block = filled(&here, 3);
    alv_shared *shared = shared_by(&here, block);
    const pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        size_t count = 7;
        EXPECT_STATUS(alv_shared_end(shared, -1), ALV_SHUT_DOWN);
        EXPECT_STATUS(alv_shared_importers(shared, &count), ALV_SHUT_DOWN);
        EXPECT_STATUS(alv_shared_park_on(shared, here.stream), ALV_SHUT_DOWN);
        EXPECT(alv_shared_descriptor(shared) == -1 && !alv_shared_is_over(shared));
        alv_shared_release(shared);
        _exit(0);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(importers(shared) == 0);
    require_words(&here, block, 3, 0);
    OK(alv_shared_end(shared, 0));
    alv_shared_release(shared);
    alv_deallocate_on(here.memory, block, BYTES, 0, here.stream);
    end_side(&here);
}

static void passed(int *parts, const char *part, const char *recipe) {
    ++*parts;
#ifdef ON_A_GPU
    printf("{\"program\": \"processes\", \"part\": \"%s\", \"recipe\": \"%s\", \"ok\": true}\n", part, recipe);
    fflush(stdout);
#else
    (void)part;
    (void)recipe;
#endif
}

int main(int count, char **arguments) {
    alv_machine *machine = NULL;
#ifdef ON_A_GPU
    const char *driver = getenv("ALLUVION_DRIVER");
    if (driver == NULL) driver = "cuda";
    OK(alv_machine_named(driver, &machine));
    if (count > 1) {
        const int device = count > 2 ? atoi(arguments[2]) : 0;
        if (strcmp(arguments[1], "import") == 0) import(machine, device, STDIN_FILENO);
        else if (strcmp(arguments[1], "export") == 0) export(machine, device, STDIN_FILENO);
        else open_as_torch(STDIN_FILENO);
        alv_machine_release(machine);
        return 0;
    }
#else
    (void)count;
    (void)arguments;
    machine = simulated();
#endif
    const char *recipes[] = {"cuda", "pool | cuda", "pool | cuda-async(handles=fd)", "mapped(handles=fd)",
                             "arena(bytes=8MiB) | mapped(handles=fd)"};
    int parts = 0;
    int32_t devices = 0;
    OK(alv_device_count(&devices));
    for (size_t at = 0; at < sizeof recipes / sizeof *recipes; at++) {
        another_reads_and_writes(machine, 0, recipes[at]);
        passed(&parts, "another reads and writes", recipes[at]);
        /* The driver imports a block of a pool for the pool's own device alone. */
        if (devices > 1 && strstr(recipes[at], "cuda-async") == NULL) {
            another_reads_and_writes(machine, 1, recipes[at]);
            passed(&parts, "another on a second device reads and writes", recipes[at]);
        }
        an_importer_is_killed(machine, recipes[at]);
        passed(&parts, "an importer is killed", recipes[at]);
    }
    an_exporter_is_killed(machine);
    passed(&parts, "an exporter is killed", "pool | cuda");
    a_block_is_parked(machine);
    passed(&parts, "a block is parked", "pool | cuda");
    a_fork_has_no_part(machine);
    passed(&parts, "a fork has no part", "pool | cuda");
#ifdef ON_A_GPU
    /* It asks the driver of CUDA by itself. */
    if (strcmp(driver, "cuda") == 0) {
        process other;
        start(&other, machine, "torch");
        share_as_torch(other.socket);
        join(&other);
        passed(&parts, "handles as PyTorch makes them", "pool | cuda");
    }
    alv_machine_release(machine);
#else
    clean(machine);
    printf("processes: ok, %d parts\n", parts);
#endif
    return 0;
}
