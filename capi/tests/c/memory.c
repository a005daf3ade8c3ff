/* How memory is asked for and given back, and what is refused. */
#include "expect.h"

static void blocks_of_every_kind_of_call(void) {
    alv_machine *machine = simulated();
    alv_resource *pool = stack("stats | pool(initial=64MiB) | cuda");
    alv_stream *stream = NULL;
    OK(alv_stream_create(0, &stream));
    alv_cuda_stream bare = alv_stream_handle(stream);

    void *blocks[4] = {NULL, NULL, NULL, NULL};
    OK(alv_allocate(pool, 1000, 0, NULL, &blocks[0]));
    OK(alv_allocate(pool, 1000, 16, bare, &blocks[1]));
    OK(alv_allocate_on(pool, 1000, 256, stream, &blocks[2]));
    OK(alv_allocate_sync(pool, 1000, 4096, &blocks[3]));
    for (int i = 0; i < 4; i++) {
        EXPECT(blocks[i] != NULL);
        EXPECT((uintptr_t)blocks[i] % 256 == 0);
        for (int k = 0; k < i; k++) EXPECT(blocks[i] != blocks[k]);
    }
    EXPECT((uintptr_t)blocks[3] % 4096 == 0);

    char sent[1000], back[1000];
    for (size_t i = 0; i < sizeof sent; i++) sent[i] = (char)(i * 7);
    memset(back, 0, sizeof back);
    OK(alv_copy(pool, blocks[1], sent, sizeof sent, bare));
    OK(alv_copy(pool, back, blocks[1], sizeof back, bare));
    OK(alv_synchronize(pool, bare));
    EXPECT(memcmp(sent, back, sizeof sent) == 0);
    OK(alv_fill(pool, blocks[1], 0x5A, 1000, bare));
    OK(alv_copy(pool, back, blocks[1], sizeof back, bare));
    OK(alv_stream_synchronize(stream));
    for (size_t i = 0; i < sizeof back; i++) EXPECT(back[i] == 0x5A);

    alv_counts counts = ALV_INIT(alv_counts);
    OK(alv_stats(pool, &counts));
    EXPECT(counts.allocations.value == 4 && counts.bytes.value == 4000 && counts.failures == 0);

    /* An alignment up to 256 is one, whichever names it. */
    alv_deallocate(pool, blocks[0], 1000, 256, NULL);
    alv_deallocate_on(pool, blocks[1], 1000, 1, stream);
    alv_deallocate(pool, blocks[2], 1000, 0, bare);
    alv_deallocate_sync(pool, blocks[3], 1000, 4096);
    OK(alv_stats(pool, &counts));
    EXPECT(counts.allocations.value == 0 && counts.bytes.value == 0 && counts.bytes.peak == 4000);

    alv_stream_release(stream);
    alv_resource_release(pool);
    clean(machine);
}

/* What layers that look for mistakes say of blocks that are freed with another alignment than they were asked for. */
static void alignments_up_to_256_are_no_mistake(void) {
    const char *recipes[] = {"tracking | cuda", "guard | cuda", "pool(checked=true) | cuda"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++) {
        alv_machine *machine = simulated();
        alv_resource *resource = stack(recipes[i]);
        for (size_t asked = 1; asked <= 256; asked *= 2) {
            for (size_t freed = 1; freed <= 256; freed *= 16) {
                void *block = NULL;
                OK(alv_allocate(resource, 100, asked, NULL, &block));
                alv_deallocate(resource, block, 100, freed, NULL);
            }
        }
        /* A block that was given back wrongly would not have been freed. */
        alv_pool_status figures = ALV_INIT(alv_pool_status);
        if (alv_status_of(resource, &figures) == ALV_OK) EXPECT(figures.live_blocks == 0 && figures.hits > 0);
        alv_resource_release(resource);
        clean(machine);
    }
}

static void many_blocks_are_all_or_none(void) {
    alv_machine *machine = simulated();
    alv_resource *pool = stack("stats | pool(initial=4MiB, maximum=4MiB) | cuda");
    const size_t sizes[3] = {1 << 20, 0, 1 << 20};
    void *blocks[3], *more[3] = {blocks, blocks, blocks};
    OK(alv_allocate_many(pool, sizes, 3, 0, NULL, blocks));
    EXPECT(blocks[0] != NULL && blocks[1] == NULL && blocks[2] != NULL && blocks[0] != blocks[2]);
    const size_t too_many[3] = {1 << 20, 1 << 10, 2 << 20};
    EXPECT_STATUS(alv_allocate_many(pool, too_many, 3, 0, NULL, more), ALV_OUT_OF_MEMORY);
    EXPECT(more[0] == NULL && more[1] == NULL && more[2] == NULL);
    alv_deallocate_many(pool, blocks, sizes, 3, 0, NULL);
    alv_counts counts = ALV_INIT(alv_counts);
    OK(alv_stats(pool, &counts));
    EXPECT(counts.allocations.value == 0);

    OK(alv_synchronize(pool, NULL));
    OK(alv_defragment(pool));
    alv_pool_status figures = ALV_INIT(alv_pool_status);
    OK(alv_status_of(pool, &figures));
    EXPECT(figures.largest_free_bytes == 4 << 20);
    alv_resource_release(pool);
    clean(machine);
}

static void no_bytes_are_null(void) {
    alv_machine *machine = simulated();
    alv_resource *resource = stack("stats | cuda");
    alv_stream *stream = NULL;
    OK(alv_stream_create(0, &stream));
    int place = 0;
    void *block = &place;
    OK(alv_allocate(resource, 0, 0, NULL, &block));
    EXPECT(block == NULL);
    block = &place;
    OK(alv_allocate_sync(resource, 0, 512, &block));
    EXPECT(block == NULL);
    block = &place;
    OK(alv_allocate_on(resource, 0, 1, stream, &block));
    EXPECT(block == NULL);
    /* Whatever size is named. */
    alv_deallocate(resource, NULL, 0, 0, NULL);
    alv_deallocate(resource, NULL, 4096, 0, NULL);
    alv_deallocate_sync(resource, NULL, SIZE_MAX, 3);
    alv_deallocate_on(resource, NULL, 1, 1, stream);
    alv_counts counts = ALV_INIT(alv_counts);
    OK(alv_stats(resource, &counts));
    EXPECT(counts.allocations.total == 0);
    alv_stream_release(stream);
    alv_resource_release(resource);
    clean(machine);
}

static void bad_requests_are_refused_and_leave_null(void) {
    alv_machine *machine = simulated();
    alv_resource *pool = stack("pool(initial=1MiB, maximum=4MiB) | cuda");
    alv_error_info info = ALV_INIT(alv_error_info);
    const struct {
        size_t bytes, align;
        alv_status status;
    } refused[] = {
        {SIZE_MAX, 0, ALV_SIZE_OVERFLOW},
        {(size_t)PTRDIFF_MAX, 0, ALV_SIZE_OVERFLOW},
        {(size_t)PTRDIFF_MAX + 1, 256, ALV_SIZE_OVERFLOW},
        {100, 3, ALV_INVALID_ALIGNMENT},
        {100, 257, ALV_INVALID_ALIGNMENT},
        {100, SIZE_MAX, ALV_INVALID_ALIGNMENT},
        {100, (size_t)1 << 62, ALV_UNSUPPORTED_ALIGNMENT},
        {(size_t)16 << 20, 0, ALV_OUT_OF_MEMORY},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        int place = 0;
        void *block = &place;
        EXPECT_STATUS(alv_allocate(pool, refused[i].bytes, refused[i].align, NULL, &block), refused[i].status);
        EXPECT(block == NULL);
        OK(alv_last_error(&info));
        EXPECT(info.status == refused[i].status);
        EXPECT(strlen(alv_last_error_message()) > 10);
        block = &place;
        EXPECT_STATUS(alv_allocate_sync(pool, refused[i].bytes, refused[i].align, &block), refused[i].status);
        EXPECT(block == NULL);
    }
    /* A call that succeeds keeps what the one before said. */
    void *block = NULL;
    OK(alv_allocate(pool, 100, 0, NULL, &block));
    OK(alv_last_error(&info));
    EXPECT(info.status == ALV_OUT_OF_MEMORY);
    alv_oom_report report = ALV_INIT(alv_oom_report);
    OK(alv_last_out_of_memory(&report));
    EXPECT(report.requested_bytes == (size_t)16 << 20 && report.maximum_bytes == (size_t)4 << 20);
    EXPECT(strcmp(report.refused_by, "Pool") == 0 && report.device == 0);
    alv_deallocate(pool, block, 100, 0, NULL);
    alv_resource_release(pool);
    clean(machine);
}

static void a_call_of_the_driver_that_fails_is_a_status(void) {
    alv_machine *machine = simulated();
    alv_resource *resource = stack("cuda");
    const struct {
        int32_t code;
        alv_status status;
    } failed[] = {{2, ALV_OUT_OF_MEMORY}, {999, ALV_DRIVER}, {4, ALV_SHUT_DOWN}};
    for (size_t i = 0; i < sizeof failed / sizeof *failed; i++) {
        int place = 0;
        void *block = &place;
        OK(alv_sim_fail(machine, "cuMemAlloc", 1, failed[i].code));
        EXPECT_STATUS(alv_allocate(resource, 4096, 0, NULL, &block), failed[i].status);
        EXPECT(block == NULL);
        alv_error_info info = ALV_INIT(alv_error_info);
        OK(alv_last_error(&info));
        EXPECT(info.cuda_code == failed[i].code);
        EXPECT(strcmp(info.call, "cuMemAlloc") == 0);
        EXPECT(strstr(alv_last_error_message(), "cuMemAlloc") != NULL);
        /* And the next one is served. */
        OK(alv_allocate(resource, 4096, 0, NULL, &block));
        alv_deallocate(resource, block, 4096, 0, NULL);
    }
    alv_resource_release(resource);
    clean(machine);
}

/* Behind a lost context, frees leak and say nothing, and requests say what happened. */
static void a_lost_context_is_said_and_frees_leak(void) {
    alv_machine *machine = simulated();
    alv_resource *pool = stack("pool(initial=1MiB) | cuda");
    void *block = NULL;
    OK(alv_allocate(pool, 4096, 0, NULL, &block));
    OK(alv_sim_fail(machine, "cuMemAlloc", 1, 700));
    void *more = &more;
    EXPECT_STATUS(alv_allocate(pool, (size_t)8 << 20, 0, NULL, &more), ALV_CONTEXT_LOST);
    EXPECT(more == NULL);
    alv_deallocate(pool, block, 4096, 0, NULL);
    alv_resource_release(pool);
    /* No report: the memory is gone with the context. */
    OK(alv_set_machine(NULL));
    alv_machine_release(machine);
}

static void *ask_for_memory(const alv_resource *resource) {
    void *block = NULL;
    OK(alv_allocate(resource, 1234, 0, NULL, &block));
    return block;
}

static int is_called_by_ask_for_memory(void *user, const alv_block *block) {
    EXPECT(block->bytes == 1234 && strcmp(block->tag, "load;table") == 0);
    /* The program's function, and none of the library's. */
    if (strstr(block->call_site, "ask_for_memory") == NULL) fprintf(stderr, "called by: %s\n", block->call_site);
    EXPECT(strstr(block->call_site, "ask_for_memory") != NULL);
    ++*(int *)user;
    return 0;
}

static void a_block_that_is_out_has_a_tag_and_a_caller(void) {
    alv_machine *machine = simulated();
    alv_resource *resource = stack("tracking(stacks=all) | pool | cuda");
    OK(alv_tag_push("load"));
    OK(alv_tag_push("table"));
    void *block = ask_for_memory(resource);
    alv_tag_pop();
    alv_tag_pop();
    int blocks = 0;
    OK(alv_outstanding(resource, is_called_by_ask_for_memory, &blocks));
    EXPECT(blocks == 1);
    alv_deallocate(resource, block, 1234, 0, NULL);
    alv_resource_release(resource);
    clean(machine);
}

int main(void) {
    OK(alv_check_version(ALV_VERSION));
    EXPECT_STATUS(alv_check_version(ALV_VERSION + 1), ALV_UNSUPPORTED);
    EXPECT_STATUS(alv_check_version(ALV_VERSION + (1 << 24)), ALV_UNSUPPORTED);
    EXPECT(alv_version() == ALV_VERSION);
    blocks_of_every_kind_of_call();
    alignments_up_to_256_are_no_mistake();
    many_blocks_are_all_or_none();
    no_bytes_are_null();
    bad_requests_are_refused_and_leave_null();
    a_call_of_the_driver_that_fails_is_a_status();
    a_lost_context_is_said_and_frees_leak();
    a_block_that_is_out_has_a_tag_and_a_caller();
    puts("memory: ok");
    return 0;
}
