/* Which stream a call means: the default streams of files that are compiled in both ways, streams that are wrapped, and others. */
#include <pthread.h>

#include "expect.h"
#include "null_stream.h"

static const alv_cuda_stream LEGACY = (alv_cuda_stream)1;
static const alv_cuda_stream PER_THREAD = (alv_cuda_stream)2;

/* Whether two calls mean one stream: then what the one frees is served to the other out of the cache of the stream. */
static int are_one(const null_stream_calls *first, alv_cuda_stream of_first, const null_stream_calls *second,
                   alv_cuda_stream of_second) {
    alv_resource *pool = stack("pool(initial=16MiB) | cuda");
    void *block = NULL;
    OK(first->allocate(pool, of_first, &block));
    first->deallocate(pool, block, of_first);
    alv_pool_status before = ALV_INIT(alv_pool_status), after = ALV_INIT(alv_pool_status);
    OK(alv_status_of(pool, &before));
    OK(second->allocate(pool, of_second, &block));
    OK(alv_status_of(pool, &after));
    second->deallocate(pool, block, of_second);
    alv_resource_release(pool);
    return after.hits == before.hits + 1;
}

static void null_is_the_default_stream_of_its_file(void) {
    EXPECT(are_one(&of_the_device, NULL, &of_the_device, LEGACY));
    EXPECT(!are_one(&of_the_device, NULL, &of_the_device, PER_THREAD));
    EXPECT(are_one(&of_the_thread, NULL, &of_the_device, PER_THREAD));
    EXPECT(!are_one(&of_the_thread, NULL, &of_the_device, LEGACY));
    EXPECT(!are_one(&of_the_thread, NULL, &of_the_device, NULL));
    EXPECT(are_one(&of_the_thread, LEGACY, &of_the_device, NULL));
    alv_resource *pool = stack("pool | cuda");
    of_the_device.round_trip(pool, NULL);
    of_the_thread.round_trip(pool, NULL);
    alv_stream *wrapped[2] = {of_the_device.wrap(NULL), of_the_thread.wrap(NULL)};
    EXPECT(alv_stream_handle(wrapped[0]) == NULL || alv_stream_handle(wrapped[0]) == LEGACY);
    EXPECT(alv_stream_handle(wrapped[1]) != NULL && alv_stream_handle(wrapped[1]) != LEGACY);
    alv_stream_release(wrapped[0]);
    alv_stream_release(wrapped[1]);
    alv_resource_release(pool);
}

static void *use_the_stream_of_this_thread(void *pool) {
    of_the_thread.round_trip(pool, NULL);
    void *block = NULL;
    OK(of_the_thread.allocate(pool, NULL, &block));
    return block;
}

/* What a thread frees on its own stream, another one gets in the order of both. */
static void threads_have_streams_of_their_own(void) {
    alv_resource *pool = stack("pool | cuda");
    for (int round = 0; round < 20; round++) {
        pthread_t ids[2];
        for (int i = 0; i < 2; i++) EXPECT(pthread_create(&ids[i], NULL, use_the_stream_of_this_thread, pool) == 0);
        for (int i = 0; i < 2; i++) {
            void *block = NULL;
            EXPECT(pthread_join(ids[i], &block) == 0);
            of_the_thread.deallocate(pool, block, NULL);
        }
    }
    alv_resource_release(pool);
}

static int drops;

static void drop(void *owner) {
    EXPECT(owner == &drops);
    drops++;
}

/* A stream by its handle is one stream, however it is named, until it ends. */
static void a_bare_stream_is_found_again(void) {
    alv_stream *first = NULL, *second = NULL;
    OK(alv_stream_create(0, &first));
    OK(alv_stream_create(0, &second));
    alv_cuda_stream bare[2] = {alv_stream_handle(first), alv_stream_handle(second)};
    EXPECT(bare[0] != bare[1]);
    EXPECT(are_one(&of_the_device, bare[0], &of_the_thread, bare[0]));
    EXPECT(!are_one(&of_the_device, bare[0], &of_the_device, bare[1]));
    alv_resource *pool = stack("pool | cuda");
    of_the_device.round_trip(pool, bare[0]);
    of_the_device.round_trip(pool, bare[1]);

    alv_stream *wrapped = NULL;
    OK(alv_stream_wrap(0, bare[0], &wrapped));
    EXPECT(alv_stream_handle(wrapped) == bare[0]);
    OK(alv_stream_synchronize(wrapped));
    alv_stream_release(wrapped);
    OK(alv_stream_wrap_owned(0, bare[1], &drops, drop, &wrapped));
    void *block = NULL;
    OK(alv_allocate_on(pool, 100, 0, wrapped, &block));
    alv_deallocate_on(pool, block, 100, 0, wrapped);
    EXPECT(drops == 0);
    alv_stream_release(wrapped);
    alv_resource_release(pool);
    alv_stream_release(first);
    alv_stream_release(second);
}

static void a_stream_of_another_device_is_refused(void) {
    alv_stream *other = NULL;
    OK(alv_stream_create(1, &other));
    alv_resource *pool = stack("pool | cuda");
    void *block = &block;
    EXPECT_STATUS(alv_allocate(pool, 100, 0, alv_stream_handle(other), &block), ALV_DEVICE_MISMATCH);
    EXPECT(block == NULL);
    EXPECT_STATUS(alv_allocate_on(pool, 100, 0, other, &block), ALV_DEVICE_MISMATCH);
    alv_stream *wrapped = NULL;
    const int drops_before = drops;
    EXPECT_STATUS(alv_stream_wrap(0, alv_stream_handle(other), &wrapped), ALV_DEVICE_MISMATCH);
    EXPECT_STATUS(alv_stream_wrap_owned(0, alv_stream_handle(other), &drops, drop, &wrapped), ALV_DEVICE_MISMATCH);
    /* The caller keeps the owner. */
    EXPECT(wrapped == NULL && drops == drops_before);
    /* A free on it has no order, so the block stays out. */
    OK(alv_allocate(pool, 100, 0, NULL, &block));
    alv_deallocate(pool, block, 100, 0, alv_stream_handle(other));
    alv_pool_status figures = ALV_INIT(alv_pool_status);
    OK(alv_status_of(pool, &figures));
    EXPECT(figures.live_blocks == 1);
    alv_deallocate(pool, block, 100, 0, NULL);
    alv_resource_release(pool);
    alv_stream_release(other);
}

/*
 * Streams of others come and go, destroyed as soon as they were named last: handles come again while the work of the old streams
 * may still run, and blocks are handed on in the order of that work, which the machine watches.
 */
static void streams_of_others_come_and_go(alv_machine *machine) {
    alv_resource *pool = stack("pool(initial=16MiB) | cuda");
    alv_cuda_stream before = NULL;
    int came_again = 0;
    for (int round = 0; round < 2000; round++) {
        alv_cuda_stream bare = NULL;
        OK(alv_sim_stream_create(machine, 0, &bare));
        came_again += bare == before;
        before = bare;
        void *block = NULL;
        OK(alv_allocate(pool, 4096, 0, bare, &block));
        OK(alv_fill(pool, block, (uint8_t)round, 4096, bare));
        alv_deallocate(pool, block, 4096, 0, bare);
        OK(alv_sim_stream_destroy(machine, 0, bare));
    }
    EXPECT(came_again > 100);
    alv_pool_status figures = ALV_INIT(alv_pool_status);
    OK(alv_status_of(pool, &figures));
    EXPECT(figures.live_blocks == 0 && figures.reserved_bytes <= (size_t)64 << 20);
    alv_resource_release(pool);
}

int main(void) {
    alv_machine *machine = simulated();
    null_is_the_default_stream_of_its_file();
    threads_have_streams_of_their_own();
    a_bare_stream_is_found_again();
    a_stream_of_another_device_is_refused();
    streams_of_others_come_and_go(machine);
    clean(machine);
    EXPECT(drops == 1);
    puts("streams: ok");
    return 0;
}
