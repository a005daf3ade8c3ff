/* The library, loaded by name as a plugin is: `loaded LIBRARY`. It stays where it is when it is closed, and its threads go on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

#include <alluvion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            abort(); \
        } \
    } while (0)

/* Each function that is used has the type that the header declares. */
#define FUNCTIONS(each) \
    each(alv_check_version) each(alv_machine_sim) each(alv_set_machine) each(alv_machine_release) each(alv_resource_from_recipe) \
    each(alv_resource_release) each(alv_allocate_raw) each(alv_deallocate_raw) each(alv_log_flush) each(alv_sim_report) \
    each(alv_last_error_message)

typedef struct {
#define FIELD(name) __typeof__(&name) name;
    FUNCTIONS(FIELD)
#undef FIELD
} functions;

static void *load(const char *path, functions *found) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fprintf(stderr, "%s\n", dlerror());
    EXPECT(library != NULL);
#define FIND(name) \
    do { \
        void *address = dlsym(library, #name); \
        EXPECT(address != NULL); \
        memcpy(&found->name, &address, sizeof address); \
    } while (0);
    FUNCTIONS(FIND)
#undef FIND
    return library;
}

static functions loaded;
static alv_resource *shared;

static void *work(void *barrier) {
    void *block = NULL;
    EXPECT(loaded.alv_allocate_raw(shared, 4096, 0, NULL, &block) == ALV_OK);
    loaded.alv_deallocate_raw(shared, block, 4096, 0, NULL);
    EXPECT(loaded.alv_allocate_raw(shared, 4096, 3, NULL, &block) == ALV_INVALID_ALIGNMENT);
    EXPECT(strlen(loaded.alv_last_error_message()) > 10);
    /* The library is closed before the thread ends, and with it its thread-locals. */
    pthread_barrier_wait(barrier);
    pthread_barrier_wait(barrier);
    return NULL;
}

int main(int count, char **arguments) {
    EXPECT(count == 3);
    void *library = load(arguments[1], &loaded);
    /* Its names are no names of the program's. */
    EXPECT(dlsym(RTLD_DEFAULT, "alv_version") == NULL);
    EXPECT(loaded.alv_check_version(ALV_VERSION) == ALV_OK);
    alv_machine *machine = NULL;
    EXPECT(loaded.alv_machine_sim(NULL, &machine) == ALV_OK);
    EXPECT(loaded.alv_set_machine(machine) == ALV_OK);
    char recipe[512];
    EXPECT(snprintf(recipe, sizeof recipe, "logging(\"%s\") | pool | cuda", arguments[2]) < (int)sizeof recipe);
    EXPECT(loaded.alv_resource_from_recipe(recipe, 0, &shared) == ALV_OK);

    pthread_barrier_t barrier;
    EXPECT(pthread_barrier_init(&barrier, NULL, 3) == 0);
    pthread_t ids[2];
    for (int i = 0; i < 2; i++) EXPECT(pthread_create(&ids[i], NULL, work, &barrier) == 0);
    pthread_barrier_wait(&barrier);
    EXPECT(dlclose(library) == 0);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 2; i++) EXPECT(pthread_join(ids[i], NULL) == 0);

    /* Loaded again it is the same, with the state that it had. */
    functions again;
    library = load(arguments[1], &again);
    EXPECT(again.alv_allocate_raw == loaded.alv_allocate_raw);
    EXPECT(again.alv_log_flush(shared) == ALV_OK);
    FILE *log = fopen(arguments[2], "r");
    EXPECT(log != NULL);
    int rows = 0;
    for (int letter = 0; (letter = fgetc(log)) != EOF;) rows += letter == '\n';
    fclose(log);
    /* A heading, and two rows of each thread. */
    EXPECT(rows == 5);
    again.alv_resource_release(shared);
    size_t mistakes = 1;
    EXPECT(again.alv_sim_report(machine, NULL, NULL, &mistakes) == ALV_OK && mistakes == 0);
    EXPECT(again.alv_set_machine(NULL) == ALV_OK);
    again.alv_machine_release(machine);
    EXPECT(dlclose(library) == 0);
    puts("loaded: ok");
    return 0;
}
