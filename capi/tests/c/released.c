/* A library of the profile `dev` notices handles that were let go, and says so: for a program that is built against it while it is
 * developed. */
#include "expect.h"

#include <unistd.h>

/* Where the standard error stream goes, but for what this program itself has to say. */
static FILE *written;
static int standard_error;

static void listen(void) {
    written = tmpfile();
    standard_error = dup(2);
    EXPECT(written != NULL && standard_error > 2 && dup2(fileno(written), 2) == 2);
}

/* That since the last time one line was written: about `function`, and with what the last failure says, which has these words. */
static void said(const char *function, const char *words) {
    static long before;
    char text[512] = "", expected[512];
    EXPECT(dup2(standard_error, 2) == 2);
    const long after = lseek(fileno(written), 0, SEEK_END);
    EXPECT(after > before && after - before < (long)sizeof text);
    EXPECT(pread(fileno(written), text, (size_t)(after - before), before) == after - before);
    snprintf(expected, sizeof expected, "alluvion: %s: %s\n", function, alv_last_error_message());
    if (strcmp(text, expected) != 0 || strstr(text, words) == NULL) {
        fprintf(stderr, "it said: %sand not: %swith the words: %s\n", text, expected, words);
        abort();
    }
    before = after;
    EXPECT(dup2(fileno(written), 2) == 2);
}

/* What answers no status says its mistakes once, and keeps them. */
static void mistakes_without_a_status(void) {
    alv_resource *gone = stack("pool | cuda"), *other = stack("stats | cuda");
    alv_stream *stream = NULL;
    void *block = NULL;
    OK(alv_stream_create(0, &stream));
    OK(alv_allocate(other, 100, 0, NULL, &block));
    alv_resource_release(gone);
    listen();
    alv_resource_release(gone);
    said("alv_resource_release", "it was released for good before");
    EXPECT(alv_resource_retain(gone) == NULL);
    said("alv_resource_retain", "it was released for good before");
    alv_resource *next = stack("pool | cuda");
    alv_resource_release(gone);
    said("alv_resource_release", "it was released for good before");
    alv_resource_release(next);
    alv_resource_release((alv_resource *)(void *)stream);
    said("alv_resource_release", "another kind");
    alv_deallocate(gone, block, 100, 0, NULL);
    said("alv_deallocate", "it was released for good before");
    alv_deallocate(NULL, block, 100, 0, NULL);
    said("alv_deallocate", "it is null");
    alv_deallocate(other, block, 100, 3, NULL);
    said("alv_deallocate", "alignment");
    alv_deallocate(other, block, 0, 0, NULL);
    said("alv_deallocate", "bytes");
    alv_deallocate_sync(NULL, block, 100, 0);
    said("alv_deallocate_sync", "it is null");
    alv_deallocate_on(other, block, 100, 0, NULL);
    said("alv_deallocate_on", "it is null");
    EXPECT(!alv_resource_equal(gone, other));
    said("alv_resource_equal", "it was released for good before");
    alluvion_cupy_free(NULL, block, 0);
    said("alluvion_cupy_free", "");
    /* What a layer refuses, too. */
    alv_resource *watched = stack("tracking | pool | cuda");
    void *twice = NULL;
    OK(alv_allocate(watched, 100, 0, NULL, &twice));
    alv_deallocate(watched, twice, 100, 0, NULL);
    alv_deallocate(watched, twice, 100, 0, NULL);
    said("alv_deallocate", "free already");
    uint64_t refused = 0;
    OK(alv_refused_frees(watched, &refused));
    EXPECT(refused == 1);
    /* And nothing where nothing is wrong: the next mistake is the next line. */
    alv_resource_release(NULL);
    alv_deallocate(NULL, NULL, 0, 0, NULL);
    EXPECT(alv_resource_max_align(NULL) == 0 && !alv_resource_equal(NULL, other) && alv_stream_handle(NULL) == NULL);
    alv_stream_release(stream);
    alv_deallocate(other, block, 100, 0, NULL);
    alv_resource_release(other);
    alv_stream_release(stream);
    said("alv_stream_release", "it was released for good before");
    EXPECT(dup2(standard_error, 2) == 2);
    close(standard_error);
    fclose(written);
    alv_resource_release(watched);
}

int main(void) {
    alv_machine *machine = simulated_that(1);
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
    mistakes_without_a_status();
    clean(machine);
    puts("released: ok");
    return 0;
}
