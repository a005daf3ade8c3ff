/* A library of the profile `dev` notices handles that were let go: for a program that is built against it while it is developed. */
#include "expect.h"

int main(void) {
    alv_machine *machine = simulated();
    alv_resource *resource = stack("pool | cuda");
    alv_resource *kept = stack("pool | cuda");
    alv_stream *stream = NULL;
    OK(alv_stream_create(0, &stream));

    /* A count that is left keeps the handle. */
    EXPECT(alv_resource_retain(resource) == resource);
    alv_resource_release(resource);
    void *block = NULL;
    OK(alv_allocate(resource, 100, 0, NULL, &block));
    alv_deallocate(resource, block, 100, 0, NULL);
    alv_resource_release(resource);
    alv_stream_release(stream);

    block = &block;
    EXPECT_STATUS(alv_allocate(resource, 100, 0, NULL, &block), ALV_INVALID_ARGUMENT);
    EXPECT(block == NULL);
    EXPECT(strstr(alv_last_error_message(), "released") != NULL);
    EXPECT_STATUS(alv_allocate_on(kept, 100, 0, stream, &block), ALV_INVALID_ARGUMENT);
    EXPECT_STATUS(alv_trim(resource, 0, NULL), ALV_INVALID_ARGUMENT);
    EXPECT_STATUS(alv_stream_synchronize(stream), ALV_INVALID_ARGUMENT);
    EXPECT(alv_resource_retain(resource) == NULL);
    EXPECT(alv_resource_max_align(resource) == 0);
    EXPECT(!alv_resource_equal(resource, kept));
    /* A handle of another kind is none. */
    EXPECT_STATUS(alv_stream_synchronize((alv_stream *)(void *)kept), ALV_INVALID_ARGUMENT);
    /* And what fails without a status does nothing. */
    OK(alv_allocate(kept, 100, 0, NULL, &block));
    alv_deallocate(resource, block, 100, 0, NULL);
    alv_deallocate_on(kept, block, 100, 0, stream);
    alv_resource_release(resource);
    alv_stream_release(stream);
    alv_pool_status figures = ALV_INIT(alv_pool_status);
    OK(alv_status_of(kept, &figures));
    EXPECT(figures.live_blocks == 1);
    alv_deallocate(kept, block, 100, 0, NULL);

    alv_resource_release(kept);
    clean(machine);
    puts("released: ok");
    return 0;
}
