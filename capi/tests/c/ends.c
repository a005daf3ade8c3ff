/* How threads and processes end that use the library: `ends threads`, `ends fork` or `ends exit`. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

static alv_resource *shared;
static alv_stream *stream;
static pthread_key_t key;
static char used;
static int destructors;

static void allocate_and_free(void) {
    void *block = NULL;
    OK(alv_allocate(shared, 4096, 0, NULL, &block));
    alv_deallocate(shared, block, 4096, 0, NULL);
    OK(alv_allocate(shared, 4096, 0, alv_stream_handle(stream), &block));
    alv_deallocate(shared, block, 4096, 0, alv_stream_handle(stream));
    OK(alv_allocate_on(shared, 4096, 0, stream, &block));
    alv_deallocate_on(shared, block, 4096, 0, stream);
    OK(alv_allocate_sync(shared, 4096, 0, &block));
    alv_deallocate_sync(shared, block, 4096, 0);
}

/*
 * glibc runs the destructors of these keys after those of thread-locals of C++ and Rust. Of a thread that has used the library
 * before, nothing of the library's is left; another thread uses it for the first time here.
 */
static void at_the_end_of_a_thread(void *used_before) {
    allocate_and_free();
    void *block = &block;
    EXPECT_STATUS(alv_allocate(shared, 100, 3, NULL, &block), ALV_INVALID_ALIGNMENT);
    EXPECT(block == NULL);
    const char *message = alv_last_error_message();
    alv_error_info info = ALV_INIT(alv_error_info);
    OK(alv_last_error(&info));
    if (used_before == &used) {
        /* The thread keeps nothing any more: the text is static. */
        EXPECT(strstr(message, "ending") != NULL);
        EXPECT(info.status == ALV_OK);
        EXPECT_STATUS(alv_tag_push("late"), ALV_UNSUPPORTED);
    } else {
        EXPECT(strstr(message, "alignment") != NULL);
        EXPECT(info.status == ALV_INVALID_ALIGNMENT);
    }
    alv_tag_pop();
    alv_resource_release(alv_resource_retain(shared));
    alv_stream *own = NULL;
    OK(alv_stream_create(0, &own));
    alv_stream_release(own);
    __atomic_add_fetch(&destructors, 1, __ATOMIC_RELAXED);
}

static void *work(void *uses) {
    EXPECT(pthread_setspecific(key, uses) == 0);
    if (uses != &used) return NULL;
    allocate_and_free();
    OK(alv_tag_push("worker"));
    EXPECT_STATUS(alv_allocate(shared, 100, 3, NULL, &(void *){NULL}), ALV_INVALID_ALIGNMENT);
    EXPECT(strstr(alv_last_error_message(), "ending") == NULL);
    /* Freed on the thread's own stream, which ends with the thread. */
    void *block = NULL;
    OK(alv_allocate(shared, 4096, 0, (alv_cuda_stream)2, &block));
    alv_deallocate(shared, block, 4096, 0, (alv_cuda_stream)2);
    return NULL;
}

static void threads(void) {
    alv_machine *machine = simulated();
    shared = stack("stats | tracking | pool | cuda");
    OK(alv_stream_create(0, &stream));
    EXPECT(pthread_key_create(&key, at_the_end_of_a_thread) == 0);
    for (int round = 0; round < 8; round++) {
        pthread_t ids[4];
        for (int i = 0; i < 4; i++) EXPECT(pthread_create(&ids[i], NULL, work, i % 2 ? (void *)&used : (void *)&key) == 0);
        for (int i = 0; i < 4; i++) EXPECT(pthread_join(ids[i], NULL) == 0);
    }
    EXPECT(destructors == 32);
    alv_counts counts = ALV_INIT(alv_counts);
    OK(alv_stats(shared, &counts));
    EXPECT(counts.allocations.value == 0 && counts.allocations.total == 32 * 4 + 16 * 5);
    alv_stream_release(stream);
    alv_resource_release(shared);
    clean(machine);
}

/* A driver does not work in a child of a fork. There, requests say so, frees leak, and nothing waits for threads that are gone. */
static void child(void *block) {
    void *more = &more;
    EXPECT_STATUS(alv_allocate(shared, (size_t)8 << 20, 0, NULL, &more), ALV_SHUT_DOWN);
    EXPECT(more == NULL && strlen(alv_last_error_message()) > 10);
    EXPECT_STATUS(alv_allocate(shared, 4096, 0, alv_stream_handle(stream), &more), ALV_SHUT_DOWN);
    EXPECT_STATUS(alv_stream_synchronize(stream), ALV_SHUT_DOWN);
    alv_deallocate(shared, block, 4096, 0, NULL);
    alv_deallocate(shared, block, 4096, 0, alv_stream_handle(stream));
    alv_deallocate_sync(shared, block, 4096, 0);
    alv_stream *new_stream = NULL;
    EXPECT_STATUS(alv_stream_create(0, &new_stream), ALV_SHUT_DOWN);
    EXPECT(new_stream == NULL);
    /* Another thread may have been looking: then the choice is refused, and waits for nobody. */
    alv_status chosen = alv_set_machine(NULL);
    EXPECT(chosen == ALV_OK || chosen == ALV_UNSUPPORTED);
    char text[256];
    OK(alv_describe(shared, text, sizeof text, NULL));
    EXPECT(strstr(text, "Pool") != NULL);
    alv_stream_release(stream);
    alv_resource_release(shared);
}

static int stop;

static void *work_until_stopped(void *unused) {
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        allocate_and_free();
        alv_resource *other = stack("cuda");
        alv_resource_release(other);
    }
    return NULL;
}

/* Forks while other threads are anywhere in the library. */
static void forks(void) {
    alv_machine *machine = simulated();
    shared = stack("stats | pool(initial=4MiB) | cuda");
    OK(alv_stream_create(0, &stream));
    void *block = NULL;
    OK(alv_allocate(shared, 4096, 0, NULL, &block));
    pthread_t workers[2];
    for (int i = 0; i < 2; i++) EXPECT(pthread_create(&workers[i], NULL, work_until_stopped, NULL) == 0);
    for (int round = 0; round < 40; round++) {
        pid_t pid = fork();
        EXPECT(pid >= 0);
        if (pid == 0) {
            /* A child that hangs is ended, and fails. */
            alarm(60);
            child(block);
            /* With everything that the process runs when it ends. */
            exit(7);
        }
        int status = 0;
        EXPECT(waitpid(pid, &status, 0) == pid);
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) EXPECT(pthread_join(workers[i], NULL) == 0);
    /* The parent goes on. */
    alv_deallocate(shared, block, 4096, 0, NULL);
    allocate_and_free();
    alv_stream_release(stream);
    alv_resource_release(shared);
    clean(machine);
}

static void *live_block;

static void at_the_exit(void) {
    /* The library works for as long as the process does. */
    alv_deallocate(shared, live_block, 4096, 0, NULL);
    allocate_and_free();
    puts("at the exit: ok");
    fflush(stdout);
}

static void *work_on(void *unused) {
    (void)unused;
    for (;;) allocate_and_free();
    return NULL;
}

/* Ends the process with handles and blocks that are out, and threads that go on. */
static void exits(const char *log) {
    simulated();
    EXPECT(atexit(at_the_exit) == 0);
    char recipe[512];
    EXPECT(snprintf(recipe, sizeof recipe, "logging(\"%s\") | stats | pool | cuda", log) < (int)sizeof recipe);
    shared = stack(recipe);
    OK(alv_stream_create(0, &stream));
    OK(alv_allocate(shared, 4096, 0, NULL, &live_block));
    alv_resource *before = NULL;
    OK(alv_set_current_resource(0, shared, &before));
    for (int i = 0; i < 2; i++) {
        pthread_t id;
        EXPECT(pthread_create(&id, NULL, work_on, NULL) == 0);
    }
    allocate_and_free();
    exit(0);
}

int main(int count, char **arguments) {
    EXPECT(count >= 2);
    if (strcmp(arguments[1], "threads") == 0) {
        threads();
    } else if (strcmp(arguments[1], "fork") == 0) {
        forks();
    } else {
        EXPECT(count == 3 && strcmp(arguments[1], "exit") == 0);
        exits(arguments[2]);
    }
    printf("ends %s: ok\n", arguments[1]);
    return 0;
}
