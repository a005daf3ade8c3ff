/* A stack sleeps and wakes, and what is kept of it is read meanwhile. */
#include "expect.h"

#include <unistd.h>

enum { BYTES = 3 << 20 };

/* That nothing is read, for a reason in these words. */
static void refused(const alv_sleeper *sleeper, const char *from, const char *words) {
    char into[3] = {1, 1, 1};
    EXPECT_STATUS(alv_sleeper_read_kept(sleeper, from, into, sizeof into), ALV_INVALID_ARGUMENT);
    EXPECT(strstr(alv_last_error_message(), words) != NULL);
    EXPECT(into[0] == 1 && into[1] == 1 && into[2] == 1);
}

static void kept_in_memory_of_the_host(const alv_resource *pool, char *block) {
    alv_resource *pinned = stack("pool | pinned");
    alv_sleeper *sleeper = NULL;
    /* Memory that was never written, until it has the contents. */
    char *all = malloc(BYTES);
    EXPECT(all != NULL);
    OK(alv_sleep(pool, NULL, pinned, &sleeper));
    OK(alv_sleeper_read_kept(sleeper, block, all, BYTES));
    for (int at = 0; at < BYTES; at++) EXPECT(all[at] == 7);
    OK(alv_sleeper_read_kept(sleeper, block + BYTES - 3, all, 3));
    refused(sleeper, block + BYTES - 2, "not all of them lie in one block that sleeps");
    refused(sleeper, block + BYTES, "not all of them lie in one block that sleeps");
    refused(sleeper, NULL, "from");
    refused(NULL, block, "sleeper");
    EXPECT_STATUS(alv_sleeper_read_kept(sleeper, block, NULL, 3), ALV_INVALID_ARGUMENT);
    OK(alv_wake(sleeper));
    refused(sleeper, block, "the blocks are awake");
    alv_sleeper_release(sleeper);
    alv_resource_release(pinned);
    free(all);
}

static void kept_elsewhere_or_not_at_all(const alv_resource *pool, const char *block) {
    const char *parent = getenv("TMPDIR");
    char folder[4200];
    alv_sleeper *sleeper = NULL;
    EXPECT(snprintf(folder, sizeof folder, "%s/alluvion-sleep-XXXXXX", parent != NULL ? parent : "/tmp") < (int)sizeof folder);
    EXPECT(mkdtemp(folder) != NULL);
    OK(alv_sleep_on_disk(pool, NULL, folder, &sleeper));
    refused(sleeper, block, "a file has the contents");
    OK(alv_wake(sleeper));
    alv_sleeper_release(sleeper);
    EXPECT(rmdir(folder) == 0);
    OK(alv_sleep(pool, NULL, NULL, &sleeper));
    refused(sleeper, block, "nothing was kept");
    OK(alv_wake(sleeper));
    alv_sleeper_release(sleeper);
}

int main(void) {
    alv_machine *machine = simulated();
    alv_resource *pool = stack("pool | mapped");
    void *block = NULL;
    char back = 0;
    OK(alv_allocate(pool, BYTES, 0, NULL, &block));
    OK(alv_fill(pool, block, 7, BYTES, NULL));
    kept_in_memory_of_the_host(pool, block);
    OK(alv_copy(pool, &back, block, 1, NULL));
    OK(alv_synchronize(pool, NULL));
    EXPECT(back == 7);
    kept_elsewhere_or_not_at_all(pool, block);
    alv_deallocate(pool, block, BYTES, 0, NULL);
    alv_resource_release(pool);
    clean(machine);
    return 0;
}
